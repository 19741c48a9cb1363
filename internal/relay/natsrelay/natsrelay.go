// Package natsrelay implements relay.Relay with core NATS: with a server inside this process, or with servers that an operator
// runs.
//
// The server inside the process has no files and no JetStream. Other nodes reach its cluster port, by TLS, with a certificate and a password. Its port
// for clients is on loopback, with a random password, and only this package uses it, over a pipe.
package natsrelay

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidewire/tidewire/internal/relay"
)

// Config configures a Relay.
type Config struct {
	// Node is the unique name of this node. It has no spaces.
	Node string
	// Cluster is the name of the cluster: letters, digits, - and _. Nodes of different clusters do not hear each other.
	Cluster string
	// Listen is the address for other nodes, as host:port. Port 0 is any free port.
	Listen string
	// Advertise is the address at which other nodes reach Listen, as host:port. Defaults to the address that they see.
	Advertise string
	// Secret is known to the nodes of the cluster alone. It is the password that they present to each other, and without Certificates the key of the authority
	// that certifies them follows from it. A stranger who connects gets such a certificate, with which guesses can be checked without limit: so the secret has
	// to be random, of 128 bits, or made expensive to guess.
	Secret string
	// Certificates are those of an authority that an operator runs. Defaults to one that follows from Secret.
	Certificates *Certificates
	// URL is the address of NATS servers that an operator runs, several separated by commas. The fields for the server inside
	// the process are not used then. Defaults to none.
	URL string
	// Creds is the path of a credentials file for URL. Defaults to none.
	Creds string
	// CAFile is the path of a PEM file with the authorities of the servers at URL, which then have to use TLS. It is read for each connection. Defaults to those
	// of the system, for addresses that begin with tls://, and for servers that want TLS.
	CAFile string
	// CertFile and KeyFile are the paths of PEM files with a certificate for the servers at URL and its key. They are read for each connection. Default to none.
	CertFile, KeyFile string
	// MaxMessage is the largest message, in bytes. Servers at URL may take less. Defaults to 1 MiB.
	MaxMessage int
	// Log receives what goes wrong. Defaults to slog.Default().
	Log *slog.Logger
}

// smallestLimit is the limit of a message that a relay has, in bytes: a batch of a room is up to 256 KiB, with its names.
const smallestLimit = 1 << 20

// writeTimeout is how long a NATS server may take nothing before the connection to it counts as broken.
const writeTimeout = 5 * time.Second

// queued is how many messages from other nodes wait to be handled. More are lost.
const queued = 16 << 10

// Relay sends and receives by one connection to a NATS server.
type Relay struct {
	cfg      Config
	server   *embedded // nil if the servers are an operator's
	conn     *nats.Conn
	most     int64 // largest message, in bytes
	arrived  chan *nats.Msg
	out      *outbox // nil with a server inside the process, which always takes what it is given
	quit     chan struct{}
	closing  sync.Once
	lost     atomic.Uint64
	reported atomic.Int64 // when a line was last written to the log, in ns since 1970
	done     sync.WaitGroup

	mu      sync.RWMutex
	receive map[*nats.Subscription]func([]byte)
}

var _ relay.Relay = (*Relay)(nil)

// Start begins to take part in the cluster. End it with Close.
func Start(cfg Config) (*Relay, error) {
	if cfg.URL != "" {
		return start(cfg, nil)
	}
	routes, err := routeTLS(cfg)
	if err != nil {
		return nil, err
	}
	return start(cfg, routes)
}

// start begins with a server inside the process, whose connections to other nodes are encrypted as routes says, or with servers at cfg.URL.
func start(cfg Config, routes *tls.Config) (*Relay, error) {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.MaxMessage == 0 {
		cfg.MaxMessage = 1 << 20
	}
	r := &Relay{cfg: cfg, arrived: make(chan *nats.Msg, queued), quit: make(chan struct{}), receive: make(map[*nats.Subscription]func([]byte))}
	options := []nats.Option{
		nats.Name(cfg.Node), nats.NoEcho(), nats.ErrorHandler(r.failed), nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond), nats.ReconnectJitter(0, 0), nats.FlusherTimeout(writeTimeout),
		nats.DisconnectErrHandler(r.disconnected),
	}
	if cfg.URL == "" {
		var err error
		if r.server, err = startEmbedded(cfg, routes); err != nil {
			return nil, err
		}
		options = append(options, r.server.connect()...)
	} else {
		options = append(options, foreign(cfg)...)
	}
	var err error
	if r.conn, err = nats.Connect(cfg.URL, options...); err != nil {
		r.server.stop()
		return nil, explain(cfg, err)
	}
	if err := r.checkLimit(); err != nil {
		r.conn.Close()
		r.server.stop()
		return nil, err
	}
	r.done.Go(r.dispatch)
	if r.server == nil {
		r.out = newOutbox(r.conn)
		r.done.Go(func() { r.out.run(r.quit) })
	}
	return r, nil
}

// foreign returns the options of a connection to servers that an operator runs.
func foreign(cfg Config) (options []nats.Option) {
	if cfg.Creds != "" {
		options = append(options, nats.UserCredentials(cfg.Creds))
	}
	if cfg.CAFile != "" {
		options = append(options, nats.RootCAs(cfg.CAFile))
	}
	if cfg.CertFile != "" {
		options = append(options, nats.ClientCert(cfg.CertFile, cfg.KeyFile))
	}
	return options
}

