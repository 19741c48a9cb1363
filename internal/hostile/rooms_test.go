package hostile

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/stream"
)

// talkers send chats to a room, and a listener in it must miss nothing.
type talkers struct {
	w      *world
	room   string
	stored bool

	mu       sync.Mutex
	present  *generation      // the generation in which the listener has joined
	answered map[string]int64 // positions, 0 in a live room; by text
	heard    map[string]bool
	seen     []stored // in a stored room, by the listener
	gaps     int64    // messages that the server reported as missed to the listener
}

func newTalkers(w *world, room string, stored bool) *talkers {
	return &talkers{w: w, room: room, stored: stored, answered: make(map[string]int64), heard: make(map[string]bool)}
}

func (r *talkers) make() {
	var talking sync.WaitGroup
	for n := range 2 {
		talking.Go(func() { r.talk(fmt.Sprintf("talker %d in %s", n, r.room)) })
	}
	talking.Wait()
}

func (r *talkers) talk(who string) {
	n := 1
	r.w.keep(who, "/ws/chat", func(l *line) error {
		l.ask(1, `{"type":"join","room":%q,"id":1}`, r.room)
		texts := make(map[int]string)
		for {
			for r.w.producing.Err() == nil && len(texts) < 2 && !l.in.stopping() && r.attended(l.in) {
				n++
				texts[n] = fmt.Sprintf("%s, chat %d", who, n)
				l.ask(n, `{"type":"chat","room":%q,"text":%q,"id":%d}`, r.room, texts[n], n)
			}
			if r.w.producing.Err() != nil && len(texts) == 0 {
				return nil
			}
			err := l.next(func(m message) {
				switch m.Type {
				case "ok":
					if text := texts[m.ID]; text != "" {
						r.note(text, m.Position)
					}
					delete(texts, m.ID)
				case "ping":
					l.say(`{"type":"pong"}`)
				case "error":
					l.refused(m)
				}
			})
			if err != nil {
				return err
			}
			time.Sleep(r.w.pause)
		}
	})
}

// attended reports whether the listener is in the room: a live room stores nothing.
func (r *talkers) attended(g *generation) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.present == g
}

func (r *talkers) note(text string, position int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answered[text] = position
}

// take listens; in a stored room it resumes after the last position it saw.
func (r *talkers) take() {
	who := "listener in " + r.room
	last := int64(0)
	r.w.keep(who, "/ws/chat", func(l *line) error {
		join := fmt.Sprintf(`{"type":"join","room":%q,"id":1}`, r.room)
		if r.stored {
			join = fmt.Sprintf(`{"type":"join","room":%q,"after":%d,"id":1}`, r.room, last)
		}
		l.ask(1, "%s", join)
		var deadline time.Time
		var ended bool
		for {
			err := l.next(func(m message) {
				switch m.Type {
				case "ok":
					r.mu.Lock()
					r.present = l.in
					r.mu.Unlock()
				case "ping":
					l.say(`{"type":"pong"}`)
				case "chat":
					r.hear(who, m, &last)
				case "gap":
					r.mu.Lock()
					r.gaps += m.Missed
					r.mu.Unlock()
				case "error":
					l.refused(m)
				}
			})
			if err != nil {
				r.excuse()
				return err
			}
			if ended, deadline = r.w.ending(deadline); ended && (r.complete() || time.Now().After(deadline)) {
				return nil
			}
		}
	})
}

// excuse forgets the last chats of each talker that the listener has not
// received, if it has lost its connection: a live room guarantees nothing
// across a stop.
func (r *talkers) excuse() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.present = nil
	if r.stored {
		return
	}
	last := make(map[string]int)
	for text := range r.heard {
		who, n := chatOf(text)
		last[who] = max(last[who], n)
	}
	for text := range r.answered {
		if who, n := chatOf(text); n > last[who] {
			delete(r.answered, text)
		}
	}
}

// chatOf returns the talker and the number of a chat.
func chatOf(text string) (who string, n int) {
	who, number, _ := strings.Cut(text, ", chat ")
	n, _ = strconv.Atoi(number)
	return who, n
}

func (r *talkers) hear(who string, m message, last *int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !strings.HasPrefix(m.Text, "talker ") {
		r.w.fault(who, "not of the room", "%q", m.Text)
		return
	}
	if r.heard[m.Text] {
		r.w.fault(who, "heard twice", "%q", m.Text)
	}
	r.heard[m.Text] = true
	if !r.stored {
		return
	}
	if m.Position <= *last {
		r.w.fault(who, "order", "position %d after %d", m.Position, *last)
	}
	*last = m.Position
	r.seen = append(r.seen, stored{m.Position, m.Text})
}

func (r *talkers) missed() (n int64, some string) {
	for text := range r.answered {
		if !r.heard[text] {
			n, some = n+1, text
		}
	}
	return n, some
}

func (r *talkers) complete() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, _ := r.missed()
	return n <= r.gaps
}

func (r *talkers) check(ctx context.Context, pool *pgxpool.Pool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n, some := r.missed(); n > r.gaps {
		r.w.fault("listener in "+r.room, "lost", "%d answered chats, %q among them, and was told of gaps of %d", n, some, r.gaps)
	}
	r.w.sent += len(r.answered)
	r.w.t.Logf("room %s: %d chats answered, %d heard, gaps of %d told", r.room, len(r.answered), len(r.heard), r.gaps)
	if !r.stored {
		return nil
	}
	log, err := stream.Lookup(ctx, pool, "tidewire.rooms")
	if err != nil {
		return err
	}
	head, err := log.Head(ctx)
	if err != nil {
		return err
	}
	var all []stored
	for after := int64(0); ; {
		page, err := log.ReadKey(ctx, r.room, after, head, 1000)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			break
		}
		for _, m := range page {
			after = m.Position
			_, text, _ := strings.Cut(string(m.Payload), `"text":"`)
			text, _, _ = strings.Cut(text, `"`)
			all = append(all, stored{m.Position, text})
		}
	}
	at := make(map[string]int64)
	for _, m := range all {
		at[m.payload] = m.position
	}
	for text, position := range r.answered {
		if at[text] != position {
			r.w.fault("talker in "+r.room, "lost", "%q was answered with position %d and is at %d", text, position, at[text])
		}
	}
	r.w.same("listener in "+r.room, r.seen, all)
	return nil
}
