package gateway

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
	"unique"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/limits"
	"github.com/tidewire/tidewire/websocket"
)

// connections has all open connections, so that Shutdown can end them.
type connections struct {
	opened prometheus.Counter
	panics *panics
	budget *budget.Budget
	lanes  laneTotals
	limits *limits.Registry
	users  userConnections
	// compression is that of the connections which have negotiated it; nil without compression.
	compression *websocket.Compression

	run     string     // names this run of the server
	listing sync.Mutex // one list at a time

	mu      sync.Mutex
	last    uint64 // the number of the last connection
	all     map[*connection]struct{}
	pending int           // reserved and not released, open or in the handshake
	closing bool          // no new ones
	done    chan struct{} // closed when closing and pending is 0
	// draining: no new WebSockets. returning is the time over which their clients are to come back.
	draining  bool
	returning time.Duration
}

// connection is one WebSocket connection and its state for shutdown, panics and
// eviction.
type connection struct {
	*websocket.Conn
	owner   *connections
	onStop  func()      // guarded by owner.mu
	stopped bool        // the server is ending this connection; guarded by owner.mu
	broken  atomic.Bool // its handler has panicked
	// identity is who the client is, and expired that its token is over.
	identity identity
	expired  atomic.Bool
	// kicked: a kick has ended memberships of which the client is not told yet.
	kicked atomic.Bool
	reach  reach
	// What administrators are told: see connection_list.go. session is nil but on /ws, and participant but on /ws and /ws/chat.
	number           uint64
	began            time.Time
	endpoint, client unique.Handle[string]
	session          atomic.Pointer[session]
	participant      atomic.Pointer[participant]
	// presence is told what the client does; nil if it is not, or not yet. userConnections.mu guards it.
	presence ConnectionObserver

	// Of the limits: the client's address, what counts it, its rate (used by the reading goroutine; nil without one), and why it is ended.
	address netip.Addr
	socket  *limits.Conn
	meter   *limits.Meter
	flooded bool // it is ended because it sends too much: nothing more is handled
	final   atomic.Pointer[finalClose]

	memory    *budget.Holder
	evicted   atomic.Bool            // it held the most while memory was short
	onEvicted atomic.Pointer[func()] // called when it is evicted
}

// slot is a reservation for a connection or a request, taken before the
// handshake.
type slot struct {
	owner *connections
	conn  *connection

	address   netip.Addr
	socket    *limits.Conn // nil for a request
	ownSocket bool         // no listener has made it
}

func newConnections(cfg Config) *connections {
	c := &connections{
		run:    runName(),
		all:    make(map[*connection]struct{}),
		done:   make(chan struct{}),
		panics: newPanics(cfg.Metrics, cfg.Log),
		budget: cfg.Budget, limits: cfg.Limits, compression: cfg.Compression,
		users:  userConnections{connected: cfg.Connected},
		opened: prometheus.NewCounter(prometheus.CounterOpts{Name: "tidewire_connections_opened_total", Help: "WebSocket connections accepted."}),
	}
	registerBudget(cfg.Budget, cfg.Metrics)
	c.lanes.register(cfg.Metrics)
	cfg.Metrics.MustRegister(c.opened, prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "tidewire_connections", Help: "WebSocket connections open now."},
		func() float64 { return float64(c.count()) }))
	return c
}

// runName is a name that no other run of a server has.
func runName() string {
	var name [4]byte
	rand.Read(name[:]) // it never fails
	return hex.EncodeToString(name[:])
}

func (c *connections) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all)
}

// reserve takes a slot for a request unless the server is shutting down.
func (c *connections) reserve() (*slot, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.take(c.closing)
}

// reserveConnection takes a slot for a WebSocket unless the server is shutting down, or about to.
func (c *connections) reserveConnection() (*slot, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.take(c.closing || c.draining)
}

// take takes a slot unless that is refused. c.mu is held.
func (c *connections) take(refused bool) (*slot, bool) {
	if refused {
		return nil, false
	}
	c.pending++
	return &slot{owner: c}, true
}

// open adds a connection, which identify has given its identity: from then on others look at it.
func (s *slot) open(conn *websocket.Conn, identify func(*connection)) *connection {
	c := s.owner
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	s.conn = &connection{Conn: conn, owner: c, address: s.address, socket: s.socket, number: c.last, began: time.Now()}
	identify(s.conn)
	s.conn.memory = c.budget.Open(s.conn.evict)
	c.all[s.conn] = struct{}{}
	c.opened.Inc()
	c.lanes.opened(conn)
	return s.conn
}

func (s *slot) release() {
	c := s.owner
	s.uncount()
	if s.conn != nil {
		c.users.remove(s.conn)
		c.lanes.closed(s.conn.Conn)
		s.conn.memory.Close()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, s.conn)
	if c.pending--; c.pending == 0 && c.closing {
		close(c.done)
	}
}

// whenStopped calls f once when the server shuts down, or now if it already
// does. f must not block.
func (c *connection) whenStopped(f func()) {
	c.owner.mu.Lock()
	c.onStop = f
	stopping := c.stopped || c.owner.closing
	c.owner.mu.Unlock()
	if stopping {
		f()
	}
}

// stop ends the connection because the server stops.
func (c *connection) stop() {
	c.owner.mu.Lock()
	f := c.onStop
	if c.stopped {
		f = nil
	}
	c.stopped = true
	c.owner.mu.Unlock()
	if f != nil {
		f()
	}
}

// whenEvicted calls f when the connection is evicted, or now if it already is; f
// may be called twice. f must not block.
func (c *connection) whenEvicted(f func()) {
	c.onEvicted.Store(&f)
	if c.evicted.Load() {
		f()
	}
}

// wakeAt makes Read return at t if nothing arrives, or at once if the
// connection is ending, its rights are to be checked again, or it was kicked, even if that began just now.
func (c *connection) wakeAt(t time.Time) {
	c.SetReadDeadline(t)
	if c.ending() || c.identity.stale.Load() || c.kicked.Load() {
		c.SetReadDeadline(time.Now())
	}
}

// ending reports whether the server is ending the connection.
func (c *connection) ending() bool {
	return c.broken.Load() || c.evicted.Load() || c.expired.Load() || c.final.Load() != nil || c.stopping()
}

// stopping reports whether the server ends the connection because it stops.
func (c *connection) stopping() bool {
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	return c.stopped || c.owner.closing
}

// close asks every connection to end; the channel is closed when all have.
func (c *connections) close() <-chan struct{} {
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return c.done
	}
	c.closing = true
	c.beginStop()
	var calls []func()
	for conn := range c.all {
		if conn.onStop != nil && !conn.stopped {
			calls = append(calls, conn.onStop)
		}
	}
	if c.pending == 0 {
		close(c.done)
	}
	c.mu.Unlock()
	for _, f := range calls {
		f()
	}
	return c.done
}

// abort aborts every connection.
func (c *connections) abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.all {
		conn.Abort()
	}
}

// maxClientName is how much of the header User-Agent is kept, in bytes.
const maxClientName = 128

// clientName is what the client of a handshake says it is, "" if it says nothing.
func clientName(r *http.Request) string {
	name := r.UserAgent()
	if len(name) > maxClientName {
		name = name[:maxClientName]
	}
	if !utf8.ValidString(name) { // also after a cut
		name = strings.ToValidUTF8(name, "")
	}
	return name
}
