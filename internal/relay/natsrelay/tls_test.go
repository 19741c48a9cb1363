package natsrelay_test

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tidewire/tidewire/internal/certs"
	"github.com/tidewire/tidewire/internal/relay/natsrelay"
	"github.com/tidewire/tidewire/internal/relay/natstest"
	"github.com/tidewire/tidewire/internal/testkit"
)

// record is a log, or what has passed a proxy. It is safe for concurrent use.
type record struct {
	testkit.Log
	connections atomic.Int32 // of a proxy
}

// begin starts a node that writes its log to a record.
func begin(t *testing.T, cfg natsrelay.Config) (*natsrelay.Relay, *record) {
	t.Helper()
	log := new(record)
	cfg.Cluster, cfg.Listen, cfg.Log = cmp.Or(cfg.Cluster, "c"), "127.0.0.1:0", slog.New(slog.NewTextHandler(log, nil))
	r, err := natsrelay.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r, log
}

// refusal waits until the log says that a connection was refused, and what to do.
func refusal(t *testing.T, log *record, do string) {
	t.Helper()
	testkit.Eventually(t, "the refusal is in the log", func() bool { return strings.Contains(log.String(), "was refused") })
	if text := log.String(); !strings.Contains(text, "do=") || !strings.Contains(text, do) {
		t.Errorf("not %q in the log:\n%s", do, text)
	}
}

// issued are certificates that are their own authorities, for some hosts.
func issued(t *testing.T, hosts ...string) (pair tls.Certificate, files *certs.SelfSigned) {
	t.Helper()
	files, err := certs.MakeSelfSigned(t.TempDir(), time.Hour, hosts...)
	if err != nil {
		t.Fatal(err)
	}
	if pair, err = tls.LoadX509KeyPair(files.CertFile, files.KeyFile); err != nil {
		t.Fatal(err)
	}
	return pair, files
}

// own are the certificates of an operator's authorities.
func own(pair *tls.Certificate, authorities ...*x509.Certificate) *natsrelay.Certificates {
	cas := x509.NewCertPool()
	for _, c := range authorities {
		cas.AddCert(c)
	}
	return &natsrelay.Certificates{Own: func() *tls.Certificate { return pair }, CAs: cas}
}

// tap returns the address of a proxy, and what passes it in both directions.
func tap(t *testing.T, to string) (address string, passed *record) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	passed = new(record)
	var running sync.WaitGroup
	done := make(chan struct{})
	t.Cleanup(func() {
		close(done)
		l.Close()
		running.Wait()
	})
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			target, err := net.Dial("tcp", to)
			if err != nil {
				client.Close()
				continue
			}
			passed.connections.Add(1)
			pass := func(to, from net.Conn) {
				io.Copy(io.MultiWriter(to, passed), from)
				to.Close()
				from.Close()
			}
			running.Go(func() {
				<-done
				client.Close()
				target.Close()
			})
			running.Go(func() { pass(client, target) })
			running.Go(func() { pass(target, client) })
		}
	})
	return l.Addr().String(), passed
}

