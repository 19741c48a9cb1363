package wsproxy

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// dialTimeout bounds the connection to the server.
const dialTimeout = 5 * time.Second

// Proxy forwards the connections of a listener to a server. All methods may be called concurrently.
type Proxy struct {
	listener net.Listener
	running  sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	target   string
	refuses  bool
	closed   bool
	rules    []*active
	released chan struct{} // closed by Clear: what is stalled goes on
	links    map[*link]struct{}
	accepted int
}

// New returns a Proxy that listens on an address, such as "127.0.0.1:0", and forwards to a target until Close.
func New(address, target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, target: target, released: make(chan struct{}), links: make(map[*link]struct{})}
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns the address at which it listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// SetTarget has it forward further connections to another server.
func (p *Proxy) SetTarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Add adds a rule. The first rule that applies to a message counts.
func (p *Proxy) Add(r Rule) error {
	if err := r.validate(); err != nil {
		return err
	}
	times := r.Times
	if times == 0 {
		times = 1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, &active{Rule: r, skip: r.Skip, times: times})
	return nil
}

// Clear removes all rules, accepts connections again, and forwards what was stalled.
func (p *Proxy) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules, p.refuses = nil, false
	close(p.released)
	p.released = make(chan struct{})
}

// Cut ends all connections, and returns how many there were.
func (p *Proxy) Cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut()
	}
	return len(p.links)
}

// Refuse ends further connections as soon as they come, or accepts them again.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = on
}

// State is what a Proxy has done.
type State struct {
	// Connections is how many there are now, Accepted how many have come, with those that were refused.
	Connections int `json:"connections"`
	Accepted    int `json:"accepted"`
	// Waiting is how many rules have not been used up.
	Waiting int `json:"waiting"`
}

// State returns what it has done.
func (p *Proxy) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := State{Connections: len(p.links), Accepted: p.accepted}
	for _, r := range p.rules {
		if r.times != 0 {
			s.Waiting++
		}
	}
	return s
}

// Close ends all connections and the listener.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.listener.Close()
	p.Cut()
	p.running.Wait()
}

// accept forwards each connection that comes.
func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // of one connection, or too many open files
			time.Sleep(10 * time.Millisecond)
			continue
		}
		p.running.Go(func() { p.serve(client) })
	}
}

// serve connects to the server and forwards until one of the two connections ends.
func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	p.mu.Lock()
	p.accepted++
	target, refuses := p.target, p.refuses
	p.mu.Unlock()
	if refuses {
		reset(client)
		return
	}
	server, err := net.DialTimeout("tcp", target, dialTimeout)
	if err != nil {
		reset(client)
		return
	}
	defer server.Close()
	l := newLink(p, client, server)
	if !p.enter(l) {
		return
	}
	defer p.leave(l)
	l.run()
}

func (p *Proxy) enter(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.links[l] = struct{}{}
	}
	return !p.closed
}

func (p *Proxy) leave(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// decide returns the rule for a message, with a channel that is closed by Clear; nil if there is none.
func (p *Proxy) decide(to string, m message) (*active, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rules {
		if r.takes(to, m) {
			return r, p.released
		}
	}
	return nil, nil
}

// reset closes a connection so that its peer gets an error, and not an end.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	conn.Close()
}

// sleep waits, and reports whether ctx has not ended meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
