package cli_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/websocket"
)

// statusOf is the status of a GET, or 0 if nothing answers.
func statusOf(t *testing.T, addr, path, host string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestServe_AdminListen: metrics and profiles are on a listener of their own, also in closed mode, and not under foreign host names.
func TestServe_AdminListen(t *testing.T) {
	t.Parallel()
	p := serve(t, "--only", "chat", "--profile", "--admin-listen", "0", "--auth-secret-file", secretFile(t, serverSecret))
	found := regexp.MustCompile(`metrics on (\S+)`).FindStringSubmatch(p.log())
	if found == nil {
		t.Fatalf("no address in %s", p.log())
	}
	if ip, _, err := net.SplitHostPort(found[1]); err != nil || !net.ParseIP(ip).IsLoopback() {
		t.Errorf("it listens on %s", found[1])
	}
	for _, path := range []string{"/metrics", "/debug/pprof/"} {
		if got := statusOf(t, found[1], path, ""); got != 200 {
			t.Errorf("%s on the admin listener: %d", path, got)
		}
		if got := statusOf(t, found[1], path, "evil.example"); got != 421 {
			t.Errorf("%s with a foreign host name: %d", path, got)
		}
		if got := statusOf(t, p.addr, path, ""); got != 404 {
			t.Errorf("%s on the main listener: %d", path, got)
		}
	}
	if got := statusOf(t, found[1], "/ws", ""); got != 404 {
		t.Errorf("/ws on the admin listener: %d", got)
	}
	if code, _, errOut := run(t, nil, "serve", "--only", "chat", "--port", "0", "--admin-listen", p.addr); code != cli.ExitListen || !strings.Contains(errOut, "choose another with --admin-listen") {
		t.Errorf("a port in use: %d %s", code, errOut)
	}
	if code := p.stop(t); code != cli.ExitOK {
		t.Errorf("exit code %d: %s", code, p.log())
	}
	for _, bad := range []string{"x", "localhost:", "70000", "nowhere.invalid:0"} {
		if code, _, errOut := run(t, nil, "serve", "--only", "chat", "--port", "0", "--admin-listen", bad); code != cli.ExitUsage && code != cli.ExitListen {
			t.Errorf("%s: %d %s", bad, code, errOut)
		}
	}
}

// TestServe_Drain: a server that is told to stop closes its connections first, tells them when to come back, and ends with 0. A second
// signal does not wait.
func TestServe_Drain(t *testing.T) {
	t.Parallel()
	p := serve(t, "--only", "chat", "--drain", "1s")
	conns := make([]*websocket.Conn, 5)
	for i := range conns {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var err error
		if conns[i], err = websocket.Dial(ctx, "ws://"+p.addr+"/ws", websocket.Config{}); err != nil {
			t.Fatal(err)
		}
		defer conns[i].Abort()
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	for _, c := range conns {
		c.SetReadDeadline(time.Now().Add(time.Minute))
		_, err := c.Read()
		closed, ok := errors.AsType[*websocket.CloseError](err)
		if !ok || closed.Code != websocket.StatusGoingAway || !strings.Contains(closed.Reason, "retry_after_ms=") {
			t.Errorf("closed with %v", err)
		}
		c.Close(websocket.StatusGoingAway, "")
	}
	if code := p.wait(t); code != cli.ExitOK || !strings.Contains(p.log(), "draining") {
		t.Errorf("exit code %d: %s", code, p.log())
	}

	p = serve(t, "--only", "chat", "--drain", "1h")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 { // of two, one is left until the hour is over
		c, err := websocket.Dial(ctx, "ws://"+p.addr+"/ws", websocket.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Abort()
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	for deadline := time.Now().Add(time.Minute); !strings.Contains(p.log(), "draining"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no drain")
		}
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.wait(t)
}
