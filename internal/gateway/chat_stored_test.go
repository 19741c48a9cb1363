package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/websocket"
)

// memoryStore keeps rooms in memory. It commits one message after the other in
// a separate goroutine, unless it is held.
type memoryStore struct {
	mu      sync.Mutex
	rooms   []string // of position i+1
	stored  [][]byte
	waiting []func()
	held    bool
	fail    error // of commits
	broken  error // of reads
	wake    chan struct{}
	slow    time.Duration // of a read

	lost, lostUpTo int64 // range that a failover has lost
	unseen         bool  // by Follow
	followed       int64 // the position up to which Follow has passed on everything

	let chan struct{} // if not nil, reads end when it is closed

	requests map[engine.RequestID]int64 // positions

	widest, reads, mostReads int // largest requested page in bytes; reads; most concurrent reads
}

func newMemoryStore(t *testing.T) *memoryStore {
	s := &memoryStore{wake: make(chan struct{}, 1), requests: make(map[engine.RequestID]int64)}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-s.wake:
				s.commit()
			case <-ctx.Done():
				return
			}
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return s
}

func (s *memoryStore) commit() {
	for {
		s.mu.Lock()
		if s.held || len(s.waiting) == 0 {
			s.mu.Unlock()
			return
		}
		next := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.mu.Unlock()
		next()
	}
}

func (s *memoryStore) hold(held bool) {
	s.mu.Lock()
	s.held = held
	s.mu.Unlock()
	s.nudge()
}

func (s *memoryStore) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *memoryStore) Append(_ context.Context, room string, as *engine.RequestID, payload []byte, done func(int64, bool, error)) error {
	payload = append([]byte(nil), payload...)
	s.mu.Lock()
	s.waiting = append(s.waiting, func() {
		s.mu.Lock()
		err := s.fail
		var position int64
		duplicate := false
		if as != nil {
			position, duplicate = s.requests[*as]
		}
		if err == nil && !duplicate {
			s.rooms, s.stored = append(s.rooms, room), append(s.stored, payload)
			position = int64(len(s.stored))
			if as != nil {
				s.requests[*as] = position
			}
		}
		s.mu.Unlock()
		done(position, duplicate, err)
	})
	s.mu.Unlock()
	s.nudge()
	return nil
}

func (s *memoryStore) After(_ context.Context, room string, after, upTo int64, limit, bytes int) (out []engine.RoomMessage, err error) {
	s.mu.Lock()
	s.widest, s.reads = max(s.widest, bytes), s.reads+1
	s.mostReads = max(s.mostReads, s.reads)
	slow, let := s.slow, s.let
	s.mu.Unlock()
	defer func() {
		if let != nil {
			<-let
		}
		time.Sleep(slow) // after the read, so that the result is outdated
		s.mu.Lock()
		s.reads--
		s.mu.Unlock()
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := after; i < min(upTo, int64(len(s.stored))) && len(out) < limit && bytes > 0; i++ {
		if s.rooms[i] == room {
			out = append(out, engine.RoomMessage{Position: i + 1, Payload: s.stored[i]})
			bytes -= len(s.stored[i])
		}
	}
	return out, s.broken
}

func (s *memoryStore) Start(_ context.Context, room string, upTo int64, n int) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	after := upTo
	for i := min(upTo, int64(len(s.stored))) - 1; i >= 0 && n > 0; i-- {
		if s.rooms[i] == room {
			after, n = i, n-1
		}
	}
	return after, s.broken
}

func (s *memoryStore) Head(context.Context) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.headLocked(), s.broken
}

func (s *memoryStore) headLocked() int64 {
	head := len(s.rooms)
	for head > 0 && s.rooms[head-1] == "" {
		head--
	}
	return int64(head)
}

// see says whether Follow sees anything.
func (s *memoryStore) see(seen bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unseen = !seen
}

// put stores a message of another server.
func (s *memoryStore) put(room, payload string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rooms, s.stored = append(s.rooms, room), append(s.stored, []byte(payload))
}

// lose simulates a failover that loses the messages from a position on. These
// positions are not used again.
func (s *memoryStore) lose(from int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.rooms[from-1:])
	s.lost, s.lostUpTo = from, int64(len(s.rooms))
}

