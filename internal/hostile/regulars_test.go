package hostile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/stream"
)

// regulars are many clients that make one request after another, a few a second each, and measure how long each takes. Most publish, and some read by
// HTTP.
type regulars struct {
	w      *world
	stream string
	n      int

	mu     sync.Mutex
	stored map[string]int64 // positions, by payload
}

// regularPause is the time between two requests of a regular client, on average.
const regularPause = 200 * time.Millisecond

func (r *regulars) make() {
	r.stored = make(map[string]int64)
	var running sync.WaitGroup
	for n := range r.n {
		who := fmt.Sprintf("regular %d of %s", n, r.stream)
		running.Go(func() {
			if n%5 == 4 {
				r.read(who)
			} else {
				r.publish(who)
			}
		})
	}
	running.Wait()
}

// rest waits until the next request.
func (r *regulars) rest() { time.Sleep(regularPause/2 + rand.N(regularPause)) }

// publish stores one message at a time, and repeats those whose answer was lost in a stop of the server.
func (r *regulars) publish(who string) {
	sequence, answered := 0, true
	r.w.keep(who, "/ws", func(l *line) error {
		for {
			if answered {
				if r.w.producing.Err() != nil {
					return nil
				}
				sequence, answered = sequence+1, false
			}
			payload := fmt.Sprintf("%s, %d", who, sequence)
			since := time.Now()
			l.ask(sequence, `{"type":"publish","stream":%q,"client":%q,"sequence":%d,"payload":%q,"id":%d}`, r.stream, who, sequence, payload, sequence)
			for !answered {
				err := l.next(func(m message) {
					l.refused(m)
					switch {
					case m.ID != sequence || l.in.stopping() && m.Type == "error": // is sent again
					case m.Type == "ok":
						r.note(payload, m.Position)
						fallthrough
					default:
						answered = true
					}
				})
				if err != nil {
					return err
				}
			}
			r.w.times.note(time.Since(since))
			r.rest()
		}
	})
}

// read reads the stream's last messages by HTTP.
func (r *regulars) read(who string) {
	for r.w.producing.Err() == nil {
		r.mu.Lock()
		after := int64(0)
		for _, position := range r.stored {
			after = max(after, position-10)
		}
		r.mu.Unlock()
		since := time.Now()
		var page struct{ Messages []message }
		if r.w.get(who, fmt.Sprintf("/v1/streams/%s/messages?limit=10&after=%d", r.stream, max(after, 0)), &page) {
			r.w.times.note(time.Since(since))
		}
		r.rest()
	}
}

func (r *regulars) note(payload string, position int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stored[payload] = position
}

func (r *regulars) take() {}

func (r *regulars) check(ctx context.Context, pool *pgxpool.Pool) error {
	log, err := stream.Lookup(ctx, pool, r.stream)
	if err != nil {
		return err
	}
	at := make(map[string]int64)
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
			if at[string(m.Payload)] != 0 {
				r.w.fault("regulars", "stored twice", "%q at %d and %d", m.Payload, at[string(m.Payload)], m.Position)
			}
			at[string(m.Payload)] = m.Position
		}
	}
	for payload, position := range r.stored {
		if at[payload] != position {
			r.w.fault("regulars", "lost", "%q was answered with position %d and is at %d", payload, position, at[payload])
		}
	}
	if len(at) > len(r.stored) {
		r.w.fault("regulars", "not their own", "%d messages are stored, and %d were answered", len(at), len(r.stored))
	}
	r.w.sent += len(r.stored)
	r.w.t.Logf("%d regulars: %d published", r.n, len(r.stored))
	return nil
}
