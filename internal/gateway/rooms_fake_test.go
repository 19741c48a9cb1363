package gateway_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/testkit"
)

// memoryStore keeps stored rooms in memory.
type memoryStore struct {
	*commits
	state   sync.Mutex
	changed chan struct{} // closed when anything changes

	rooms    []string // of position i+1; "" if a failover has lost it
	stored   [][]byte
	requests map[engine.RequestID]int64 // positions

	fail   error         // of commits
	broken error         // of reads
	unseen bool          // by Follow
	let    chan struct{} // if not nil, reads end when it is closed
	slow   time.Duration // of a read

	followed                 int64 // the position up to which Follow has passed on everything
	widest, reads, mostReads int   // largest requested page in bytes; reads that go on; most of them at a time
}

func newMemoryStore(t *testing.T) *memoryStore {
	return &memoryStore{commits: new(commits), requests: make(map[engine.RequestID]int64), changed: make(chan struct{})}
}

func (s *memoryStore) change(do func()) {
	s.state.Lock()
	defer s.state.Unlock()
	do()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *memoryStore) look(what func() int) int {
	s.state.Lock()
	defer s.state.Unlock()
	return what()
}

// count is how many chats are stored.
func (s *memoryStore) count() int { return s.look(func() int { return len(s.stored) }) }

// reading is how many reads are under way.
func (s *memoryStore) reading() int { return s.look(func() int { return s.reads }) }

func (s *memoryStore) Append(_ context.Context, room string, as *engine.RequestID, payload []byte, done func(int64, bool, error)) error {
	payload = slices.Clone(payload)
	s.later(func() {
		var position int64
		var duplicate bool
		var err error
		s.change(func() {
			if as != nil {
				position, duplicate = s.requests[*as]
			}
			if err = s.fail; err != nil || duplicate {
				return
			}
			position = s.add(room, payload)
			if as != nil {
				s.requests[*as] = position
			}
		})
		done(position, duplicate, err)
	})
	return nil
}

func (s *memoryStore) add(room string, payload []byte) int64 {
	s.rooms, s.stored = append(s.rooms, room), append(s.stored, payload)
	return int64(len(s.stored))
}

// put stores messages of another server.
func (s *memoryStore) put(room string, payloads ...string) {
	s.change(func() {
		for _, p := range payloads {
			s.add(room, []byte(p))
		}
	})
}

// lose simulates a failover that loses the messages from a position on. These positions are not used again.
func (s *memoryStore) lose(from int64) { s.change(func() { clear(s.rooms[max(from-1, 0):]) }) }

// see says whether Follow sees anything.
func (s *memoryStore) see(seen bool) { s.change(func() { s.unseen = !seen }) }

func (s *memoryStore) After(_ context.Context, room string, after, upTo int64, limit, bytes int) (out []engine.RoomMessage, err error) {
	s.state.Lock()
	s.widest, s.reads = max(s.widest, bytes), s.reads+1
	s.mostReads = max(s.mostReads, s.reads)
	let, slow := s.let, s.slow
	for i := after; i < min(upTo, int64(len(s.stored))) && len(out) < limit && bytes > 0; i++ {
		if s.rooms[i] == room {
			out = append(out, engine.RoomMessage{Position: i + 1, Payload: s.stored[i]})
			bytes -= len(s.stored[i])
		}
	}
	err = s.broken
	s.state.Unlock()
	if let != nil { // after the read, so that the result is outdated
		<-let
	}
	if slow > 0 {
		<-time.After(slow)
	}
	s.change(func() { s.reads-- })
	return out, err
}

func (s *memoryStore) Start(_ context.Context, room string, upTo int64, n int) (int64, error) {
	s.state.Lock()
	defer s.state.Unlock()
	after := upTo
	for i := min(upTo, int64(len(s.stored))) - 1; i >= 0 && n > 0; i-- {
		if s.rooms[i] == room {
			after, n = i, n-1
		}
	}
	return after, s.broken
}

func (s *memoryStore) FromEnd(_ context.Context, room string, after int64, n int) (int64, error) {
	s.state.Lock()
	defer s.state.Unlock()
	for i := len(s.rooms) - 1; i >= int(after); i-- {
		if s.rooms[i] == room {
			if n--; n == 0 {
				return int64(i) + 1, nil
			}
		}
	}
	return 0, nil
}

func (s *memoryStore) Head(context.Context) (int64, error) {
	s.state.Lock()
	defer s.state.Unlock()
	return s.last(int64(len(s.rooms))), s.broken
}

// last is the last position up to one that no failover has lost.
func (s *memoryStore) last(upTo int64) int64 {
	for upTo = min(upTo, int64(len(s.rooms))); upTo > 0 && s.rooms[upTo-1] == ""; upTo-- {
	}
	return upTo
}

// check returns an error for a position that there is not. s.state is held.
func (s *memoryStore) check(position int64) error {
	if last := s.last(position); last < position {
		return &engine.HistoryLostError{Last: last}
	}
	return nil
}

func (s *memoryStore) Check(_ context.Context, position int64) error {
	s.state.Lock()
	defer s.state.Unlock()
	return s.check(position)
}

func (s *memoryStore) Follow(ctx context.Context, after int64, receive func([]engine.RoomMessage)) error {
	for {
		s.state.Lock()
		s.followed = after
		changed, err := s.changed, s.check(after)
		var page []engine.RoomMessage
		for i := after; i < int64(len(s.rooms)) && !s.unseen; i++ {
			if s.rooms[i] != "" {
				page = append(page, engine.RoomMessage{Room: s.rooms[i], Position: i + 1, Payload: s.stored[i]})
			}
		}
		s.state.Unlock()
		if err != nil {
			return err
		}
		if len(page) > 0 {
			receive(page)
			after = page[len(page)-1].Position
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// awaitFollower waits until Follow has passed on everything up to a position.
func (s *memoryStore) awaitFollower(t *testing.T, position int) {
	t.Helper()
	testkit.Eventually(t, "the follower has seen the chats", func() bool { return s.look(func() int { return int(s.followed) }) >= position })
}

// serveStored serves chats alone, with stored rooms.
func serveStored(t *testing.T) (*memoryStore, *gateway.Server, string) {
	store := newMemoryStore(t)
	server, addr := serve(t, storedConfig(store))
	return store, server, addr
}

func storedConfig(store engine.Rooms) gateway.Config {
	return gateway.Config{
		Engine: engine.Engine{Rooms: store}, Only: gateway.Chat,
		Chat: gateway.ChatConfig{StoredRooms: []string{"kept-*"}, RateLimit: 1e6, RateBurst: 1e6},
	}
}
