package hostile

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// memoryLimit is the --max-memory of the server.
	memoryLimit = 256 << 20
	// memoryBound is the peak memory that the server may use, as the system measures it.
	memoryBound = memoryLimit
	// shutdownTimeout is the --shutdown-timeout of the server, and stopBound
	// the time that a stop may take on a busy machine.
	shutdownTimeout = 10 * time.Second
	stopBound       = shutdownTimeout + 20*time.Second
)

// server is a `tidewire serve` process.
type server struct {
	cmd  *exec.Cmd
	gate *gate
	addr string
	done chan struct{} // closed when the process has ended

	mu   sync.Mutex
	text bytes.Buffer // its output
}

func (s *server) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.text.Len() > 1<<20 {
		return len(b), nil // drop the rest, at most a trace: the beginning is enough
	}
	return s.text.Write(b)
}

func (s *server) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// show logs the output of the server, and writes all of it to a file if it is
// long.
func (s *server) show(t *testing.T) {
	const most = 4 << 10
	said := s.said()
	if len(said) <= most {
		t.Logf("the server said:\n%s", said)
		return
	}
	file, err := os.CreateTemp("", "tidewire-hostile-*.log")
	if err != nil {
		t.Error(err)
		return
	}
	defer file.Close()
	file.WriteString(said)
	t.Logf("the server said (all of it: %s):\n%s", file.Name(), said[:most])
}

// startServer starts the program at the path, or this program if the path is
// empty, on the database, and waits until it listens.
func startServer(t *testing.T, path, url string, g *gate, flags ...string) *server {
	t.Helper()
	bounded, limit := path != "", memoryLimit
	if !bounded { // the race detector takes several times the memory
		limit *= 4
		var err error
		if path, err = os.Executable(); err != nil {
			t.Fatal(err)
		}
	}
	s := &server{gate: g, done: make(chan struct{})}
	args := []string{"serve", "--port", "0", "--database-url", url, "--stored-rooms", "stored-*",
		"--rate-limit", "1000", "--rate-burst", "1000", "--shutdown-timeout", shutdownTimeout.String(), "--profile", "--max-memory", strconv.Itoa(limit)}
	s.cmd = exec.Command(path, slices.Concat(args, g.flags(), flags)...)
	s.cmd.Env = append(os.Environ(), asProgram+"=1")
	s.cmd.Stdout, s.cmd.Stderr = s, s
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.cmd.Wait(); close(s.done) }()
	if bounded { // the memory of the race detector is not limited
		go s.watch()
	}
	t.Cleanup(func() {
		s.cmd.Process.Kill()
		<-s.done
		if t.Failed() {
			s.show(t)
		}
	})
	for deadline := time.Now().Add(time.Minute); s.addr == ""; {
		if _, after, ok := strings.Cut(s.said(), "listening on "); ok {
			if address, _, ok := strings.Cut(after, "\n"); ok {
				_, port, err := net.SplitHostPort(address)
				if err != nil {
					t.Fatal(err)
				}
				s.addr = "127.0.0.1:" + port
			}
		}
		select {
		case <-s.done:
			t.Fatalf("the server ended with code %d", s.cmd.ProcessState.ExitCode())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("the server does not listen within a minute")
		}
	}
	return s
}

// lives reports whether the started process is still running.
func (s *server) lives() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// cutOff are the texts that the server prints if clients that do not read
// prevent a clean stop.
var cutOff = []string{"HTTP requests cut off:", "gateway: connections cut off:"}

// stop sends SIGTERM and waits for the end. The exit code must be 0, or 1 if
// clients kept their connections and the server reports that they were aborted.
func (s *server) stop(clinging bool) error {
	s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.done:
	case <-time.After(stopBound):
		s.cmd.Process.Signal(syscall.SIGQUIT) // writes its goroutines to its output
		select {
		case <-s.done:
		case <-time.After(5 * time.Second):
			s.cmd.Process.Kill()
			<-s.done
		}
		return fmt.Errorf("not stopped %v after SIGTERM, with --shutdown-timeout %v", stopBound, shutdownTimeout)
	}
	code := s.cmd.ProcessState.ExitCode()
	said := s.said()
	saysWhy := slices.ContainsFunc(cutOff, func(why string) bool { return strings.Contains(said, why) })
	if code == 0 || code == 1 && clinging && saysWhy {
		return nil
	}
	return fmt.Errorf("exit code %d after SIGTERM (cut off: %v)", code, saysWhy)
}

// get requests a path as the monitor, on a connection of its own.
func (s *server) get(path string) (*http.Response, error) {
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := http.NewRequest(http.MethodGet, "http://"+s.addr+path, nil)
	if err != nil {
		return nil, err
	}
	if s.gate != nil {
		r.Header.Set("Authorization", bearer(s.gate.token("monitor", shortLife)))
	}
	return client.Do(r)
}

// metrics returns the samples at /metrics, by their name with labels.
func (s *server) metrics() (map[string]float64, error) {
	answer, err := s.get("/metrics")
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
	if err != nil {
		return h, err
	}
	return held{int(samples["go_goroutines"]), int(samples["process_open_fds"])}, nil
}

// watch saves one heap profile when the process uses more memory than it may.
func (s *server) watch() {
	for s.peak() <= memoryBound {
		select {
		case <-s.done:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
	answer, err := s.get("/debug/pprof/heap")
	if err != nil {
		return
	}
	defer answer.Body.Close()
	file, err := os.CreateTemp("", "tidewire-hostile-*.heap")
	if err != nil {
		return
	}
	defer file.Close()
	if _, err := io.Copy(file, answer.Body); err == nil {
		fmt.Fprintf(s, "heap profile above %d MiB: %s\n", memoryBound>>20, file.Name())
	}
}

// peak returns the peak memory of the process, in bytes; 0 if the system does
// not report it.
func (s *server) peak() int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(text), "VmHWM:")
	fields := strings.Fields(after)
	if len(fields) == 0 {
		return 0
	}
	kib, _ := strconv.ParseInt(fields[0], 10, 64)
	return kib << 10
}