// explain says what to do about NATS servers that cannot be used.
func explain(cfg Config, err error) error {
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("connect to NATS: %w: name the file with the CA of the NATS servers with --nats-ca-file", err)
	case errors.Is(err, nats.ErrSecureConnWanted):
		return fmt.Errorf("connect to NATS: %w: the NATS servers have no TLS; give them certificates, or use nats:// without --nats-ca-file and --nats-cert-file", err)
	case cfg.CertFile == "" && refused(err):
		return fmt.Errorf("connect to NATS: %w: if the NATS servers want a certificate, name it with --nats-cert-file and --nats-key-file", err)
	case errors.Is(err, nats.ErrNoServers):
		return fmt.Errorf("connect to NATS: no server answers at the addresses of --nats: are they right (nats://HOST:4222), and does a server run there? (%w)", err)
	case errors.Is(err, os.ErrNotExist) && cfg.Creds != "":
		return fmt.Errorf("connect to NATS: %w: name a file that this server can read with --nats-creds", err)
	}
	return fmt.Errorf("connect to NATS: %w", err)
}

// refused reports whether a NATS server has ended a TLS handshake. The alert that says why may be lost: the server closes the connection after it.
func refused(err error) bool {
	var failed *net.OpError // "remote error" is package tls's name of an alert
	return errors.Is(err, nats.ErrTLS) || errors.As(err, &failed) && failed.Op == "remote error"
}

// checkLimit looks at what the NATS servers take.
func (r *Relay) checkLimit() error {
	r.most = r.conn.MaxPayload() // asked once: the client library would wait for a server that hangs
	if r.most < smallestLimit/2 {
		return fmt.Errorf("the NATS servers take messages of at most %d bytes: raise max_payload to %d or more", r.most, max(smallestLimit, r.cfg.MaxMessage))
	}
	if r.most < int64(r.cfg.MaxMessage) {
		r.cfg.Log.Warn("the largest chats do not reach other nodes: raise max_payload of the NATS servers, or lower --max-message", "max_payload", r.most, "needed", r.cfg.MaxMessage)
	}
	return nil
}

// Close leaves the cluster. No function of Listen is called after it. A second call does nothing.
func (r *Relay) Close() {
	r.closing.Do(func() {
		if r.out != nil {
			r.out.drain()
		}
		r.conn.Close()
		r.server.stop()
		close(r.quit) // arrived stays open: the client library may still write to it
		r.done.Wait()
	})
}

// Publish implements relay.Relay.
func (r *Relay) Publish(topic string, message []byte) error {
	if int64(len(message)) > r.most {
		return relay.ErrTooLarge
	}
	if r.out != nil {
		return r.out.publish(r.subject(topic), message)
	}
	return r.conn.Publish(r.subject(topic), message)
}

// Listen implements relay.Relay.
func (r *Relay) Listen(topic string, receive func([]byte)) (stop func(), err error) {
	if r.out != nil {
		return r.out.listen(func() (stop func(), err error) { return r.listen(topic, receive) })
	}
	return r.listen(topic, receive)
}

func (r *Relay) listen(topic string, receive func([]byte)) (stop func(), err error) {
	r.mu.Lock() // until the function is known, dispatch waits
	defer r.mu.Unlock()
	s, err := r.conn.ChanSubscribe(r.subject(topic), r.arrived)
	if err != nil {
		return nil, fmt.Errorf("listen to %s: %w", topic, err)
	}
	r.receive[s] = receive
	return func() {
		s.Unsubscribe() // fails only if the connection is closed
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.receive, s)
	}, nil
}

func (r *Relay) subject(topic string) string { return "tw." + r.cfg.Cluster + "." + topic }

// Lost returns how many messages of other nodes were lost because this node was too slow.
func (r *Relay) Lost() uint64 { return r.lost.Load() }

// dispatch calls the functions of Listen.
func (r *Relay) dispatch() {
	for {
		select {
		case m := <-r.arrived:
			r.mu.RLock()
			receive := r.receive[m.Sub]
			r.mu.RUnlock()
			if receive != nil {
				receive(m.Data)
			}
		case <-r.quit:
			return
		}
	}
}

// failed is called for errors of subscriptions.
func (r *Relay) failed(_ *nats.Conn, s *nats.Subscription, err error) {
	if errors.Is(err, nats.ErrSlowConsumer) {
		r.lost.Add(1)
	}
	r.report("NATS reports an error", err)
}

// disconnected is called when the connection to the NATS server has ended. A server inside the process ends it when its list of peers changes.
func (r *Relay) disconnected(_ *nats.Conn, err error) {
	if r.server == nil {
		r.report("the connection to NATS was lost", err)
	}
}

// report writes a line to the log, and drops those that come too soon after one.
func (r *Relay) report(what string, err error) {
	now := time.Now().UnixNano()
	last := r.reported.Load()
	if err != nil && now-last > int64(warnEvery) && r.reported.CompareAndSwap(last, now) {
		r.cfg.Log.Warn(what, "node", r.cfg.Node, "error", err)
	}
}
