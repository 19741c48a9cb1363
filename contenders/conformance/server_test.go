package conformance

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/testbin"
)

// unlimited are flags for cases that do not test the rate limit.
var unlimited = []string{"--rate-limit", "100000", "--rate-burst", "100000"}

// server is a running server.
type server struct {
	*testbin.Process
	url string
}

// start starts a process with flags and waits until it serves.
func (c contender) start(t *testing.T, flags ...string) *server {
	t.Helper()
	return c.startWith(t, func(port string) []string { return append([]string{"--port", port}, flags...) })
}

// startWith starts a process on a port that seems to be free. If another
// program has taken the port meanwhile, it tries another port.
func (c contender) startWith(t *testing.T, args func(port string) []string) *server {
	t.Helper()
	var s *server
	for range 5 {
		port := freePort(t)
		cmd := exec.Command(c.command[0], append(c.command[1:len(c.command):len(c.command)], args(port)...)...)
		cmd.Env = append(os.Environ(), c.env...)
		s = &server{testbin.Launch(t, cmd), "ws://127.0.0.1:" + port + "/ws"}
		if s.ready(t) {
			return s
		}
	}
	t.Fatalf("%v ended with code %d:\n%s", s.Cmd.Args, s.Cmd.ProcessState.ExitCode(), s.Log())
	return nil
}

// ready waits until the server answers, and returns false if it ends instead.
// The server must also have printed something: until then another server may be
// the one that answers.
func (s *server) ready(t *testing.T) bool {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		select {
		case <-s.Done:
			return false
		case <-time.After(10 * time.Millisecond):
		}
		status, err := s.healthz()
		if err == nil && status == http.StatusOK && s.Log() != "" {
			return true
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v does not serve /healthz, or says nothing when it listens: status %d, %v\n%s", s.Cmd.Args, status, err, s.Log())
		}
	}
}

func (s *server) healthz() (status int, err error) {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get("http" + strings.TrimSuffix(strings.TrimPrefix(s.url, "ws"), "/ws") + "/healthz")
	if err != nil {
		return 0, err
	}
	r.Body.Close()
	return r.StatusCode, nil
}

// freePort finds one below those that the system gives to outgoing connections.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		port := strconv.Itoa(20_000 + rand.IntN(12_000))
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// stop sends a signal and waits for the end.
func (s *server) stop(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := s.Cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	s.ended(t)
}

// ended waits for the process to end with exit code 0.
func (s *server) ended(t *testing.T) {
	t.Helper()
	select {
	case <-s.Done:
	case <-time.After(2 * patience):
		t.Fatal("the server does not end")
	}
	if code := s.Cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// statistics returns the figures of the block that a server prints at its end.
func (s *server) statistics(t *testing.T) map[string]float64 {
	t.Helper()
	_, block, found := strings.Cut(s.Log(), "--- Statistics ---\n")
	if !found {
		t.Fatalf("no line '--- Statistics ---' in\n%s", s.Log())
	}
	figures := make(map[string]float64)
	for name, form := range map[string]string{
		"Total messages": `(\d+)`, "Total connections": `(\d+)`, "Peak connections": `(\d+)`, "Messages dropped": `(\d+)`,
		"Message drop rate": `([\d.]+)%`, "Throughput": `([\d.]+) messages/sec`, "Deliveries": `(\d+)`,
		"Processing time": `(\d).*`, "Average latency": `(\d).*`,
	} {
		match := regexp.MustCompile(`(?m)^` + name + `: ` + form + `\r?$`).FindStringSubmatch(block)
		if match == nil {
			t.Errorf("no line '%s: %s' in\n%s", name, form, block)
			continue
		}
		figures[name], _ = strconv.ParseFloat(match[1], 64)
	}
	return figures
}

// wantStatistics compares some figures.
func (s *server) wantStatistics(t *testing.T, want map[string]float64) {
	t.Helper()
	got := s.statistics(t)
	for name, value := range want {
		if fmt.Sprintf("%.1f", got[name]) != fmt.Sprintf("%.1f", value) {
			t.Errorf("%s: %g, want %g", name, got[name], value)
		}
	}
}
