package websocket

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
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
		t.Skip("runs all tests two more times")
	}
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"direct", "standard"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), self, "-test.timeout=10m")
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
