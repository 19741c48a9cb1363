package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tidewire/tidewire/internal/testkit"
)

// pebble is the ACME server of Let's Encrypt for tests.
const pebbleModule = "github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.1"

// pebble is a running ACME server.
type pebble struct {
	dir     string // https://…/dir
	roots   string // https://…/roots/0: its own root, with which it signs certificates
	tls     *SelfSigned
	said    *testkit.Log
	tlsPort int
}

// freePort returns a port that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// buildPebble returns the program. Without it the test is skipped; in CI it fails.
func buildPebble(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds pebble")
	}
	bin := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "install", pebbleModule)
	cmd.Dir = bin // outside of this module
	cmd.Env = append(os.Environ(), "GOBIN="+bin, "GOFLAGS=-mod=mod")
	if out, err := cmd.CombinedOutput(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("pebble cannot be built: %v\n%s", err, out)
		}
		t.Skipf("pebble cannot be built: %v\n%s", err, out)
	}
	return filepath.Join(bin, "pebble")
}

// startPebble starts an ACME server that connects to tlsPort for its challenges. It resolves every name to 127.0.0.1,
// by a DNS server of the test.
func startPebble(t *testing.T, tlsPort int) *pebble {
	t.Helper()
	if os.Getenv("TIDEWIRE_SEEDS") == "" {
		t.Skip("builds an ACME server, which takes minutes on an empty cache: make test-long sets TIDEWIRE_SEEDS")
	}
	program := buildPebble(t)
	certificate, err := MakeSelfSigned(t.TempDir(), month, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	management := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	config, err := json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress": address, "managementListenAddress": management, "certificate": certificate.CertFile, "privateKey": certificate.KeyFile,
		"httpPort": 1, "tlsPort": tlsPort, "ocspResponderURL": "", "externalAccountBindingRequired": false,
		"profiles": map[string]any{"default": map[string]any{"description": "default", "validityPeriod": 7776000}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "pebble.json")
	write(t, path, config)
	p := &pebble{dir: "https://" + address + "/dir", roots: "https://" + management + "/roots/0", tls: certificate, said: &testkit.Log{}, tlsPort: tlsPort}
	cmd := exec.Command(program, "-config", path, "-dnsserver", dnsServer(t))
	cmd.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=0")
	cmd.Stdout, cmd.Stderr = p.said, p.said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("pebble said:\n%s", p.said)
		}
	})
	p.get(t, p.dir)
	return p
}

// get asks pebble until it answers.
func (p *pebble) get(t *testing.T, address string) []byte {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: p.tls.Roots}, DisableKeepAlives: true}}
	var body []byte
	testkit.Eventually(t, "pebble answers", func() bool {
		answer, err := client.Get(address)
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		body, err = io.ReadAll(answer.Body)
		return err == nil
	})
	return body
}

// trusted is what clients of the certified servers trust.
func (p *pebble) trusted(t *testing.T) *x509.CertPool {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(p.get(t, p.roots)) {
		t.Fatal("pebble has no root certificate")
	}
	return roots
}

// serveACME serves TLS on a port with certificates from pebble, until stop is called.
func serveACME(t *testing.T, p *pebble, dir string) (stop func()) {
	t.Helper()
	a, err := NewACME(ACMEConfig{Hosts: []string{"rt.example.com"}, Dir: dir, URL: p.dir, CAFile: p.tls.CertFile, Log: slog.New(slog.NewTextHandler(p.said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p.tlsPort), &tls.Config{GetCertificate: a.Certificate, NextProtos: []string{"http/1.1", Protocol}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { a.Run(ctx) })
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				conn.(*tls.Conn).HandshakeContext(ctx)
				conn.Close()
			})
		}
	})
	return sync.OnceFunc(func() {
		l.Close()
		cancel()
		running.Wait()
	})
}

func dialFor(p *pebble, roots *x509.CertPool, host string) (*x509.Certificate, error) {
	conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p.tlsPort), &tls.Config{RootCAs: roots, ServerName: host})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0], nil
}

// TestACME: a listed host gets a certificate, which a restart keeps; another host is refused, and nobody is asked.
func TestACME(t *testing.T) {
	t.Parallel()
	p := startPebble(t, freePort(t))
	dir := filepath.Join(t.TempDir(), "certificates")
	stop := serveACME(t, p, dir)
	defer stop()
	roots := p.trusted(t)
	first, err := dialFor(p, roots, "rt.example.com")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory has %v, %v", info.Mode(), err)
	}

	before := strings.Count(p.said.String(), "POST /")
	if _, err := dialFor(p, roots, "other.example.com"); err == nil || !strings.Contains(err.Error(), "remote error: tls") {
		t.Errorf("a host that is not listed: %v, want an alert", err)
	}
	if after := strings.Count(p.said.String(), "POST /"); after != before {
		t.Errorf("%d requests to the ACME server for a host that is not listed", after-before)
	}

	stop()
	defer serveACME(t, p, dir)()
	again, err := dialFor(p, roots, "rt.example.com")
	if err != nil {
		t.Fatal(err)
	}
	if !again.Equal(first) {
		t.Error("the restart asked for another certificate")
	}
	if n := strings.Count(p.said.String(), "POST /"); n != before {
		t.Errorf("%d requests after the restart", n-before)
	}
}

// TestNewACME_Errors: the error says what to do.
func TestNewACME_Errors(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, []byte("text"))
	for says, cfg := range map[string]ACMEConfig{
		"name a directory that this server can write": {Dir: filepath.Join(file, "certificates")},
		"name a PEM file that this server can read":   {Dir: t.TempDir(), CAFile: filepath.Join(file, "none")},
		"has no certificate":                          {Dir: t.TempDir(), CAFile: file},
	} {
		cfg.Log = slog.New(slog.DiscardHandler)
		if _, err := NewACME(cfg); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}
