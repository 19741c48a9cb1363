package hostile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// authID and joinID are the ids of all requests with a token, and of those that open what a connection is for.
const authID, joinID = 1 << 50, 1 << 40

// line is the connection of a well-behaved client.
type line struct {
	*websocket.Conn
	w     *world
	who   string
	in    *generation
	asked map[int]time.Time // unanswered requests
	timed bool              // the table shows how long its requests take

	manners manners
	renewed time.Time
	known   func() // called once the server knows who this is
}

// keep calls talk with a connection, and again with a new one after a stop of the server, until talk returns nil. A connection that ends for another
// reason is a fault.
func (w *world) keep(who, path string, talk func(*line) error) {
	for g := w.serving(); g != nil; g = w.serving() {
		err := w.connect(g, who, path, talk)
		if err == nil {
			return
		}
		if !g.stopping() && w.giveUp.Err() == nil {
			w.fault(who, "connection lost", "%v", err)
			return
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
	manners := mannersOf(who)
	if w.gate != nil && !manners.byMessage {
		cfg.Header = http.Header{"Authorization": {bearer(w.gate.token(who, shortLife))}}
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
	l.ask(authID, `{"type":"auth","token":%q,"id":%d}`, l.w.gate.token(l.who, shortLife), authID)
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

// next passes received messages to handle, or returns after a moment if there are none. An error means that the
// connection has ended.
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
		if err := json.Unmarshal(raw.Payload, &m); err != nil {
			l.w.fault(l.who, "not understood", "%.200q: %v", raw.Payload, err)
			continue
		}
		if at, asked := l.asked[m.ID]; asked && l.timed {
			l.w.times.note(time.Since(at))
		}
		delete(l.asked, m.ID)
		l.refused(m)
		switch {
		case m.Type == "expiring":
			l.authenticate()
		case m.Type == "ping":
			l.say(`{"type":"pong"}`)
		case m.ID == authID:
			l.known()
		default:
			handle(m)
			l.w.answered(l.in, l.who)
		}
	}
	for id, at := range l.asked {
		if time.Since(at) > patience && !l.in.stopping() {
			l.w.fault(l.who, "no answer", "request %d has no answer within %v", id, patience)
			delete(l.asked, id)
		}
	}
	if isTimeout(err) {
		return nil
	}
	return err
}

// refused records an error that a well-behaved client must not get. While the server stops, requests may be rejected. Somebody else may have won a race,
// or have got a job whose consumer was too slow.
func (l *line) refused(m message) {
	if m.Type == "error" && m.Code != "conflict" && m.Code != "lease_lost" && !l.in.stopping() {
		l.w.fault(l.who, "refused: "+m.Code, "%+v", m)
	}
}

// work is what a client asks for again and again.
type work struct {
	who, path string
	join      string                 // what opens the connection's room; "" for none
	regular   bool                   // one request at a time, whose latencies are shown
	once      bool                   // requests whose answers were lost in a stop of the server are not repeated
	may       func(*generation) bool // whether requests make sense; nil: always
	ask       func(l *line, n int)   // makes a request with the id n
	done      func(n int, m message) // is called with its answer
}

// produce does the work, at its pace, until producing ends and all requests are answered.
func (w *world) produce(p work) {
	next, pending := 0, make(map[int]bool)
	most, rest := window, pause
	if p.regular {
		most, rest = 1, regularPause
	}
	w.keep(p.who, p.path, func(l *line) error {
		l.timed = p.regular
		if p.join != "" {
			l.ask(joinID, "%s", p.join)
		}
		if p.once {
			clear(pending)
		}
		for n := range pending {
			p.ask(l, n)
		}
		for {
			for w.producing.Err() == nil && len(pending) < most && !l.in.stopping() && (p.may == nil || p.may(l.in)) {
				next++
				pending[next] = true
				p.ask(l, next)
			}
			if w.producing.Err() != nil && len(pending) == 0 {
				return nil
			}
			before := len(pending)
			err := l.next(func(m message) {
				if pending[m.ID] && (m.Type == "ok" || m.Code == "conflict" || !l.in.stopping()) {
					delete(pending, m.ID)
					p.done(m.ID, m)
				}
			})
			if err != nil {
				return err
			}
			if len(pending) < before {
				time.Sleep(rest) // pace: of a well-behaved client
			}
		}
	})
}

// consume opens something and handles what comes, until all is complete. After a stop of the server it opens it again.
func (w *world) consume(who, path string, open func(*line), handle func(*line, message), complete func() bool) {
	w.keep(who, path, func(l *line) error {
		for open(l); ; {
			if err := l.next(func(m message) { handle(l, m) }); err != nil {
				return err
			}
			if w.over(complete) {
				return nil
			}
		}
	})
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