func (s *memoryStore) FromEnd(_ context.Context, room string, after int64, n int) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.rooms) - 1; i >= int(after); i-- {
		if s.rooms[i] != room {
			continue
		}
		if n--; n == 0 {
			return int64(i) + 1, nil
		}
	}
	return 0, nil
}

func (s *memoryStore) Check(_ context.Context, position int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost > 0 && s.lost <= position && position <= s.lostUpTo {
		return &engine.HistoryLostError{Last: s.lost - 1}
	}
	if head := s.headLocked(); position > head {
		return &engine.HistoryLostError{Last: head}
	}
	return nil
}

// Follow polls.
func (s *memoryStore) Follow(ctx context.Context, after int64, receive func([]engine.RoomMessage)) error {
	s.mu.Lock()
	s.followed = after
	s.mu.Unlock()
	for tick := time.NewTicker(time.Millisecond); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		s.mu.Lock()
		lost := s.lost > 0 && s.lost <= after && after <= s.lostUpTo
		var page []engine.RoomMessage
		for i := after; i < int64(len(s.rooms)) && !s.unseen; i++ {
			if s.rooms[i] != "" {
				page = append(page, engine.RoomMessage{Room: s.rooms[i], Position: i + 1, Payload: s.stored[i]})
			}
		}
		last := s.lost - 1
		s.mu.Unlock()
		if lost {
			return &engine.HistoryLostError{Last: last}
		}
		if len(page) > 0 {
			receive(page)
			after = page[len(page)-1].Position
			s.mu.Lock()
			s.followed = after
			s.mu.Unlock()
		}
	}
}

// awaitFollower waits until Follow has passed on everything up to a position.
func (s *memoryStore) awaitFollower(t *testing.T, position int64) {
	t.Helper()
	waitFor(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.followed >= position }, "the follower does not see the chats")
}

func serveStored(t *testing.T) (*memoryStore, *gateway.Server, string) {
	store := newMemoryStore(t)
	server, addr := serve(t, gateway.Config{
		Engine: engine.Engine{Rooms: store},
		Only:   gateway.Chat,
		Chat:   gateway.ChatConfig{StoredRooms: []string{"kept-*"}, RateLimit: 1e6, RateBurst: 1e6},
	})
	return store, server, addr
}

func TestStored_AnswerAndDeliveryComeAfterTheCommit(t *testing.T) {
	t.Parallel()
	store, _, addr := serveStored(t)
	alice, bob := dial(t, "ws://"+addr+"/ws"), dial(t, "ws://"+addr+"/ws")
	for _, c := range []*websocket.Conn{alice, bob} {
		send(t, c, `{"type":"join","room":"kept-1","id":1}`)
		expect(t, c, `{"history":0,"id":1,"position":0,"type":"ok"}`)
	}
	store.hold(true)
	send(t, alice, `{"type":"chat","room":"kept-1","text":"é","more":[1],"id":"a"} `, `{"type":"chat","room":"kept-1","text":"2"}`, `{"type":"ping","ts":7}`)
	expect(t, alice, `{"ts":7,"type":"pong"}`) // handled after both, and no answer to them
	send(t, bob, `{"type":"ping","ts":8}`)
	expect(t, bob, `{"ts":8,"type":"pong"}`)
	store.hold(false)
	expect(t, alice, `{"id":"a","position":1,"type":"ok"}`)
	expect(t, bob, `{"type":"chat","room":"kept-1","text":"é","more":[1],"position":1}`, `{"type":"chat","room":"kept-1","text":"2","position":2}`)
}

