package hostile

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/eventstore"
)

// slots are events that two callers race for, one after the other: each event
// is appended on the condition that it does not exist yet. A subscriber sees
// all of them.
type slots struct {
	w *world

	mu    sync.Mutex
	taken map[int64]int64 // acknowledged positions, by slot
	last  int64
	seen  []stored
}

func (s *slots) make() {
	s.taken = make(map[int64]int64)
	var slot counter
	var racing sync.WaitGroup
	for n := range 2 {
		racing.Go(func() { s.race(fmt.Sprintf("appender %d", n), &slot) })
	}
	racing.Wait()
}

// race appends for one slot at a time. Each slot is tried twice, so that
// exactly one of the two attempts wins it.
func (s *slots) race(who string, number *counter) {
	ask := int64(0)
	again := false
	s.w.keep(who, "/ws", func(l *line) error {
		for {
			if !again {
				if s.w.producing.Err() != nil {
					return nil
				}
				ask, again = number.next(), true
			}
			if err := s.attempt(l, who, ask); err != nil {
				return err
			}
			again = false
			time.Sleep(s.w.pause)
		}
	})
}

func (s *slots) attempt(l *line, who string, ask int64) error {
	slot, id := ask/2, int(ask)+1
	l.ask(id, `{"type":"append","events":[{"type":"Taken","tags":["good","slot:%d"],"data":{"by":%q},"id":"good/%s %d"}],"condition":{"query":{"items":[{"tags":["good","slot:%d"]}]},"after":0},"id":%d}`,
		slot, who, who, ask, slot, id)
	for answered := false; !answered; {
		err := l.next(func(m message) {
			if m.ID != id {
				l.refused(m)
				return
			}
			answered = true
			switch {
			case m.Type == "ok" && len(m.Positions) == 1:
				s.note(who, slot, m.Positions[0], true)
			case m.Code == "conflict":
				s.note(who, slot, m.Position, false)
			default:
				l.refused(m)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// note records the position of a slot's event: the position must be the same for
// the winner and in conflicts.
func (s *slots) note(who string, slot, position int64, won bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, known := s.taken[slot]; known && at != position {
		s.w.fault(who, "two of one", "slot %d is at %d and at %d (won: %v)", slot, at, position, won)
	}
	s.taken[slot] = position
	s.last = max(s.last, position)
}

func (s *slots) take() {
	last := int64(0)
	who := "watcher of events"
	s.w.keep(who, "/ws", func(l *line) error {
		l.ask(1, `{"type":"subscribe","subscription":"all","query":{"items":[{"tags":["good"]}]},"after":%d,"id":1}`, last)
		var deadline time.Time
		var ended bool
		for {
			err := l.next(func(m message) {
				switch {
				case m.Type == "event" && m.Event.Position <= last:
					s.w.fault(who, "order", "position %d after %d", m.Event.Position, last)
				case m.Type == "event":
					last = m.Event.Position
					s.mu.Lock()
					s.seen = append(s.seen, stored{last, fmt.Sprint(m.Event.Tags)})
					s.mu.Unlock()
				default:
					l.refused(m)
				}
			})
			if err != nil {
				return err
			}
			s.mu.Lock()
			complete := last >= s.last
			s.mu.Unlock()
			if ended, deadline = s.w.ending(deadline); ended && (complete || time.Now().After(deadline)) {
				return nil
			}
		}
	})
}

func (s *slots) check(ctx context.Context, pool *pgxpool.Pool) error {
	client, err := eventstore.Open(ctx, pool, eventstore.Config{})
	if err != nil {
		return err
	}
	defer client.Close(ctx)
	store, err := client.Lookup(ctx, "")
	if err != nil {
		return err
	}
	var all []stored
	at := make(map[string]int64)
	for e, err := range store.QueryStream(ctx, eventstore.Tagged("good"), eventstore.ReadOptions{}) {
		if err != nil {
			return err
		}
		all = append(all, stored{e.Position, fmt.Sprint(e.Tags)})
		slices.Sort(e.Tags)
		if e.Type != "Taken" || len(e.Tags) != 2 {
			s.w.fault("appenders", "not their own", "%s with tags %q is at %d", e.Type, e.Tags, e.Position)
			continue
		}
		if slot := e.Tags[1]; at[slot] != 0 {
			s.w.fault("appenders", "two of one", "%s is at %d and at %d", slot, at[slot], e.Position)
		} else {
			at[slot] = e.Position
		}
	}
	for slot, position := range s.taken {
		if at[fmt.Sprint("slot:", slot)] != position {
			s.w.fault("appenders", "lost", "slot %d was answered with position %d and is at %d", slot, position, at[fmt.Sprint("slot:", slot)])
		}
	}
	s.w.same("watcher of events", s.seen, all)
	s.w.sent += len(s.taken)
	s.w.t.Logf("events: %d slots taken, %d seen", len(s.taken), len(s.seen))
	return nil
}