// TestTLS_NoPlainText: of what two nodes say to each other, a proxy sees no chat, no password and no name. It does if there is no TLS.
func TestTLS_NoPlainText(t *testing.T) {
	t.Parallel()
	const chat, secret = "the tide comes at noon", "a password of the cluster"
	a, b := start(t, "c", secret, 0), start(t, "c", secret, 1)
	address, passed := tap(t, b.Addr())
	if err := a.SetPeers([]string{address}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the nodes are connected", func() bool { return a.Peers() == 1 && b.Peers() == 1 })
	deliver(t, a, b, chat)
	text := passed.String()
	for _, plain := range []string{chat, secret, "INFO", "CONNECT", "tw.c."} {
		if strings.Contains(text, plain) {
			t.Errorf("%q passes without encryption", plain)
		}
	}
	if !strings.HasPrefix(text, "\x16\x03") {
		t.Errorf("the first bytes are %x, and no TLS handshake", text[:min(8, len(text))])
	}

	plain := natstest.Start(t, &server.Options{})
	address, passed = tap(t, plain.Addr().String())
	c, _ := begin(t, natsrelay.Config{Node: "c", URL: "nats://" + address})
	d, _ := begin(t, natsrelay.Config{Node: "d", URL: "nats://" + address})
	deliver(t, c, d, chat)
	if !strings.Contains(passed.String(), chat) {
		t.Error("the proxy does not see a chat without encryption: the test shows nothing")
	}
}

// deliver sends a message from each of two nodes to the other.
func deliver(t *testing.T, a, b *natsrelay.Relay, text string) {
	t.Helper()
	atA, atB := listen(t, a, "at.a", b), listen(t, b, "at.b", a)
	a.Publish("at.b", []byte(text))
	b.Publish("at.a", []byte(text))
	for _, got := range []<-chan string{atA, atB} {
		if got := <-got; got != text {
			t.Errorf("got %q, want %q", got, text)
		}
	}
}

// TestTLS_StrangeNodes: nodes with another secret, without TLS, or with certificates of another authority are not connected, whoever begins, and both write why.
func TestTLS_StrangeNodes(t *testing.T) {
	t.Parallel()
	first, _ := issued(t, "127.0.0.1")
	second, _ := issued(t, "127.0.0.1")
	misnamed, _ := issued(t, "127.0.0.2", "other.example")
	derived := natsrelay.Config{Node: "a", Secret: "s"}
	operators := natsrelay.Config{Node: "a", Secret: "s", Certificates: own(&first, first.Leaf, misnamed.Leaf)}
	for name, c := range map[string]struct {
		node, stranger natsrelay.Config
		do             string
	}{
		"another secret":                  {derived, natsrelay.Config{Node: "b", Secret: "other"}, "same --cluster"},
		"another cluster":                 {derived, natsrelay.Config{Node: "b", Cluster: "d", Secret: "s"}, "same --cluster"},
		"another authority":               {operators, natsrelay.Config{Node: "b", Secret: "s", Certificates: own(&second, first.Leaf, second.Leaf)}, "same CA"},
		"an operator's and a derived one": {operators, natsrelay.Config{Node: "b", Secret: "s"}, "same CA"},
	} {
		for _, begins := range []string{"node", "stranger"} {
			t.Run(name+", the "+begins+" begins", func(t *testing.T) {
				t.Parallel()
				node, log := begin(t, c.node)
				stranger, strangersLog := begin(t, c.stranger)
				var err error
				if begins == "node" {
					err = node.SetPeers([]string{stranger.Addr()})
				} else {
					err = stranger.SetPeers([]string{node.Addr()})
				}
				if err != nil {
					t.Fatal(err)
				}
				refusal(t, log, c.do)
				if name != "another authority" { // there the stranger accepts the node
					refusal(t, strangersLog, "Give all servers")
				}
				if node.Peers() != 0 {
					t.Error("the stranger is connected")
				}
			})
		}
	}
}

// TestTLS_AnyName: certificates of the operator's authority count with each name, however nodes are addressed.
func TestTLS_AnyName(t *testing.T) {
	t.Parallel()
	first, _ := issued(t, "127.0.0.1")
	misnamed, _ := issued(t, "127.0.0.2", "other.example")
	a, _ := begin(t, natsrelay.Config{Node: "a", Secret: "s", Certificates: own(&first, first.Leaf, misnamed.Leaf)})
	b, _ := begin(t, natsrelay.Config{Node: "b", Secret: "s", Certificates: own(&misnamed, first.Leaf, misnamed.Leaf)})
	c, _ := begin(t, natsrelay.Config{Node: "c", Secret: "s", Certificates: own(&first, first.Leaf, misnamed.Leaf)})
	_, port, _ := net.SplitHostPort(a.Addr())
	for node, peers := range map[*natsrelay.Relay][]string{b: {"localhost:" + port}, c: {b.Addr(), "localhost:" + port}} {
		if err := node.SetPeers(peers); err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range []*natsrelay.Relay{a, b, c} {
		testkit.Eventually(t, "all nodes are connected", func() bool { return node.Peers() == 2 })
	}
}

// TestTLS_PlainNode: a NATS server that knows the password and has no TLS is not connected, whoever begins.
func TestTLS_PlainNode(t *testing.T) {
	t.Parallel()
	for _, begins := range []string{"node", "stranger"} {
		t.Run(begins, func(t *testing.T) {
			t.Parallel()
			node, log := begin(t, natsrelay.Config{Node: "a", Secret: "s"})
			options := &server.Options{ServerName: "b", Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: server.RANDOM_PORT, Username: "tidewire", Password: "s", PoolSize: -1}}
			if begins == "stranger" {
				options.Routes = []*url.URL{{Scheme: "nats", Host: node.Addr(), User: url.UserPassword("tidewire", "s")}}
			}
			stranger := natstest.Start(t, options)
			if begins == "node" {
				if err := node.SetPeers([]string{stranger.ClusterAddr().String()}); err != nil {
					t.Fatal(err)
				}
			}
			refusal(t, log, "same --cluster")
			if node.Peers() != 0 || stranger.NumRoutes() != 0 {
				t.Error("the stranger is connected")
			}
		})
	}
}

// TestTLS_Strangers: programs that connect to the port without the right certificate are told nothing.
func TestTLS_Strangers(t *testing.T) {
	t.Parallel()
	other, _ := issued(t, "127.0.0.1")
	tlsDial := func(cfg *tls.Config) func(string) (net.Conn, error) {
		return func(address string) (net.Conn, error) {
			cfg.InsecureSkipVerify = true
			return tls.Dial("tcp", address, cfg)
		}
	}
	for name, dial := range map[string]func(address string) (net.Conn, error){
		"plain TCP":             func(address string) (net.Conn, error) { return net.Dial("tcp", address) },
		"no certificate":        tlsDial(&tls.Config{}),
		"a foreign certificate": tlsDial(&tls.Config{Certificates: []tls.Certificate{other}}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node, log := begin(t, natsrelay.Config{Node: "a", Secret: "s"})
			conn, err := dial(node.Addr())
			if err == nil {
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(20 * time.Second))
				fmt.Fprintf(conn, "CONNECT {\"user\":\"tidewire\",\"pass\":\"s\",\"name\":\"b\",\"cluster\":\"c\"}\r\nPING\r\n")
				said, err := io.ReadAll(conn)
				if os.IsTimeout(err) || bytes.Contains(said, []byte("INFO")) || bytes.Contains(said, []byte("PONG")) {
					t.Errorf("the node says %q, and %v", said, err)
				}
			}
			refusal(t, log, "same --cluster")
			if node.Peers() != 0 {
				t.Error("the stranger is connected")
			}
		})
	}
}

