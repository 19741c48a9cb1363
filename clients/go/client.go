package tidewire

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"
)

// Client is one connection to a server, which it opens anew whenever that is lost. It is for concurrent use.
type Client struct {
	url  string
	opts Options
	name string // of this object, with which requests can be repeated

	life context.Context // ends when the client closes
	end  context.CancelFunc
	gone chan struct{} // closed when the goroutine of the connection has ended; nil before it began

	calls   callbacks
	between func(err error, failures int) time.Duration // before the next attempt
	within  time.Duration                               // of an attempt to connect, of the program's answer to Token, and of the server's to auth

	mu       sync.Mutex
	state    State
	closing  bool // no more calls
	closed   bool // everything has ended
	cause    error
	link     *link // nil unless connected
	limits   limits
	failure  error // of the last attempt to connect; nil while connected
	refused  bool  // the server has refused the last token
	order    uint64
	ids      uint64
	sequence int64
	names    int

	ready   requests              // to be sent, in the order of their calls
	sent    map[uint64]*request   // on this connection, by their id
	waiting requests              // for room
	resting map[*request]struct{} // after a refusal, until they are sent again
	spent   int                   // requests that have ended since ready and waiting were cleared of them
	pending int
	bytes   int
	after   []func()      // what unlock does
	empty   chan struct{} // closed when nothing waits for an answer; nil if nobody waits for that

	sources []source
	subs    map[string]subscriber
	workers map[string]*workerCore
	rooms   map[string]*Membership
	joining map[string]bool // rooms whose chats wait
}

// source is something that begins anew on each connection.
type source interface {
	attach(l *link) // the client holds its lock
	detach()        // the client holds its lock
	quit()          // ends it on the server, which may have begun it
	finish(err error)
}

// subscriber takes the messages of a subscription.
type subscriber interface {
	source
	take(m *incoming) error
	failed(err error)
}

// limits are those of the server.
type limits struct {
	MessageBytes int `json:"message_bytes"`
	Messages     int `json:"messages"`
}

// Open returns a client for a server, whose address is that of its WebSocket: ws://localhost:8080/ws. With http and https in place of ws and
// wss it is the same. The client connects when it is first used.
func Open(address string, options Options) (*Client, error) {
	address, err := webSocketAddress(address)
	if err == nil {
		err = options.check()
	}
	if err != nil {
		return nil, err
	}
	var name [16]byte
	rand.Read(name[:])
	c := &Client{
		url: address, opts: options.withDefaults(), name: hex.EncodeToString(name[:]), sent: map[uint64]*request{}, resting: map[*request]struct{}{},
		between: pauseAfter, within: dialTimeout, subs: map[string]subscriber{}, workers: map[string]*workerCore{}, rooms: map[string]*Membership{}, joining: map[string]bool{},
	}
	c.life, c.end = context.WithCancel(context.Background())
	return c, nil
}

// webSocketAddress returns an address of http or https as one of ws or wss.
func webSocketAddress(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", fmt.Errorf("tidewire: the address of the server: %w", err)
	}
	switch u.Scheme {
	case "http":
		u.Scheme = "ws"
	case "https":
		u.Scheme = "wss"
	}
	if u.Scheme != "ws" && u.Scheme != "wss" || u.Host == "" {
		return "", fmt.Errorf("tidewire: the address of the server is %q, and has to be like ws://localhost:8080/ws or wss://example.com/ws", address)
	}
	return u.String(), nil
}

// State returns the state of the client.
func (c *Client) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// Close ends the client: it waits at most 5 s for the answers to what it has sent, ends all iterations, fails what still waits, and ends the
// contexts of all handlers. It waits at most one second for these: if some still run, the error is ErrStillRunning, and says how many.
func (c *Client) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := c.Shutdown(ctx); errors.Is(err, ErrStillRunning) {
		return err
	}
	return nil
}

