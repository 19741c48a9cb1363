package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/stream"
)

// window is how many requests a well-behaved client has in flight.
const window = 4

// citizen is a well-behaved client. make and take run until nothing more is
// started or expected; then check compares their ledgers with PostgreSQL.
type citizen interface {
	make()
	take()
	check(ctx context.Context, pool *pgxpool.Pool) error
}

// publisher publishes to a stream as a producer with sequences. Others
// subscribe and read by HTTP, and must see the same messages.
type publisher struct {
	w      *world
	stream string
	shared bool // attackers may publish to the stream, too

	stored map[int64]int64 // positions, by sequence
	last   int64           // the highest of them
	seen   []stored        // by the subscriber
	read   []stored        // by HTTP
}

// stored is a message at its position.
type stored struct {
	position int64
	payload  string
}

func (p *publisher) payload(sequence int64) string {
	return fmt.Sprintf("%s %d", p.stream, sequence)
}

func (p *publisher) make() {
	p.stored = make(map[int64]int64)
	pending := make(map[int64]bool)
	next := int64(0)
	p.w.keep("publisher of "+p.stream, "/ws", func(l *line) error {
		say := func(sequence int64) {
			l.ask(int(sequence)+1, `{"type":"publish","stream":%q,"client":%q,"sequence":%d,"payload":%q,"id":%d}`,
				p.stream, "producer of "+p.stream, sequence, p.payload(sequence), sequence+1)
		}
		for sequence := range pending {
			say(sequence)
		}
		for {
			for p.w.producing.Err() == nil && len(pending) < window && !l.in.stopping() {
				pending[next] = true
				say(next)
				next++
			}
			if p.w.producing.Err() != nil && len(pending) == 0 {
				return nil
			}
			err := l.next(func(m message) {
				if m.Type != "ok" {
					l.refused(m)
					return
				}
				sequence := int64(m.ID) - 1
				delete(pending, sequence)
				p.stored[sequence] = m.Position
				p.last = max(p.last, m.Position)
			})
			if err != nil {
				return err
			}
			time.Sleep(p.w.pause)
		}
	})
}

// take subscribes, and resumes after the last position seen.
func (p *publisher) take() {
	last := int64(0)
	who := "subscriber of " + p.stream
	ended := false
	p.w.keep(who, "/ws", func(l *line) error {
		l.ask(1, `{"type":"subscribe","stream":%q,"after":%d,"id":1}`, p.stream, last)
		var deadline time.Time
		for {
			err := l.next(func(m message) {
				switch {
				case m.Type == "message" && m.Position <= last:
					p.w.fault(who, "order", "position %d after %d", m.Position, last)
				case m.Type == "message":
					last = m.Position
					p.seen = append(p.seen, stored{m.Position, m.Payload})
				default:
					l.refused(m)
				}
			})
			if err != nil {
				return err
			}
			if ended, deadline = p.w.ending(deadline); ended && (last >= p.last || time.Now().After(deadline)) {
				return nil // check reports missing messages
			}
		}
	})
}

// ending reports whether no more requests will be made, and how long to wait
// for the open ones.
func (w *world) ending(deadline time.Time) (bool, time.Time) {
	select {
	case <-w.drained:
		if deadline.IsZero() {
			deadline = time.Now().Add(2 * patience)
		}
		return true, deadline
	default:
		return false, deadline
	}
}

// readHTTP pages through the stream by HTTP until it has the last message.
func (p *publisher) readHTTP() {
	who := "HTTP-reader of " + p.stream
	last := int64(0)
	var deadline time.Time
	var ended bool
	for ; ; time.Sleep(20 * time.Millisecond) {
		if ended, deadline = p.w.ending(deadline); ended && (last >= p.last || time.Now().After(deadline)) {
			return
		}
		var page struct {
			Messages []message
			Next     int64
		}
		if !p.w.get(who, fmt.Sprintf("/v1/streams/%s/messages?after=%d&limit=50", p.stream, last), &page) {
			continue
		}
		for _, m := range page.Messages {
			if m.Position <= last {
				p.w.fault(who, "order", "position %d after %d", m.Position, last)
			}
			last = m.Position
			p.read = append(p.read, stored{m.Position, m.Payload})
		}
	}
}