// TestTLS_OwnCertificates: three nodes with certificates of an operator's authorities are connected. A new certificate is used for new connections, and
// those that there are stay.
func TestTLS_OwnCertificates(t *testing.T) {
	t.Parallel()
	first, _ := issued(t, "127.0.0.1")
	second, _ := issued(t, "127.0.0.1")
	var current atomic.Pointer[tls.Certificate]
	current.Store(&first)
	certificates := own(nil, first.Leaf, second.Leaf)
	certificates.Own = current.Load
	a, _ := begin(t, natsrelay.Config{Node: "a", Secret: "s", Certificates: certificates})
	b, _ := begin(t, natsrelay.Config{Node: "b", Secret: "s", Certificates: own(&first, first.Leaf, second.Leaf)})
	join(t, a, b)
	deliver(t, a, b, "with the first")
	current.Store(&second)
	if shown := shows(t, a.Addr(), first); !shown.Equal(second.Leaf) {
		t.Error("a new connection does not get the new certificate")
	}
	old := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{first}, MaxVersion: tls.VersionTLS12}
	if conn, err := tls.Dial("tcp", a.Addr(), old); err == nil {
		conn.Close()
		t.Error("TLS 1.2 is accepted")
	}
	c, _ := begin(t, natsrelay.Config{Node: "c", Secret: "s", Certificates: own(&first, second.Leaf)}) // trusts the new one alone
	if err := c.SetPeers([]string{a.Addr()}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the third node is connected", func() bool { return c.Peers() >= 1 && a.Peers() == 2 })
	deliver(t, a, b, "after the change")
	deliver(t, a, c, "with the second")
}

// shows returns the certificate that a node shows to one with the certificate pair.
func shows(t *testing.T, address string, pair tls.Certificate) *x509.Certificate {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0]
}
