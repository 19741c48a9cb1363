package cli_test

import (
	"crypto/tls"
	"os"
	"path/filepath"
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

// TestServe_TLSSettings: settings that contradict each other, and files that cannot be used, end the start.
func TestServe_TLSSettings(t *testing.T) {
	t.Parallel()
	a, b := madeCert(t, time.Hour), madeCert(t, time.Hour)
	none := filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		says string
		args []string
	}{
		{"give both", []string{"--tls-cert-file", a.CertFile}},
		{"give both", []string{"--tls-key-file", a.KeyFile}},
		{"name a PEM file that this server can read", []string{"--tls-cert-file", none, "--tls-key-file", a.KeyFile}},
		{"give the certificate of this key", []string{"--tls-cert-file", a.CertFile, "--tls-key-file", b.KeyFile}},
		{"has no certificate", []string{"--tls-cert-file", a.KeyFile, "--tls-key-file", a.CertFile}},
		{"leave it out", []string{"--tls-cert-file", a.CertFile, "--tls-key-file", a.KeyFile, "--tls-host", "rt.example.com"}},
		{"give --tls-host", []string{"--acme-email", "ops@example.com"}},
		{"without a scheme and a port", []string{"--tls-host", "rt.example.com:443"}},
		{"without a scheme and a port", []string{"--tls-host", "https://rt.example.com"}},
		{"without a scheme and a port", []string{"--tls-host", "localhost"}},
		{"name each host", []string{"--tls-host", "*.example.com"}},
		{"no certificates for addresses", []string{"--tls-host", "192.0.2.1"}},
		{"no certificates for addresses", []string{"--tls-host", "2001:db8::1"}},
		{"want https://", []string{"--tls-host", "rt.example.com", "--acme-url", "http://ca.example.com/dir"}},
		{"name a directory that this server can write", []string{"--tls-host", "rt.example.com", "--tls-cache", filepath.Join(a.CertFile, "certificates")}},
		{"name a PEM file that this server can read", []string{"--tls-host", "rt.example.com", "--tls-cache", t.TempDir(), "--acme-ca-file", none}},
	} {
		code, _, errOut := run(t, nil, append([]string{"serve", "--only", "chat", "--port", "0"}, c.args...)...)
		if code != cli.ExitUsage || !strings.Contains(errOut, c.says) {
			t.Errorf("%v: %d %s, want %q", c.args, code, errOut, c.says)
		}
	}
}

// TestServe_TLS: a server with a certificate that ends soon says so; it takes a new one while it runs.
func TestServe_TLS(t *testing.T) {
	t.Parallel()
	first, second := madeCert(t, 24*time.Hour), madeCert(t, 30*24*time.Hour)
	if err := os.Chmod(first.KeyFile, 0o640); err != nil {
		t.Fatal(err)
	}
	p := serve(t, "--only", "echo", "--tls-cert-file", first.CertFile, "--tls-key-file", first.KeyFile)
	if !strings.Contains(p.log(), "listening on https://localhost:") {
		t.Errorf("log %s", p.log())
	}
	p.await(t, "the certificate ends soon")
	p.await(t, "chmod 600 "+first.KeyFile)
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
	p.await(t, "new handshakes get the new certificate")
	for _, conn := range []*websocket.Conn{old, dialTLS(t, p, second)} {
		if err := conn.Queue(websocket.OpText, []byte("hello")); err != nil {
			t.Fatal(err)
		}
		if got, err := conn.Read(); err != nil || len(got) != 1 || string(got[0].Payload) != "hello" {
			t.Errorf("%q, %v", got, err)
		}
	}
	if code := p.stop(t); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
}

func dialTLS(t *testing.T, p *program, trusted *certs.SelfSigned) *websocket.Conn {
	t.Helper()
	conn, err := websocket.Dial(t.Context(), "wss://"+p.addr+"/ws", websocket.Config{TLS: &tls.Config{RootCAs: trusted.Roots}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Abort)
	return conn
}

// TestBench_TLS: benchmarks measure a server with TLS.
func TestBench_TLS(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"chat", "load", "--clients", "4", "--hold", "1", "--rate", "20"},
		{"lanes", "--total-request", "20", "--variants", "plain,lanes,lanes+credit"},
		{"echo", "--clients", "2", "--messages", "2000", "--repeat", "1"},
		{"idle", "--connections", "20", "--settle", "1ms"},
	} {
		out := filepath.Join(t.TempDir(), "result.json")
		code, _, errOut := run(t, nil, append(append([]string{"bench"}, args...), "--tls", "--quiet", "--out", out)...)
		text, err := os.ReadFile(out)
		if code != cli.ExitOK && code != cli.ExitInvalid || err != nil || !strings.Contains(string(text), `"tls": true`) {
			t.Errorf("%v: %d %s %v", args, code, errOut, err)
		}
	}
	code, _, errOut := run(t, nil, "bench", "chat", "load", "--target", "go-gorilla", "--tls")
	if code != cli.ExitUsage || !strings.Contains(errOut, "wss://") {
		t.Errorf("%d %s", code, errOut)
	}
}
