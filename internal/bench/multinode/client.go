package multinode

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/websocket"
)

// load is shared by all clients.
type load struct {
	nodes   []*node
	ledger  *Ledger
	pace    time.Duration // average time between two requests of a client
	ending  chan struct{} // closed: no more requests that send or store something
	http    *http.Client
	latency latencies

	mu     sync.Mutex // guards the field below
	guests map[*guest]bool
}

// guest is a connection of a client to another node than its own.
type guest struct {
	home  int
	abort func()
	left  chan struct{} // closed when the client has noticed the connection's end
}

// latencies are the answers' since the last call of take. Safe for concurrent use.
type latencies struct {
	answers, deliveries atomic.Int64
	mu                  sync.Mutex // guards the field below
	recent              *bench.Histogram
}

func (l *latencies) answered(took time.Duration) {
	l.answers.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recent.Record(took)
}

// counters returns the progress for viewers.
func (l *load) counters() bench.Counters {
	l.latency.mu.Lock()
	defer l.latency.mu.Unlock()
	c := bench.Counters{
		Phase: bench.PhaseMeasured, Messages: l.latency.answers.Load(), Deliveries: l.latency.deliveries.Load(),
		Errors: l.ledger.counted(countErrors), Latency: l.latency.recent,
	}
	l.latency.recent = bench.NewHistogram()
	return c
}

// delivered counts messages that a client received.
func (l *load) delivered(n int) {
	l.latency.deliveries.Add(int64(n))
	l.ledger.Count(countDelivered, n)
}

// rest waits for the time of the given number of requests on average, with a random factor. It reports false if
// the load ends before.
func (l *load) rest(ctx context.Context, requests float64) bool {
	select {
	case <-time.After(time.Duration(rand.Float64() * 2 * requests * float64(l.pace))):
		return true
	case <-l.ending:
	case <-ctx.Done():
	}
	return false
}

// pick returns a process and its address: of the given node or, while that is dead, of another one.
func (l *load) pick(home int) (life, string) {
	first := rand.IntN(len(l.nodes))
	for i := range len(l.nodes) + 1 {
		n := l.nodes[home]
		if i > 0 {
			n = l.nodes[(first+i)%len(l.nodes)]
		}
		if at, address := n.current(); address != "" {
			return at, address
		}
	}
	return life{}, ""
}

// recall aborts the connections of a node's clients to other nodes, so that they connect to their own again. It waits until the clients
// have noticed, but not for ever.
func (l *load) recall(home int) {
	l.mu.Lock()
	var all []*guest
	for g := range l.guests {
		if g.home == home {
			all = append(all, g)
		}
	}
	l.mu.Unlock()
	enough := time.After(patience)
	for _, g := range all {
		g.abort()
	}
	for _, g := range all {
		select {
		case <-g.left:
		case <-enough:
			return
		}
	}
}

// visit registers a connection for recall until the returned function is called.
func (l *load) visit(home int, at life, abort func()) (leave func()) {
	if at.node == home {
		return func() {}
	}
	g := &guest{home, abort, make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.guests[g] = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.guests, g)
		close(g.left)
	}
}

// client is a client of one node, which connects to another one while its own is dead. Not safe for concurrent use.
type client struct {
	*load
	number int // of all clients
	home   int
	wire   *bench.Wire // nil: not connected
	leave  func()      // to be called when the connection has ended
}

// again is the pause before another attempt.
const again = 50 * time.Millisecond

// enter opens a WebSocket to a node.
func (c *client) enter(ctx context.Context) (conn *websocket.Conn, at life, err error) {
	for ctx.Err() == nil {
		at, address := c.pick(c.home)
		if address != "" {
			conn, err := websocket.Dial(ctx, "ws://"+address+"/ws", websocket.Config{})
			if now, _ := c.nodes[at.node].current(); err == nil && now == at {
				return conn, at, nil
			}
			if err == nil {
				conn.Abort() // the process has changed meanwhile: it may be either one's
			}
		}
		sleep(ctx, again)
	}
	return nil, life{}, ctx.Err()
}

// dial connects, unless the client is connected. The connection ends with the context.
func (c *client) dial(ctx context.Context) (*bench.Wire, error) {
	for c.wire == nil && ctx.Err() == nil {
		at, address := c.pick(c.home)
		if address != "" {
			if wire, err := bench.DialWire(ctx, "ws://"+address+"/ws"); err == nil {
				keep, leave := context.AfterFunc(ctx, wire.Abort), c.visit(c.home, at, wire.Abort)
				c.wire, c.leave = wire, func() { keep(); leave() }
				return wire, nil
			}
		}
		sleep(ctx, again)
	}
	return c.wire, ctx.Err()
}

// ask sends a request and waits for its answer. An error answer of the server is returned as an error, and
// counted. After any other error the client reconnects.
func (c *client) ask(ctx context.Context, format string, args ...any) (bench.WireMessage, error) {
	wire, err := c.dial(ctx)
	if err != nil {
		return bench.WireMessage{}, err
	}
	began := time.Now()
	m, err := wire.Ask(fmt.Appendf(nil, format, args...))
	switch {
	case err == nil:
		c.latency.answered(time.Since(began))
		return m, nil
	case m.Code == "":
		c.close()
	}
	c.ledger.Count(countErrors, 1)
	return m, err
}

func (c *client) close() {
	if c.wire != nil {
		c.leave()
		c.wire.Abort()
		c.wire = nil
	}
}

func newHTTP() *http.Client { return &http.Client{Timeout: silence, Transport: &http.Transport{}} }

// call makes an HTTP request and decodes the answer. An error answer of the server is an answerError.
func (l *load) call(ctx context.Context, method, address, path string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if body == nil {
		request.Body, request.ContentLength = http.NoBody, 0
	}
	response, err := l.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode < 300 {
		return json.NewDecoder(response.Body).Decode(into)
	}
	var answer struct{ Error *answerError }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || answer.Error == nil {
		return errors.Join(err, fmt.Errorf("%s %s: %s", method, path, response.Status))
	}
	return answer.Error
}

// answerError is an error of /v1.
type answerError struct {
	Code, Message string
	Lost, Failed  []string
}

func (e *answerError) Error() string { return e.Code + ": " + e.Message }

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
