package cli_test

import (
	"context"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// waiting starts a server whose PostgreSQL is away, and returns when it waits.
func waiting(t *testing.T, url string) *program {
	t.Helper()
	p := launch(t, exec.Command(tidewire(t), "serve", "--port", "0", "--database-url", url))
	p.await(t, "cannot be used yet")
	_, after, _ := strings.Cut(p.log(), "listening=")
	p.addr, _, _ = strings.Cut(after, " ")
	return p
}

// TestServe_WaitsForPostgreSQL: a machine starts both at once, so the server waits until PostgreSQL is there, and says so.
func TestServe_WaitsForPostgreSQL(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	if err := server.Kill(context.Background()); err != nil {
		t.Fatal(err)
	}
	p := waiting(t, server.URL())
	awaitReadyz(t, p, 503, "not ready: PostgreSQL is unreachable")
	if status, said := request(t, "GET", p.addr, "/healthz", ""); status != 200 || said != "ok" {
		t.Errorf("/healthz: %d %q", status, said)
	}
	if status, said := request(t, "GET", p.addr, "/v1/streams", ""); status != http.StatusServiceUnavailable || !strings.Contains(said, `"retryable":true`) {
		t.Errorf("/v1/streams: %d %q", status, said)
	}
	if err := server.Restart(context.Background()); err != nil {
		t.Fatal(err)
	}
	awaitReadyz(t, p, 200, "ok")
	p.await(t, "listening on ")
	if status, said := request(t, "POST", p.addr, "/v1/streams/s", ""); status != http.StatusOK {
		t.Errorf("a stream: %d %q", status, said)
	}
	for _, text := range []string{"PostgreSQL cannot be used yet", "PostgreSQL can be used"} {
		if n := strings.Count(p.log(), text); n != 1 {
			t.Errorf("%d lines with %q", n, text)
		}
	}
	if code := p.stop(t); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
}

// TestServe_StopsWhileItWaits: a service manager can stop it at once.
func TestServe_StopsWhileItWaits(t *testing.T) {
	t.Parallel()
	p := waiting(t, "postgres://x@127.0.0.1:1/x")
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
}