func TestStored_HistoryAndResume(t *testing.T) {
	t.Parallel()
	_, _, addr := serveStored(t)
	talker := dial(t, "ws://"+addr+"/ws")
	send(t, talker, `{"type":"join","room":"kept-1"}`, `{"type":"join","room":"kept-2","id":0}`)
	expect(t, talker, `{"history":0,"id":0,"position":0,"type":"ok"}`)
	for n := 1; n <= 6; n++ {
		send(t, talker, fmt.Sprintf(`{"type":"chat","room":"kept-%d","text":"%d","id":%d}`, 1+n%2, n, n))
		expect(t, talker, fmt.Sprintf(`{"id":%d,"position":%d,"type":"ok"}`, n, n))
	}
	chat := func(n int) string {
		return fmt.Sprintf(`{"type":"chat","room":"kept-%d","text":"%d","position":%d}`, 1+n%2, n, n)
	}
	for _, c := range []struct {
		join string
		want []string
	}{
		{`"history":2`, []string{chat(4), chat(6), `{"history":2,"id":9,"position":6,"type":"ok"}`}},
		{`"history":100`, []string{chat(2), chat(4), chat(6), `{"history":3,"id":9,"position":6,"type":"ok"}`}},
		{`"after":2`, []string{chat(4), chat(6), `{"history":2,"id":9,"position":6,"type":"ok"}`}},
		{`"after":6`, []string{`{"history":0,"id":9,"position":6,"type":"ok"}`}},
		{`"after":0`, []string{chat(2), chat(4), chat(6), `{"history":3,"id":9,"position":6,"type":"ok"}`}},
		{`"after":7`, []string{`{"code":"history_lost","id":9,"last":6,"message":"the position is after the end, or a failover has lost it: discard what you have after last, and continue there","retryable":false,"type":"error"}`}},
		{`"after":-1`, []string{`{"code":"malformed","id":9,"message":"after: want a whole number, 0 or more","retryable":false,"type":"error"}`}},
	} {
		member := dial(t, "ws://"+addr+"/ws")
		send(t, member, fmt.Sprintf(`{"type":"join","room":"kept-1","id":9,%s}`, c.join))
		expect(t, member, c.want...)
	}
	other := dial(t, "ws://"+addr+"/ws")
	send(t, other, `{"type":"join","room":"loose","after":1,"id":1}`)
	expect(t, other, `{"code":"room_not_stored","id":1,"message":"the chats of this room are not stored: join without after and history","retryable":false,"type":"error"}`)
}

