package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/certs"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/websocket"
)

// running serves the echo endpoint. With secure it serves TLS, and roots is what clients trust. A TLS handshake and a
// header may take timeout.
func running(t *testing.T, secure bool, timeout time.Duration) (addr string, roots *x509.CertPool, said *testkit.Log) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = l.Addr().String()
	if secure {
		made, err := certs.MakeSelfSigned(t.TempDir(), 30*24*time.Hour, "127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.LoadX509KeyPair(made.CertFile, made.KeyFile)
		if err != nil {
			t.Fatal(err)
		}
		roots = made.Roots
		l = websocket.NewTLSListener(l, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}})
	}
	said = &testkit.Log{}
	ctx, cancel := context.WithCancel(t.Context())
	listening, ended := make(chan struct{}), make(chan error, 1)
	cfg := Config{
		Gateway: gateway.Config{
			Only: gateway.Echo, Metrics: prometheus.NewRegistry(), Budget: budget.New(64 << 20), Log: slog.New(slog.NewTextHandler(said, nil)),
		},
		Listeners: []net.Listener{l}, IdleTimeout: time.Minute, HeaderTimeout: timeout, Listening: func() { close(listening) },
	}
	go func() { ended <- Run(ctx, NewStop(ctx, 30*time.Second, 0), cfg) }()
	<-listening
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return addr, roots, said
}

// TestTLS_SlowHandshakeEnds: a ClientHello that trickles, or never comes, is ended.
func TestTLS_SlowHandshakeEnds(t *testing.T) {
	t.Parallel()
	addr, _, _ := running(t, true, 200*time.Millisecond)
	for name, begin := range map[string]string{"nothing": "", "the beginning of a ClientHello": "\x16\x03\x01\x02\x00\x01"} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var trickling sync.WaitGroup
		ended := make(chan struct{})
		if begin != "" {
			trickling.Go(func() {
				for _, b := range []byte(begin + strings.Repeat("x", 1<<20)) {
					select {
					case <-ended:
						return
					case <-time.After(10 * time.Millisecond):
						if _, err := conn.Write([]byte{b}); err != nil {
							return
						}
					}
				}
			})
		}
		conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the connection is still open after a minute", name)
		}
		close(ended)
		trickling.Wait()
	}
}

// TestTLS_PlainHTTP: a client that speaks HTTP to the TLS port is told what to do, also if its request is long.
func TestTLS_PlainHTTP(t *testing.T) {
	t.Parallel()
	addr, roots, said := running(t, true, 0)
	for _, long := range []int{0, 8 << 10} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/v1/streams", strings.NewReader(strings.Repeat("x", long)))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), "https://") {
			t.Errorf("%d %q %v", answer.StatusCode, text, err)
		}
	}
	if n := strings.Count(said.String(), "\n"); n > 1 {
		t.Errorf("%d lines in the log: %s", n, said)
	}
	if c, err := websocket.Dial(t.Context(), "wss://"+addr+"/ws", websocket.Config{TLS: &tls.Config{RootCAs: roots}}); err != nil {
		t.Error(err)
	} else {
		c.Abort()
	}
}

// TestTLS_ToThePlainPort: a ClientHello to a plain port is answered and not logged.
func TestTLS_ToThePlainPort(t *testing.T) {
	t.Parallel()
	addr, _, said := running(t, false, 0)
	if conn, err := tls.Dial("tcp", addr, &tls.Config{}); err == nil {
		conn.Close()
		t.Error("TLS on a plain port")
	}
	if said.String() != "" {
		t.Errorf("log %s", said)
	}
}

// TestTLS_Versions: TLS 1.2 and 1.3 are spoken, with HTTP/1.1 alone.
func TestTLS_Versions(t *testing.T) {
	t.Parallel()
	addr, roots, _ := running(t, true, 0)
	for version, want := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		config := &tls.Config{RootCAs: roots, MinVersion: version, MaxVersion: version, NextProtos: []string{"h2", "http/1.1"}}
		conn, err := tls.Dial("tcp", addr, config)
		if (err == nil) != want {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
		if err != nil {
			continue
		}
		if p := conn.ConnectionState().NegotiatedProtocol; p != "http/1.1" {
			t.Errorf("%s: protocol %q", tls.VersionName(version), p)
		}
		conn.Close()
	}
}

// TestTLS_Origins: a page of the same host has to be https, whatever X-Forwarded-Proto says.
func TestTLS_Origins(t *testing.T) {
	t.Parallel()
	addr, roots, _ := running(t, true, 0)
	for _, c := range []struct {
		origin, forwarded string
		want              bool
	}{
		{"https://" + addr, "", true}, {"http://" + addr, "", false}, {"http://" + addr, "http", false}, {"https://" + addr, "http", true},
		{"https://127.0.0.1", "", false}, {"https://evil.example", "https", false},
	} {
		header := http.Header{"Origin": {c.origin}}
		if c.forwarded != "" {
			header.Set("X-Forwarded-Proto", c.forwarded)
		}
		conn, err := websocket.Dial(t.Context(), "wss://"+addr+"/ws", websocket.Config{TLS: &tls.Config{RootCAs: roots}, Header: header})
		if err == nil {
			conn.Abort()
		}
		if refused, ok := errors.AsType[*websocket.HandshakeError](err); (err == nil) != c.want || err != nil && (!ok || refused.Status != http.StatusForbidden) {
			t.Errorf("%s, X-Forwarded-Proto %q: %v", c.origin, c.forwarded, err)
		}
	}
}

// TestHTTPLog: failed handshakes are one line a minute, and anything else a line each.
func TestHTTPLog(t *testing.T) {
	t.Parallel()
	said := &testkit.Log{}
	l := &httpLog{log: slog.New(slog.NewTextHandler(said, nil))}
	for range 3 {
		io.WriteString(l, "http: TLS handshake error from 192.0.2.1:99: EOF\n")
	}
	l.next = time.Time{}
	io.WriteString(l, "http: TLS handshake error from 192.0.2.2:99: EOF\n")
	io.WriteString(l, "http: Accept error: too many open files; retrying in 5ms\n")
	want := []string{`level=INFO msg="TLS handshakes failed" number=1 last="from 192.0.2.1:99: EOF"`,
		`level=INFO msg="TLS handshakes failed" number=3 last="from 192.0.2.2:99: EOF"`, `level=WARN msg="HTTP server" error="Accept error: too many open files; retrying in 5ms"`}
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	if len(lines) != len(want) {
		t.Fatalf("log %s", said)
	}
	for i := range want {
		if !strings.HasSuffix(lines[i], want[i]) {
			t.Errorf("line %q, want %q", lines[i], want[i])
		}
	}
}
