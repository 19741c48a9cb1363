package hostile

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/testbin"
)

const (
	// memoryLimit is the --max-memory of the server. The process must not take more, as the system measures it.
	memoryLimit = 256 << 20
	// shutdownTimeout is the --shutdown-timeout of the server, and stopBound the time that a stop may take on a busy machine.
	shutdownTimeout = 10 * time.Second
	stopBound       = shutdownTimeout + 30*time.Second
)

// server is a `tidewire serve` process.
type server struct {
	*testbin.Process
	gate  *gate
	kind  string // for the table
	bound int64  // of its memory; 0 for a server with the race detector, which takes several times as much
}

// startServer starts the program at the path, or this program if the path is empty, on the database, and waits until it listens.
func startServer(t *testing.T, path, url string, g *gate, flags ...string) *server {
	t.Helper()
	s := &server{gate: g, kind: "plain", bound: memoryLimit}
	limit := memoryLimit
	if path == "" {
		var err error
		if path, err = os.Executable(); err != nil {
			t.Fatal(err)
		}
		if build, _ := debug.ReadBuildInfo(); slices.Contains(build.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
			s.kind, s.bound, limit = "race detector", 0, 4*memoryLimit
		}
	}
	args := []string{"serve", "--port", "0", "--database-url", url, "--stored-rooms", "stored-*",
		"--rate-limit", "1000", "--rate-burst", "1000", "--shutdown-timeout", shutdownTimeout.String(), "--profile", "--max-memory", strconv.Itoa(limit)}
	cmd := exec.Command(path, slices.Concat(args, g.flags(), flags)...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	s.Process = testbin.Serve(t, cmd)
	return s
}

// lives reports whether the started process is still running.
func (s *server) lives() bool {
	select {
	case <-s.Done:
		return false
	default:
		return true
	}
}

// cutOff are the texts that the server prints if clients that do not read prevent a clean stop.
var cutOff = []string{"HTTP requests cut off:", "gateway: connections cut off:"}

// stop sends SIGTERM and waits for the end. The exit code must be 0, or 1 if clients kept their connections and the server reports that they were aborted.
func (s *server) stop(clinging bool) error {
	s.Cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.Done:
	case <-time.After(stopBound):
		s.Cmd.Process.Signal(syscall.SIGQUIT) // writes its goroutines to its output
		<-s.Done
		return fmt.Errorf("not stopped %v after SIGTERM, with --shutdown-timeout %v", stopBound, shutdownTimeout)
	}
	code := s.Cmd.ProcessState.ExitCode()
	saysWhy := slices.ContainsFunc(cutOff, func(why string) bool { return strings.Contains(s.Log(), why) })
	if code == 0 || code == 1 && clinging && saysWhy {
		return nil
	}
	return fmt.Errorf("exit code %d after SIGTERM (cut off: %v)", code, saysWhy)
}

// metrics returns the samples at /metrics, by their name with labels. It asks as the monitor, on a connection of its own.
func (s *server) metrics() (map[string]float64, error) {
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := http.NewRequest(http.MethodGet, "http://"+s.Addr+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	if s.gate != nil {
		r.Header.Set("Authorization", bearer(s.gate.token("monitor", shortLife)))
	}
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	samples := make(map[string]float64)
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			samples[name] = v
		}
	}
	return samples, nil
}

// held has the numbers that a leak would increase.
type held struct{ goroutines, files int }

func (s *server) held() (h held, err error) {
	samples, err := s.metrics()
	return held{int(samples["go_goroutines"]), int(samples["process_open_fds"])}, err
}

// sample returns the most that the server holds until then.
func (s *server) sample(until <-chan time.Time) (most held) {
	for {
		if now, err := s.held(); err == nil {
			most = held{max(most.goroutines, now.goroutines), max(most.files, now.files)}
		}
		select {
		case <-until:
			return most
		case <-time.After(200 * time.Millisecond): // pace: of a monitor
		}
	}
}

// peak returns the peak memory of the process, in bytes; 0 if the system does not report it.
func (s *server) peak() int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(text), "VmHWM:")
	var kib int64
	fmt.Sscan(after, &kib)
	return kib << 10
}