// get requests JSON, and reports whether it got it. An answer other than 200 is
// a fault.
func (w *world) get(who, path string, answer any) bool {
	return w.request(who, http.MethodGet, path, nil, answer)
}

func (w *world) request(who, method, path string, body io.Reader, answer any) bool {
	g := w.serving()
	if g == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(w.giveUp, patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+g.addr+path, body)
	if err != nil {
		w.fault(who, "request", "%v", err)
		return false
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if w.gate != nil {
		r.Header.Set("Authorization", bearer(w.gate.token(who, shortLife)))
	}
	text, status, err := do(goodClient, r)
	switch {
	case g.stopping() || w.giveUp.Err() != nil:
		return false
	case err != nil:
		w.fault(who, "no answer", "%s %s: %v", method, path, err)
		return false
	case status == http.StatusConflict && strings.Contains(string(text), "lease_lost"):
		return false // it was too slow: another consumer gets the job
	case status != http.StatusOK:
		w.fault(who, fmt.Sprint("status ", status), "%s %s: %.300s", method, path, text)
		return false
	}
	if err := json.Unmarshal(text, answer); err != nil {
		w.fault(who, "not understood", "%s %s: %.300q", method, path, text)
		return false
	}
	return true
}

// goodClient is that of well-behaved clients, which keep their connections.
var goodClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}

func do(client *http.Client, r *http.Request) (text []byte, status int, err error) {
	answer, err := client.Do(r)
	if err != nil {
		return nil, 0, err
	}
	defer answer.Body.Close()
	text, err = io.ReadAll(answer.Body)
	return text, answer.StatusCode, err
}

func (p *publisher) check(ctx context.Context, pool *pgxpool.Pool) error {
	log, err := stream.Lookup(ctx, pool, p.stream)
	if err != nil {
		return err
	}
	var all []stored
	for after := int64(0); ; {
		page, err := log.Read(ctx, after, 1000)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			break
		}
		for _, m := range page {
			after = m.Position
			all = append(all, stored{m.Position, string(m.Payload)})
		}
	}
	at := make(map[string]int64)
	for _, m := range all {
		if !strings.HasPrefix(m.payload, p.stream+" ") {
			if !p.shared {
				p.w.fault("publisher of "+p.stream, "not its own", "%q is stored at %d", m.payload, m.position)
			}
			continue
		}
		if at[m.payload] != 0 {
			p.w.fault("publisher of "+p.stream, "stored twice", "%q at %d and %d", m.payload, at[m.payload], m.position)
		}
		at[m.payload] = m.position
	}
	for sequence, position := range p.stored {
		if at[p.payload(sequence)] != position {
			p.w.fault("publisher of "+p.stream, "lost", "%q was answered with position %d and is at %d", p.payload(sequence), position, at[p.payload(sequence)])
		}
	}
	p.w.same("subscriber of "+p.stream, p.seen, all)
	p.w.same("HTTP-reader of "+p.stream, p.read, all)
	p.w.sent += len(p.stored)
	p.w.t.Logf("stream %s: %d published, %d seen, %d read", p.stream, len(p.stored), len(p.seen), len(p.read))
	return nil
}

// same checks that a client has seen exactly what PostgreSQL stores.
func (w *world) same(who string, got, want []stored) {
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			var instead any = "nothing"
			if i < len(got) {
				instead = got[i]
			}
			w.fault(who, "not what is stored", "%v in place of %v, the %d. of %d", instead, want[i], i+1, len(want))
			return
		}
	}
	if len(got) > len(want) {
		w.fault(who, "not what is stored", "%v, which nobody has stored", got[len(want)])
	}
}
