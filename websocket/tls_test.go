package websocket

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tidewire/tidewire/internal/testkit"
)

// overTLS is the variable that makes the tests of this package use TLS: direct for connections of NewTLSListener,
// standard for those of package tls.
const overTLS = "WEBSOCKET_TEST_TLS"

// TestOverTLS runs the tests of this package over TLS.
func TestOverTLS(t *testing.T) {
	if os.Getenv(overTLS) != "" {
		t.Skip("this is the run over TLS")
	}
	if testing.Short() {
		t.Skip("runs tests once more")
	}
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"direct", "standard"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			if kind == "standard" { // it holds a buffer, and cannot look whether more has arrived
				testkit.Long(t)
			}
			cmd := exec.CommandContext(t.Context(), self, "-test.timeout=10m", "-test.run", "^Test(Echo|Read|WriteBulk|Close|WriteShared|Turns|Grant|Abort|Evict|MessageTimeout|Compression)")
			cmd.Env = append(os.Environ(), overTLS+"="+kind)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// selfSigned returns the configurations of a server with a certificate for example.com and 127.0.0.1, and of its
// clients.
var selfSigned = sync.OnceValues(func() (server, client *tls.Config) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		DNSNames: []string{"example.com"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(certificate)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, &tls.Config{RootCAs: roots}
})

// startServer starts a server and returns its address and what clients trust: with TLS if overTLS or kind says so.
func startServer(t testing.TB, kind string, handler http.HandlerFunc) (wsURL string, config *tls.Config) {
	s := httptest.NewUnstartedServer(handler)
	t.Cleanup(s.Close)
	server, client := selfSigned()
	switch kind {
	case "direct":
		s.Listener = NewTLSListener(s.Listener, server)
		s.Start()
	case "standard":
		s.Listener = tls.NewListener(s.Listener, server)
		s.Start()
	default:
		s.Start()
		return "ws" + strings.TrimPrefix(s.URL, "http"), nil
	}
	return "wss" + strings.TrimPrefix(s.URL, "http"), client
}

// upgradeInto returns a handler that passes each upgraded connection to a channel.
func upgradeInto(cfg Config) (http.HandlerFunc, <-chan *Conn) {
	conns := make(chan *Conn, 16)
	return func(w http.ResponseWriter, r *http.Request) {
		if c, err := Upgrade(w, r, cfg); err == nil {
			conns <- c
		}
	}, conns
}

// tlsPair is pair over TLS.
func tlsPair(t testing.TB, kind string, serverCfg, clientCfg Config) (server, client *Conn) {
	t.Helper()
	serverCfg.CloseTimeout = cmp.Or(serverCfg.CloseTimeout, patience)
	clientCfg.CloseTimeout = cmp.Or(clientCfg.CloseTimeout, patience)
	handler, conns := upgradeInto(serverCfg)
	wsURL, config := startServer(t, kind, handler)
	clientCfg.TLS = config
	client, err := Dial(t.Context(), wsURL, clientCfg)
	if err != nil {
		t.Fatal(err)
	}
	server = <-conns
	t.Cleanup(client.Abort)
	t.Cleanup(server.Abort)
	return server, client
}

// socketOf is a client that writes its frames itself.
type socketOf struct {
	net.Conn
	tcp *net.TCPConn
}

// CloseWrite ends the sending side, also of the TCP connection.
func (s socketOf) CloseWrite() error {
	if over, ok := s.Conn.(*tls.Conn); ok {
		if err := over.CloseWrite(); err != nil {
			return err
		}
	}
	return s.tcp.CloseWrite()
}

// SetReadBuffer is that of the TCP connection.
func (s socketOf) SetReadBuffer(n int) error { return s.tcp.SetReadBuffer(n) }

// TestTLS_SmallMessagesOfOneRead: records that arrived together are one Read.
func TestTLS_SmallMessagesOfOneRead(t *testing.T) {
	t.Parallel()
	handler, conns := upgradeInto(Config{CloseTimeout: patience})
	wsURL, config := startServer(t, "direct", handler)
	client, err := Dial(t.Context(), wsURL, Config{TLS: config, CloseTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Abort()
	server := <-conns
	defer server.Abort()
	for range 100 {
		send(t, client, OpText, "one record each")
	}
	testkit.Eventually(t, "the server's kernel has all of them", func() bool { return client.Backlog() == 0 })
	if msgs, err := server.Read(); err != nil || len(msgs) != 100 {
		t.Errorf("%d messages, %v", len(msgs), err)
	}
}

// TestTLS_KernelUnsent: the kernel holds as few bytes that it cannot send as without TLS.
func TestTLS_KernelUnsent(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"", "direct", "standard"} {
		server, _ := tlsPair(t, kind, Config{KernelUnsent: 77 << 10}, Config{})
		got := 0
		rawConn(server.socket).Control(func(fd uintptr) { got, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT) })
		if got != 77<<10 {
			t.Errorf("%q: TCP_NOTSENT_LOWAT is %d", kind, got)
		}
	}
}

// TestTLS_Abort: Abort does not wait for a peer that reads nothing.
func TestTLS_Abort(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"direct", "standard"} {
		server, _ := tlsPair(t, kind, Config{MaxUnsent: 64 << 20, WriteTimeout: time.Hour}, Config{})
		if err := errors.Join(server.Queue(OpBinary, make([]byte, 32<<20)), server.Flush()); err != nil {
			t.Fatal(err)
		}
		before := 0
		testkit.Eventually(t, "the socket is full", func() bool {
			full := before == server.Unsent() && before > 0
			before = server.Unsent()
			return full
		})
		server.Abort() // the test would not end
	}
}