// Shutdown is Close, and waits for answers until ctx ends. It returns the error of ctx if some did not come.
func (c *Client) Shutdown(ctx context.Context) (err error) {
	c.mu.Lock()
	c.closing = true
	workers := slices.Collect(maps.Values(c.workers))
	var empty chan struct{}
	if c.link != nil && c.pending > 0 {
		if c.empty == nil {
			c.empty = make(chan struct{})
		}
		empty = c.empty
	}
	c.mu.Unlock()
	if empty != nil {
		select {
		case <-empty:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	c.shut(nil)
	c.mu.Lock()
	gone := c.gone
	c.mu.Unlock()
	if gone != nil {
		<-gone
	}
	c.calls.wait()
	if n := running(workers); n > 0 {
		return runningError(n)
	}
	return err
}

// running waits for the handlers of workers that have ended, and returns how many do not return.
func running(workers []*workerCore) int {
	grace, cancel := context.WithTimeout(context.Background(), handlerGrace)
	defer cancel()
	n := 0
	for _, w := range workers {
		select {
		case <-w.done:
			continue
		case <-grace.Done():
		}
		w.mu.Lock()
		n += w.running
		w.mu.Unlock()
	}
	return n
}

// shut ends everything.
func (c *Client) shut(cause error) {
	c.mu.Lock()
	if c.closed {
		c.unlock()
		return
	}
	c.closing, c.closed, c.cause = true, true, cause
	c.end()
	if c.link != nil {
		l := c.link
		for _, r := range l.first {
			c.finish(r, lostLink(r))
		}
		l.first = nil
		c.after = append(c.after, func() { l.close(1000) })
	}
	failed, unanswered := closedError(cause), closedUnanswered(cause)
	fail := func(r *request) {
		if c.happened(r) {
			c.finish(r, unanswered)
			return
		}
		c.finish(r, failed)
	}
	for _, r := range slices.Concat(c.ready, c.waiting, slices.Collect(maps.Keys(c.resting))) {
		fail(r)
	}
	for _, r := range c.sent {
		if r.repeat == own {
			c.finish(r, errDetached)
			continue
		}
		fail(r)
	}
	c.ready, c.waiting = nil, nil
	sources := c.sources
	c.sources = nil
	c.after = append(c.after, func() {
		for _, s := range sources {
			s.finish(cause)
		}
	})
	c.setState(State{Phase: Closed, Err: cause})
	c.unlock()
}

// unlock gives the lock back, and then does what has to be done without it.
func (c *Client) unlock() {
	after := c.after
	c.after = nil
	c.mu.Unlock()
	for _, f := range after {
		f()
	}
}

// setState tells the program of a change. The caller holds the lock.
func (c *Client) setState(s State) {
	c.state = s
	if c.opts.OnState != nil {
		c.calls.post(func() { c.opts.OnState(s) })
	}
}

// begin starts the goroutine of the connection. The caller holds the lock.
func (c *Client) begin() {
	if c.gone == nil && !c.closed {
		c.gone = make(chan struct{})
		go c.run()
	}
}

// addLocked makes s begin on this connection and each later one. The caller holds the lock.
func (c *Client) addLocked(s source) error {
	if c.closing {
		return closedError(c.cause)
	}
	c.begin()
	c.sources = append(c.sources, s)
	if c.link != nil {
		s.attach(c.link)
	}
	return nil
}

// remove ends that.
func (c *Client) remove(s source) {
	c.mu.Lock()
	defer c.unlock()
	if i := slices.Index(c.sources, s); i >= 0 {
		c.sources = slices.Delete(c.sources, i, i+1)
	}
}

// reattach begins s again after a pause, if it and the connection are still there then.
func (c *Client) reattach(s source, pause time.Duration) {
	c.mu.Lock()
	l := c.link // it begins on each later one anyway
	c.mu.Unlock()
	time.AfterFunc(pause, func() {
		c.mu.Lock()
		defer c.unlock()
		if l != nil && c.link == l && slices.Contains(c.sources, s) {
			s.attach(l)
		}
	})
}

// callbacks runs functions of the program, one after the other, on a goroutine that is there while there are some.
type callbacks struct {
	mu      sync.Mutex
	todo    []func()
	running chan struct{} // closed when the goroutine ends; nil if there is none
}

func (c *callbacks) post(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.todo = append(c.todo, f)
	if c.running == nil {
		c.running = make(chan struct{})
		go c.run(c.running)
	}
}

func (c *callbacks) run(done chan struct{}) {
	defer close(done)
	for {
		c.mu.Lock()
		todo := c.todo
		c.todo = nil
		if len(todo) == 0 {
			c.running = nil
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		for _, f := range todo {
			f()
		}
	}
}

// wait waits until all that was posted has run, but for a second at most: a callback may wait for the caller.
func (c *callbacks) wait() {
	c.mu.Lock()
	running := c.running
	c.mu.Unlock()
	if running == nil {
		return
	}
	select {
	case <-running:
	case <-time.After(time.Second):
	}
}
