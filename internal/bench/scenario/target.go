package scenario

import (
	"context"
	"errors"

	"github.com/tidewire/tidewire/internal/bench"
)

// Target is a server under test.
type Target struct {
	Name        string
	Description string
	// Start runs it; URL is of one that runs already.
	Start func(ctx context.Context) (*ServerProcess, error)
	URL   string
	// Missing is why the server cannot be run, such as "not built: needs cargo".
	// Neither Start nor URL is needed then.
	Missing string
	// BinaryBytes is the size of the program without symbols and debug
	// information, 0 if that is not known.
	BinaryBytes int64
	// Labels are those of the target's rows.
	Labels map[string]string
	// Own is a Tidewire: what it loses makes a run invalid.
	Own bool
}

// use runs f with the target's URL and pid, 0 if it is not ours, and stops
// what it started: the server returned, nil if there was nothing to start.
func (t Target) use(ctx context.Context, f func(url string, pid int) error) (stopped *ServerProcess, err error) {
	if t.Start == nil {
		return nil, f(t.URL, 0)
	}
	server, err := t.Start(ctx)
	if err != nil {
		return nil, err
	}
	err = f(server.URL("/ws"), server.PID())
	return server, errors.Join(err, server.Stop())
}

// serverMetrics adds what the server and the generator used.
func serverMetrics(m map[string]float64, usage map[bench.Role]bench.Usage, pid int) {
	m["generator_cpu_seconds"] = usage[bench.Generator].CPUSeconds
	if pid != 0 {
		m["server_cpu_seconds"] = usage[bench.Server].CPUSeconds
		m["server_peak_rss_bytes"] = float64(usage[bench.Server].PeakRSSBytes)
	}
}
