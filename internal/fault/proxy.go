package fault

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Direction is a direction through a Proxy.
type Direction int

const (
	ToTarget   Direction = iota // from the clients to the target
	FromTarget                  // from the target to the clients
)

// Proxy is a TCP proxy that breaks connections on request. Bytes keep their order, and half-closes pass through. So do resets: when one side resets a
// connection, the other side's is reset; after a half-close of its own, only when it is written to. A client whose connection to the target cannot
// be opened is reset. All methods are safe for concurrent use.
//
// A connection exists for the proxy when the proxy has accepted it, which may be shortly after the client's dial has returned. Let a byte pass both
// ways before Reset if Reset has to hit the connection.
type Proxy struct {
	target   string
	listener net.Listener
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	running  sync.WaitGroup // the accepting goroutine and all links

	mu      sync.Mutex // guards the fields below, and fields of links and pipes
	links   map[*link]struct{}
	delay   time.Duration
	stalled [2]bool // by Direction
	refuse  bool
	closed  bool
}

// NewProxy listens on a free port of 127.0.0.1 and connects each client to target, a host and port.
func NewProxy(target string) (*Proxy, error) { return NewProxyOn("127.0.0.1:0", target) }

// NewProxyOn is NewProxy with the address to listen on, such as that of Host in a Net.
func NewProxyOn(address, target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, listener: listener, links: make(map[*link]struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns the host and port to which clients connect.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Delay delays what the proxy reads from now on, in each direction, by d; what it has read before keeps its own delay. It bounds no throughput: any
// number of bytes may be under way, and they are in memory. Half-closes and resets are delayed as bytes are; opening a connection is not.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Stall stalls both directions of all connections, also of new ones.
func (p *Proxy) Stall() { p.set(func() { p.stalled = [2]bool{true, true} }) }

// StallOneWay stalls one direction of all connections, also of new ones. What is sent after it has returned, half-closes and resets included, is not passed
// on before Resume. The proxy then stops reading, so that a sender blocks when the kernel's buffers are full. If ToTarget is stalled, no connection to
// the target is opened, but clients can connect to the proxy.
func (p *Proxy) StallOneWay(d Direction) { p.set(func() { p.stalled[d] = true }) }

// Resume ends Stall and StallOneWay.
func (p *Proxy) Resume() { p.set(func() { p.stalled = [2]bool{} }) }

// Refuse sets whether new connections are closed, by RST, as soon as they are accepted. The client's dial may succeed or fail with ECONNRESET.
// Connections that exist are not affected.
func (p *Proxy) Refuse(refuse bool) { p.set(func() { p.refuse = refuse }) }

// set changes the state and lets all links look at it.
func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	for l := range p.links {
		l.wake()
	}
}

// Reset closes all connections, on both sides, by RST. They are closed when it returns. What is under way is lost, also while the proxy is stalled.
func (p *Proxy) Reset() {
	for _, l := range p.current() {
		l.end(true)
		<-l.ended
	}
}

// Close closes the listener and all connections. No goroutine of the proxy runs when it returns. It may be called again.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	err := p.listener.Close()
	for _, l := range p.current() {
		l.end(false)
	}
	p.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (p *Proxy) current() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	var links []*link
	for l := range p.links {
		links = append(links, l)
	}
	return links
}

// accept accepts connections until the listener is closed. Other errors, such as too many open files, are those of one connection.
func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		switch {
		case err == nil:
			p.admit(conn.(*net.TCPConn))
		case errors.Is(err, net.ErrClosed):
			return
		default:
			select {
			case <-p.ctx.Done():
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

func (p *Proxy) admit(client *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse || p.closed {
		closeConn(client, true)
		return
	}
	l := newLink(p, client)
	p.links[l] = struct{}{}
	p.running.Go(l.run)
}

// closeConn closes a connection, by RST if reset is set; otherwise the kernel sends what is written, and FIN.
func closeConn(conn *net.TCPConn, reset bool) {
	if reset {
		conn.SetLinger(0)
	}
	conn.Close()
}