// TestStored_NoGapAndNothingTwice: members join while messages are published,
// and resume after some position: each gets every message after that, once.
func TestStored_NoGapAndNothingTwice(t *testing.T) {
	t.Parallel()
	store, _, addr := serveStored(t)
	store.slow = 3 * time.Millisecond
	const total, talkers, joiners = 3000, 3, 12
	var talking sync.WaitGroup
	for range talkers {
		c := dial(t, "ws://"+addr+"/ws")
		send(t, c, `{"type":"join","room":"kept-1","id":1}`)
		talking.Go(func() {
			go func() { // discards messages of others
				for _, err := read(c); err == nil; _, err = read(c) {
				}
			}()
			for n := range total / talkers {
				c.Queue(websocket.OpText, fmt.Appendf(nil, `{"type":"chat","room":"kept-1","text":"%d"}`, n))
				if c.Flush(); n%10 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	for i := range joiners {
		talking.Go(func() {
			time.Sleep(time.Duration(i) * 15 * time.Millisecond)
			c := dial(t, "ws://"+addr+"/ws")
			after := int64(0)
			for range 3 { // and comes back twice, and resumes
				c.Queue(websocket.OpText, fmt.Appendf(nil, `{"type":"join","room":"kept-1","after":%d}`, after))
				c.Flush()
				after = follow(t, c, after, min(after+300+int64(i)*50, total))
				c.Abort()
				c = dial(t, "ws://"+addr+"/ws")
			}
			c.Queue(websocket.OpText, fmt.Appendf(nil, `{"type":"join","room":"kept-1","after":%d}`, after))
			c.Flush()
			follow(t, c, after, total)
		})
	}
	talking.Wait()
}

// follow reads up to a position, and expects every position once and in order.
func follow(t *testing.T, c *websocket.Conn, after, to int64) int64 {
	c.SetReadDeadline(time.Now().Add(patience))
	for after < to {
		messages, err := read(c)
		for _, m := range messages {
			var chat struct{ Position int64 }
			if json.Unmarshal(m.Payload, &chat) != nil || chat.Position != after+1 {
				t.Errorf("after position %d came %s", after, m.Payload)
				return to
			}
			after = chat.Position
		}
		if err != nil {
			t.Errorf("at position %d of %d: %v", after, to, err)
			return to
		}
	}
	return after
}

func TestStored_ErrorsAreTold(t *testing.T) {
	t.Parallel()
	store, _, addr := serveStored(t)
	c := dial(t, "ws://"+addr+"/ws")
	send(t, c, `{"type":"join","room":"kept-1","id":1}`)
	expect(t, c, `{"history":0,"id":1,"position":0,"type":"ok"}`)
	store.mu.Lock()
	store.fail, store.broken = errors.New("disk full"), errors.New("away")
	store.mu.Unlock()
	send(t, c, `{"type":"chat","room":"kept-1","text":"x","id":2}`)
	expect(t, c, `{"code":"not_stored","id":2,"message":"the message could not be stored","retryable":true,"type":"error"}`)
	send(t, c, `{"type":"join","room":"kept-2","history":5,"id":3}`)
	expect(t, c, `{"code":"unavailable","id":3,"message":"this cannot be read now; try again later","retryable":true,"type":"error"}`)
	send(t, c, `{"type":"chat","room":"kept-2","text":"x","id":4}`)
	expect(t, c, `{"code":"not_joined","id":4,"message":"join the room first","retryable":false,"type":"error"}`)
	for id, known := range map[int]struct {
		err        error
		chat, join string
	}{
		5: {engine.ErrOutcomeUnknown, "outcome_unknown", "unavailable"},
		6: {engine.ErrRefused, "database_refused", "database_refused"},
	} {
		err := fmt.Errorf("wrapped: %w", known.err)
		store.mu.Lock()
		store.fail, store.broken = err, err
		store.mu.Unlock()
		send(t, c, fmt.Sprintf(`{"type":"chat","room":"kept-1","text":"x","id":%d}`, id))
		if got := nextCode(t, c); got != known.chat {
			t.Errorf("a chat, %v: %s, want %s", err, got, known.chat)
		}
		send(t, c, fmt.Sprintf(`{"type":"join","room":"kept-2","history":5,"id":%d}`, id))
		if got := nextCode(t, c); got != known.join {
			t.Errorf("a join, %v: %s, want %s", err, got, known.join)
		}
	}
}

// TestStored_CloseComesAfterTheAnswers: the Close frame comes after the
// answers, regardless of which side closes.
func TestStored_CloseComesAfterTheAnswers(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(c *websocket.Conn, s *gateway.Server){
		"client": func(c *websocket.Conn, _ *gateway.Server) { c.StartClose(websocket.StatusNormal, "") },
		"leave": func(c *websocket.Conn, _ *gateway.Server) {
			c.Queue(websocket.OpText, []byte(`{"type":"leave"}`))
			c.Flush()
		},
		"server": func(_ *websocket.Conn, s *gateway.Server) { go s.Shutdown(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, server, addr := serveStored(t)
			c := dial(t, "ws://"+addr+"/ws")
			send(t, c, `{"type":"join","room":"kept-1","id":1}`)
			expect(t, c, `{"history":0,"id":1,"position":0,"type":"ok"}`)
			store.hold(true)
			send(t, c, `{"type":"chat","room":"kept-1","text":"x","id":2}`, `{"type":"ping"}`)
			expect(t, c, `{"ts":null,"type":"pong"}`)
			end(c, server)
			time.AfterFunc(20*time.Millisecond, func() { store.hold(false) })
			expect(t, c, `{"id":2,"position":1,"type":"ok"}`)
		})
	}
}

// TestStored_StopDoesNotWaitForEver: a stop does not wait forever for a store
// that never answers.
func TestStored_StopDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	store, server, addr := serveStored(t)
	c := dial(t, "ws://"+addr+"/ws")
	send(t, c, `{"type":"join","room":"kept-1","id":1}`)
	expect(t, c, `{"history":0,"id":1,"position":0,"type":"ok"}`)
	store.hold(true)
	send(t, c, `{"type":"chat","room":"kept-1","text":"x","id":2}`, `{"type":"ping"}`)
	expect(t, c, `{"ts":null,"type":"pong"}`)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the stop returned %v", err)
	}
	store.hold(false) // answers nobody
}
