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

// TestServe_OpenModeIsForThisMachine: without keys a server does not start on other addresses, and says what to give.
func TestServe_OpenModeIsForThisMachine(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"0.0.0.0", "::"} {
		code, _, errOut := run(t, nil, "serve", "--only", "chat", "--port", "0", "--host", host)
		if code != cli.ExitUsage || !strings.Contains(errOut, "--auth-secret-file") || !strings.Contains(errOut, "--open") {
			t.Errorf("%s: %d %s", host, code, errOut)
		}
	}
	p := serve(t, "--only", "chat", "--host", "0.0.0.0", "--open")
	if !strings.Contains(p.log(), "serving without authentication") {
		t.Error("no warning")
	}
}

// TestServe_AuthSettings: settings that contradict each other, and files and rules that cannot be used, end the start.
func TestServe_AuthSettings(t *testing.T) {
	t.Parallel()
	good := secretFile(t, serverSecret)
	for says, args := range map[string][]string{
		"need tokens":          {"--rule", "user: read stream:a"},
		"leave it out":         {"--open", "--auth-secret-file", good},
		"no verb of stream":    {"--auth-secret-file", good, "--rule", "user: reed stream:a"},
		"want ROLE: RULE":      {"--auth-secret-file", good, "--rule", "read stream:a"},
		"at least 32":          {"--auth-secret-file", secretFile(t, []byte("short"))},
		"no such file":         {"--auth-secret-file", filepath.Join(t.TempDir(), "none")},
		"public key in PEM":    {"--auth-public-key-file", good},
		"needs the issuer":     {"--auth-jwks-url", "https://id.example.com/jwks"},
		"want https":           {"--auth-jwks-url", "http://id.example.com/jwks", "--auth-issuer", "x"},
		"give one of them":     {"--auth-jwks-url", "https://id.example.com/jwks", "--auth-issuer", "x", "--auth-secret-file", good},
		"audience is missing":  {"--auth-secret-file", good, "--auth-audience", ""},
		"--auth-leeway: inval": {"--auth-secret-file", good, "--auth-leeway", "x"},
	} {
		code, _, errOut := run(t, nil, append([]string{"serve", "--only", "chat", "--port", "0"}, args...)...)
		if code != cli.ExitUsage || !strings.Contains(errOut, says) {
			t.Errorf("%v: %d %s, want %q", args, code, errOut, says)
		}
	}
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
		if got := getAs(t, "http://"+p.addr+c.path, c.token); got != c.want {
			t.Errorf("%s: %d, want %d", c.path, got, c.want)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := websocket.Dial(ctx, "ws://"+p.addr+"/ws", websocket.Config{Header: http.Header{"Authorization": {"Bearer " + ann}}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Abort()
	for request, want := range map[string]string{
		`{"id":1,"type":"join","room":"dm/ann/bob"}`: `{"id":1,"type":"ok"}`, `{"id":1,"type":"join","room":"dm/bob/ann"}`: `"code":"forbidden"`,
	} {
		conn.Queue(websocket.OpText, []byte(request))
		conn.Flush()
		messages, err := conn.Read()
		if err != nil || len(messages) != 1 || !strings.Contains(string(messages[0].Payload), want) {
			t.Errorf("%s: %q, %v", request, messages, err)
		}
	}
}
