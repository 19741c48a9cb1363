package natsrelay

import (
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

const (
	// routeUser is the user name with which nodes log in at each other.
	routeUser = "tidewire"
	// pingEvery is how often a node pings another that it hears nothing from; two pings without an answer mean that the
	// connection is dead. So a cut is noticed within 3 s, and after it a new connection replaces one whose packets wait for
	// TCP's next try.
	pingEvery = time.Second
	// handshakeWithin bounds a TLS handshake, which the processor of a busy machine delays.
	handshakeWithin = 5 * time.Second
	// readyWithin bounds the start of the server.
	readyWithin = 10 * time.Second
)

// embedded is a NATS server inside this process.
type embedded struct {
	server   *server.Server
	password string // of the port for clients

	mu      sync.Mutex
	options *server.Options
}

// ErrListen means that the server inside the process cannot listen on its address.
var ErrListen = errors.New("listen for other nodes")

// startEmbedded starts a server whose connections to other nodes are encrypted as routes says. nil, which only a benchmark gives, is not encrypted.
func startEmbedded(cfg Config, routes *tls.Config) (*embedded, error) {
	host, portText, err := net.SplitHostPort(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("cluster address %q: %w", cfg.Listen, err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return nil, fmt.Errorf("cluster address %q: %w", cfg.Listen, err)
	}
	free, err := net.Listen("tcp", cfg.Listen) // NATS does not report why it can't
	if err != nil {
		return nil, fmt.Errorf("%w: %w; choose another address with --cluster-listen", ErrListen, err)
	}
	free.Close()
	if port == 0 {
		port = server.RANDOM_PORT
	}
	e := &embedded{password: rand.Text()}
	e.options = &server.Options{
		ServerName: cfg.Node, NoSigs: true, NoSystemAccount: true, NoSublistCache: true,
		// A cluster needs the port for clients: without it the server does not open the other one.
		Host: "127.0.0.1", Port: server.RANDOM_PORT, Username: routeUser, Password: e.password,
		// A node that takes too little loses messages, which it notices. It must not slow down the rooms of this one.
		NoFastProducerStall: true,
		MaxPayload:          int32(max(cfg.MaxMessage, smallestLimit)), MaxPending: max(64<<20, 4*int64(cfg.MaxMessage)),
		Cluster: server.ClusterOpts{
			Name: cfg.Cluster, Host: host, Port: port, Advertise: cfg.Advertise, Username: routeUser, Password: cfg.Secret,
			// One connection for a pair of nodes: messages of one account are in order only within one.
			PoolSize: -1, NoAdvertise: true, PingInterval: pingEvery, MaxPingsOut: 2, WriteDeadline: 5 * time.Second,
			TLSConfig: routes, TLSTimeout: handshakeWithin.Seconds(),
		},
	}
	if e.server, err = server.NewServer(e.options.Clone()); err != nil {
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	e.server.SetLogger(&warnings{log: cfg.Log, own: cfg.Certificates != nil}, false, false)
	go e.server.Start()
	if !e.server.ReadyForConnections(readyWithin) {
		e.stop()
		return nil, fmt.Errorf("NATS does not listen on %s within %v", cfg.Listen, readyWithin)
	}
	return e, nil
}

// connect returns the options of a connection over a pipe.
func (e *embedded) connect() []nats.Option {
	return []nats.Option{nats.InProcessServer(e.server), nats.UserInfo(routeUser, e.password)}
}

func (e *embedded) stop() {
	if e != nil {
		e.server.Shutdown()
		e.server.WaitForShutdown()
	}
}

// Addr returns the address on which the server inside the process listens for other nodes, or "".
func (r *Relay) Addr() string {
	if r.server == nil {
		return ""
	}
	return r.server.server.ClusterAddr().String()
}

// SetPeers sets the addresses of other nodes, as host:port. The server inside the process connects to each, and tries again
// until it is not in the list any more; the nodes that it reaches tell it of others. A change of the list costs what is sent and
// received within half a second: the server then closes the connection of this process. With servers of an operator SetPeers
// does nothing.
func (r *Relay) SetPeers(addresses []string) error {
	if r.server == nil {
		return nil
	}
	e := r.server
	e.mu.Lock()
	defer e.mu.Unlock()
	var routes []*url.URL
	for _, address := range addresses {
		routes = append(routes, &url.URL{Scheme: "nats", Host: address, User: url.UserPassword(routeUser, r.cfg.Secret)})
	}
	same := func(a, b *url.URL) bool { return a.Host == b.Host }
	if slices.EqualFunc(routes, e.options.Routes, same) {
		return nil
	}
	changed := e.options.Clone()
	changed.Routes = routes
	if err := e.server.ReloadOptions(changed); err != nil {
		return errors.Join(fmt.Errorf("connect to other nodes: %v", addresses), err)
	}
	e.options.Routes = routes
	return nil
}

// Peers returns how many other nodes the server inside the process is connected to.
func (r *Relay) Peers() int {
	if r.server == nil {
		return 0
	}
	return r.server.server.NumRoutes()
}
