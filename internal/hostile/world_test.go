package hostile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// patience is the time within which a well-behaved client gets its answer, even
// on a busy machine.
const patience = time.Minute

// world is what all clients of one run share.
type world struct {
	t       *testing.T
	program string // the server's; "" means this one
	gate    *gate  // nil in open mode
	users   counter
	times   latencies
	pause   time.Duration // of a well-behaved client between two reads of answers
	refused counter       // requests of attackers that had no right
	sent    int           // messages of well-behaved clients that were answered, counted in the end

	producing context.Context // when it ends, nobody starts a request
	drained   chan struct{}   // closed when all started requests are answered
	giveUp    context.Context // when it ends, nobody waits any more

	mu     sync.Mutex
	now    *generation
	faults map[string]*fault
	order  []string
}

// generation is the time between a start and a stop of the server.
type generation struct {
	addr string
	stop chan struct{} // closed before the server is told to stop
}

func (g *generation) stopping() bool {
	select {
	case <-g.stop:
		return true
	default:
		return false
	}
}

type fault struct {
	first string
	times int
}

// fault records a fault. Faults of one kind are reported once, with their
// number.
func (w *world) fault(who, kind, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := who + ": " + kind
	f := w.faults[key]
	if f == nil {
		f = &fault{first: fmt.Sprintf(format, args...)}
		w.faults[key] = f
		w.order = append(w.order, key)
	}
	f.times++
}

// report fails the test for each kind of fault.
func (w *world) report() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range w.order {
		f := w.faults[key]
		w.t.Errorf("%s (%d times), first: %s", key, f.times, f.first)
	}
}

// begin lets clients use a server that has started.
func (w *world) begin(addr string) *generation {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = &generation{addr: addr, stop: make(chan struct{})}
	return w.now
}

func (w *world) current() *generation {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// serving waits for a running server that is not about to stop; nil at the end.
func (w *world) serving() *generation {
	for w.giveUp.Err() == nil {
		if g := w.current(); !g.stopping() {
			return g
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

// message is any message of the server.
type message struct {
	Type, Code, Message, Text, Payload, Delivery, Room string

	ID                      int
	Position, Count, Missed int64
	Positions               []int64
	Lost                    []string
	Duplicate               bool
	Event                   struct {
		Position int64
		Tags     []string
	}
}

// authID is the id of all requests with a token.
const authID = 1 << 50

// line is the connection of a well-behaved client.
type line struct {
	*websocket.Conn
	w     *world
	who   string
	in    *generation
	asked map[int]time.Time // unanswered requests

	manners manners
	renewed time.Time
	known   func() // called once the server knows who this is
}

// keep calls talk with a connection, and again with a new one after a stop of
// the server, until talk returns nil. A connection that ends for another reason
// is a fault.
func (w *world) keep(who, path string, talk func(*line) error) {
	for {
		g := w.serving()
		if g == nil {
			return
		}
		err := w.connect(g, who, path, talk)
		if err == nil {
			return
		}
		if !g.stopping() && w.giveUp.Err() == nil {
			w.fault(who, "connection lost", "%v", err)
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// connecting has a place for each well-behaved client that the server does not know yet. It allows one address 20 of them.
var connecting = make(chan struct{}, 4)

func (w *world) connect(g *generation, who, path string, talk func(*line) error) error {
	ctx, cancel := context.WithTimeout(w.giveUp, patience)
	defer cancel()
	select {
	case connecting <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	known := sync.OnceFunc(func() { <-connecting })
	defer known()
	cfg := websocket.Config{MaxMessage: 4 << 20}
	manners := mannersOf(who, path)
	if w.gate != nil && !manners.byMessage {
		cfg.Header = http.Header{"Authorization": {bearer(w.gate.token(who, manners.life))}}
	}
	c, err := websocket.Dial(ctx, "ws://"+g.addr+path, cfg)
	if err != nil {
		return err
	}
	defer c.Abort()
	l := &line{Conn: c, w: w, who: who, in: g, asked: make(map[int]time.Time), manners: manners, renewed: time.Now(), known: known}
	if w.gate != nil && manners.byMessage {
		l.authenticate()
	} else {
		known()
	}
	return talk(l)
}

// authenticate sends a new token. Requests may follow at once.
func (l *line) authenticate() {
	l.renewed = time.Now()
	l.ask(authID, `{"type":"auth","token":%q,"id":%d}`, l.w.gate.token(l.who, l.manners.life), authID)
}

// identity handles messages about the client's token, and reports whether m was one.
func (l *line) identity(m message) bool {
	switch {
	case m.Type == "expiring":
		l.authenticate()
	case m.ID == authID:
		l.known()
		l.refused(m)
	default:
		return false
	}
	return true
}

// ask sends a request with that id.
func (l *line) ask(id int, format string, args ...any) {
	l.asked[id] = time.Now()
	l.say(format, args...)
}

func (l *line) say(format string, args ...any) {
	l.Queue(websocket.OpText, fmt.Appendf(nil, format, args...))
	l.Flush()
}

// next passes received messages to handle, or returns after a moment if there
// are none. An error means that the connection has ended.
func (l *line) next(handle func(message)) error {
	if err := l.w.giveUp.Err(); err != nil {
		return err
	}
	if l.w.gate != nil && l.manners.renews > 0 && time.Since(l.renewed) > l.manners.renews {
		l.authenticate()
	}
	l.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	raws, err := l.Read()
	for _, raw := range raws {
		if raw.Op != websocket.OpText {
			continue
		}
		var m message
		if jsonErr := json.Unmarshal(raw.Payload, &m); jsonErr != nil {
			l.w.fault(l.who, "not understood", "%.200q: %v", raw.Payload, jsonErr)
			continue
		}
		delete(l.asked, m.ID)
		if !l.identity(m) {
			handle(m)
		}
	}
	if isTimeout(err) {
		err = nil
	}
	for id, at := range l.asked {
		if time.Since(at) > patience && !l.in.stopping() {
			l.w.fault(l.who, "no answer", "request %d has no answer within %v", id, patience)
			delete(l.asked, id)
		}
	}
	return err
}

// refused records an error that a well-behaved client must not get. While the
// server stops, requests may be rejected.
func (l *line) refused(m message) {
	if m.Type == "error" && !l.in.stopping() {
		l.w.fault(l.who, "refused: "+m.Code, "%+v", m)
	}
}

// wait waits for a condition at the end, when all requests are answered: not so
// long that it hides a loss.
func (w *world) wait(who, what string, condition func() bool) {
	for deadline := time.Now().Add(2 * patience); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.fault(who, "waited in vain", "%s: not so within %v", what, 2*patience)
			return
		}
	}
}

// counter hands out numbers to any number of goroutines.
type counter struct{ n atomic.Int64 }

func (c *counter) next() int64 { return c.n.Add(1) }

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
