package cli_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/auth/authtest"
	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/websocket"
)

var serverSecret = []byte("a secret of at least 32 bytes, for tests")

func secretFile(t *testing.T, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestServe_Closed: a server with a secret and rules, from a file, on the wire.
func TestServe_Closed(t *testing.T) {
	t.Parallel()
	file := configFile(t, `
auth-secret-file = ["`+secretFile(t, serverSecret)+`"]
rule = ["user: join,chat room:dm/{sub}/*", "monitoring: metrics server:*"]
`)
	p := serve(t, "--only", "chat", "--config", file)
	ann := authtest.Token(t, serverSecret, "ann", time.Hour, nil)
	monitor := authtest.Token(t, serverSecret, "m", time.Hour, map[string]any{"role": "monitoring"})
	for _, c := range []struct {
		path, token string
		want        int
	}{{"/healthz", "", 200}, {"/metrics", "", 401}, {"/metrics", ann, 403}, {"/metrics", monitor, 200}, {"/ws", "wrong", 401}} {
		if got := getAs(t, "http://"+p.Addr+c.path, c.token); got != c.want {
			t.Errorf("%s: %d, want %d", c.path, got, c.want)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := websocket.Dial(ctx, "ws://"+p.Addr+"/ws", websocket.Config{Header: http.Header{"Authorization": {"Bearer " + ann}}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Abort()
	for _, c := range []struct{ request, want string }{
		{`{"id":1,"type":"join","room":"dm/ann/bob"}`, `{"id":1,"type":"ok"}`},
		{`{"id":1,"type":"join","room":"dm/bob/ann"}`, `"code":"forbidden"`},
		{`{"id":1,"type":"chat","room":"dm/ann/bob","text":"x"}`, `{"id":1,"type":"ok"}`},
	} {
		say(conn, "%s", c.request)
		messages, err := conn.Read()
		if err != nil || len(messages) != 1 || !strings.Contains(string(messages[0].Payload), c.want) {
			t.Errorf("%s: %q, %v", c.request, messages, err)
		}
	}
	conn.Abort()
	if code := p.Stop(t); code != cli.ExitOK || !strings.Contains(p.Log(), "Total messages: 1") {
		t.Errorf("exit code %d, or no statistics: %s", code, p.Log())
	}
}
