package scenario

import (
	"context"
	"crypto/tls"
	"errors"

	"github.com/tidewire/tidewire/internal/bench"
)

// Target is a server under test.
type Target struct {
	Name        string
	Description string
	// Start starts it; URL is the address of a server that is running.
	Start func(ctx context.Context) (*ServerProcess, error)
	URL   string
	// TLS is for wss addresses. Defaults to what the system trusts.
	TLS *tls.Config
	// Missing is why the server cannot be run, such as "not built: needs cargo".
	// Neither Start nor URL is needed then.
	Missing string
	// BinaryBytes is the size of the program without symbols and debug
	// information, 0 if unknown.
	BinaryBytes int64
	// Labels are the labels of the target's rows.
	Labels map[string]string
	// Own: the server is Tidewire, whose losses make a run invalid.
	Own bool
}

// use runs f with the target's URL and pid (0 if it did not start the server),
// and then stops the server. It returns the stopped server, or nil if it
// started none.
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
