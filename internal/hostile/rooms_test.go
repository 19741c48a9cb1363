package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"

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

func (*talkers) lines() int { return 3 }

func (r *talkers) make() {
	side(2, func(i int) {
		who := fmt.Sprintf("talker %d in %s", i, r.room)
		text := func(n int) string { return fmt.Sprintf("%s, chat %d", who, n) }
		r.w.produce(work{who: who, path: "/ws/chat", join: fmt.Sprintf(`{"type":"join","room":%q,"id":%d}`, r.room, joinID), once: true,
			may: func(g *generation) bool { // a live room stores nothing
				r.mu.Lock()
				defer r.mu.Unlock()
				return r.present == g
			},
			ask: func(l *line, n int) { l.ask(n, `{"type":"chat","room":%q,"text":%q,"id":%d}`, r.room, text(n), n) },
			done: func(n int, m message) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.answered[text(n)] = m.Position
			}})
	})
}

// take listens; in a stored room it resumes after the last position it saw.
func (r *talkers) take() {
	who, last := "listener in "+r.room, int64(0)
	r.w.consume(who, "/ws/chat",
		func(l *line) {
			r.excuse()
			after := ""
			if r.stored {
				after = fmt.Sprintf(`"after":%d,`, last)
			}
			l.ask(joinID, `{"type":"join","room":%q,%s"id":%d}`, r.room, after, joinID)
		},
		func(l *line, m message) {
			r.mu.Lock()
			defer r.mu.Unlock()
			switch m.Type {
			case "ok":
				r.present = l.in
			case "gap":
				r.gaps += m.Missed
			case "chat":
				r.hear(who, m, &last)
			}
		},
		func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			n, _ := r.missed()
			return n <= r.gaps
		})
}

// excuse forgets the last chats of each talker that the listener has not received, if it has lost its connection: a live room guarantees nothing across a
// stop.
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

func (r *talkers) check(ctx context.Context, pool *pgxpool.Pool) error {
	if n, some := r.missed(); n > r.gaps {
		r.w.fault("listener in "+r.room, "lost", "%d answered chats, %q among them, and gaps of %d were reported", n, some, r.gaps)
	}
	r.w.t.Logf("room %s: %d chats answered, %d heard, gaps of %d", r.room, len(r.answered), len(r.heard), r.gaps)
	if !r.stored {
		r.w.sent += len(r.answered)
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
	all, err := pages(func(after int64) ([]stream.Message, error) { return log.ReadKey(ctx, r.room, after, head, 1000) })
	if err != nil {
		return err
	}
	for i, m := range all {
		var chat struct{ Text string }
		if err := json.Unmarshal([]byte(m.payload), &chat); err != nil {
			return err
		}
		all[i].payload = chat.Text
	}
	r.w.promised("talkers in "+r.room, r.answered, all)
	r.w.same("listener in "+r.room, r.seen, all)
	return nil
}
