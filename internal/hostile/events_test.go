package hostile

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/eventstore"
)

// slots are events that two callers race for: each appends each of them, on the condition that it does not exist yet. A subscriber sees all of them.
type slots struct {
	w *world

	mu    sync.Mutex
	taken map[int]int64 // acknowledged positions, by slot
	last  int64
	seen  []stored
}

func (*slots) lines() int { return 3 }

func (s *slots) make() {
	s.taken = make(map[int]int64)
	side(2, func(i int) {
		who := fmt.Sprintf("appender %d", i)
		s.w.produce(work{who: who, path: "/ws",
			ask: func(l *line, slot int) {
				l.ask(slot, `{"type":"append","events":[{"type":"Taken","tags":["good","slot:%d"],"data":{"by":%q},"id":"good/%s %d"}],"condition":{"query":{"items":[{"tags":["good","slot:%d"]}]},"after":0},"id":%d}`,
					slot, who, who, slot, slot, slot)
			},
			done: func(slot int, m message) { // the position is the same for the winner and in conflicts
				s.mu.Lock()
				defer s.mu.Unlock()
				position := m.Position
				if len(m.Positions) == 1 {
					position = m.Positions[0]
				}
				if at, known := s.taken[slot]; known && at != position {
					s.w.fault(who, "two of one", "slot %d is at %d and at %d: %+v", slot, at, position, m)
				}
				s.taken[slot] = position
				s.last = max(s.last, position)
			}})
	})
}

func (s *slots) take() {
	last, who := int64(0), "watcher of events"
	s.w.consume(who, "/ws",
		func(l *line) {
			l.ask(joinID, `{"type":"subscribe","subscription":"all","query":{"items":[{"tags":["good"]}]},"after":%d,"id":%d}`, last, joinID)
		},
		func(_ *line, m message) {
			if m.Type != "event" {
				return
			}
			if m.Event.Position <= last {
				s.w.fault(who, "order", "position %d after %d", m.Event.Position, last)
			}
			last = m.Event.Position
			s.seen = append(s.seen, stored{last, fmt.Sprint(m.Event.Tags)})
		},
		func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return last >= s.last
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
	var all, named []stored
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
		named = append(named, stored{e.Position, e.Tags[1]})
	}
	answered := make(map[string]int64)
	for slot, position := range s.taken {
		answered[fmt.Sprint("slot:", slot)] = position
	}
	s.w.promised("appenders", answered, named)
	s.w.same("watcher of events", s.seen, all)
	s.w.t.Logf("events: %d slots taken, %d seen", len(s.taken), len(s.seen))
	return nil
}
