package cli_test

import (
	"crypto/tls"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/certs"
	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/websocket"
)

func madeCert(t *testing.T, life time.Duration) *certs.SelfSigned {
	t.Helper()
	made, err := certs.MakeSelfSigned(t.TempDir(), life, "localhost", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// TestServe_TLS: a server with a certificate that ends soon says so; it takes a new one while it runs.
func TestServe_TLS(t *testing.T) {
	notShort(t)
	t.Parallel()
	first, second := madeCert(t, 24*time.Hour), madeCert(t, 30*24*time.Hour)
	if err := os.Chmod(first.KeyFile, 0o640); err != nil {
		t.Fatal(err)
	}
	p := serve(t, "--only", "echo", "--tls-cert-file", first.CertFile, "--tls-key-file", first.KeyFile)
	if !strings.Contains(p.Log(), "listening on https://localhost:") {
		t.Errorf("log %s", p.Log())
	}
	p.Await(t, "the certificate ends soon")
	p.Await(t, "chmod 600 "+first.KeyFile)
	old := dialTLS(t, p, first)
	for from, to := range map[string]string{second.CertFile: first.CertFile, second.KeyFile: first.KeyFile} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.Await(t, "new handshakes get the new certificate")
	for _, conn := range []*websocket.Conn{old, dialTLS(t, p, second)} {
		if err := conn.Queue(websocket.OpText, []byte("hello")); err != nil {
			t.Fatal(err)
		}
		if got, err := conn.Read(); err != nil || len(got) != 1 || string(got[0].Payload) != "hello" {
			t.Errorf("%q, %v", got, err)
		}
	}
	if code := p.Stop(t); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
}

func dialTLS(t *testing.T, p *program, trusted *certs.SelfSigned) *websocket.Conn {
	t.Helper()
	conn, err := websocket.Dial(t.Context(), "wss://"+p.Addr+"/ws", websocket.Config{TLS: &tls.Config{RootCAs: trusted.Roots}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Abort)
	return conn
}
