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
	"github.com/tidewire/tidewire/internal/testbin"
)

// waiting starts a server whose PostgreSQL is away, and returns when it waits.
func waiting(t *testing.T, url string) *program {
	t.Helper()
	p := &program{testbin.Launch(t, exec.Command(tidewire(t), "serve", "--port", "0", "--stored-rooms", "kept", "--database-url", url))}
	p.Await(t, "cannot be used yet")
	_, after, _ := strings.Cut(p.Log(), "listening=")
	p.Addr, _, _ = strings.Cut(after, " ")
	return p
}

// TestServe_PostgreSQLIsAway: a machine starts both at once, so the server waits until PostgreSQL is there, and says so. When PostgreSQL is away later,
// requests for a stream, a group, a queue, an event store and a room that this server has not used yet wait for it, and each of them succeeds in the end.
func TestServe_PostgreSQLIsAway(t *testing.T) {
	notShort(t)
	t.Parallel()
	server := pgtest.Start(t)
	if err := server.Kill(context.Background()); err != nil {
		t.Fatal(err)
	}
	p := waiting(t, server.URL())
	p.awaitReadyz(t, 503, "not ready: PostgreSQL is unreachable")
	asked{"GET /healthz", "", 200, "ok"}.of(t, p.Addr)
	asked{"GET /v1/streams", "", http.StatusServiceUnavailable, `"retryable":true`}.of(t, p.Addr)
	if err := server.Restart(context.Background()); err != nil {
		t.Fatal(err)
	}
	p.awaitReadyz(t, 200, "ok")
	p.Await(t, "listening on ")
	for _, text := range []string{"PostgreSQL cannot be used yet", "PostgreSQL can be used"} {
		if n := strings.Count(p.Log(), text); n != 1 {
			t.Errorf("%d lines with %q", n, text)
		}
	}

	for _, path := range []string{"streams/s", "streams/t", "queues/q"} {
		asked{"POST /v1/" + path, "", 200, ""}.of(t, p.Addr)
	}
	texts := map[string]string{
		"publish": `{"type":"publish","stream":"s","payload":"x","id":1}`,
		"commit":  `{"type":"commit","stream":"t","group":"g","position":0,"id":1}`,
		"enqueue": `{"type":"enqueue","queue":"q","payload":"x","id":1}`,
		"append":  `{"type":"append","events":[{"type":"e"}],"id":1}`,
		"chat":    `{"type":"chat","room":"kept","text":"held","id":1}`,
	}
	conns := make(map[string]*wire)
	for name := range texts {
		conns[name] = wireDial(t, p.Addr)
	}
	conns["chat"].ask(`{"type":"join","room":"kept","id":2}`)
	if err := server.Kill(context.Background()); err != nil {
		t.Fatal(err)
	}
	for name, text := range texts {
		say(conns[name].Conn, "%s", text)
	}
	p.Await(t, "PostgreSQL does not answer; what was accepted waits")
	if err := server.Restart(context.Background()); err != nil {
		t.Fatal(err)
	}
	for name, w := range conns {
		if m, err := w.next(); err != nil || m.Type != "ok" || m.ID != 1 {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	p.Await(t, "PostgreSQL answers again")
	if code := p.Stop(t); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
}

// TestServe_StopsWhileItWaits: a service manager can stop it at once.
func TestServe_StopsWhileItWaits(t *testing.T) {
	t.Parallel()
	p := waiting(t, "postgres://x@127.0.0.1:1/x")
	if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.Wait(t); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
}
