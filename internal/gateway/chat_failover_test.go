package gateway_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/websocket"
)

// failingStore is a store that fails over again and again: its last rows are lost, and positions go on in the next thousand.
type failingStore struct {
	mu     sync.Mutex
	rows   []engine.RoomMessage
	issued int64
}

func (s *failingStore) find(position int64) (at int, found bool) {
	return slices.BinarySearchFunc(s.rows, position, func(r engine.RoomMessage, p int64) int { return cmp.Compare(r.Position, p) })
}

func (s *failingStore) put(room string, payload []byte) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.issued++
	s.rows = append(s.rows, engine.RoomMessage{Room: room, Position: s.issued, Payload: payload})
	return s.issued
}

func (s *failingStore) lose(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows = slices.Clone(s.rows[:max(len(s.rows)-n, 0)])
	s.issued = (s.issued/1000 + 1) * 1000
}

func (s *failingStore) check(position int64) error {
	at, found := s.find(position)
	switch {
	case position == 0 || found:
		return nil
	case at == 0:
		return &engine.HistoryLostError{}
	}
	return &engine.HistoryLostError{Last: s.rows[at-1].Position}
}

func (s *failingStore) Check(_ context.Context, position int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.check(position)
}

func (s *failingStore) After(_ context.Context, room string, after, upTo int64, limit, _ int) (out []engine.RoomMessage, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.rows {
		if r.Position > after && r.Position <= upTo && r.Room == room && len(out) < limit {
			out = append(out, r)
		}
	}
	return out, nil
}

func (s *failingStore) Start(context.Context, string, int64, int) (int64, error) { return 0, nil }

func (s *failingStore) FromEnd(context.Context, string, int64, int) (int64, error) { return 0, nil }

func (s *failingStore) Head(context.Context) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rows) == 0 {
		return 0, nil
	}
	return s.rows[len(s.rows)-1].Position, nil
}

func (s *failingStore) Follow(ctx context.Context, after int64, receive func([]engine.RoomMessage)) error {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(1+rand.IntN(10)) * time.Millisecond)
		s.mu.Lock()
		err := s.check(after)
		at, _ := s.find(after + 1)
		page := slices.Clone(s.rows[at:])
		s.mu.Unlock()
		if err != nil {
			return err
		}
		if len(page) > 0 {
			receive(page)
			after = page[len(page)-1].Position
		}
	}
	return ctx.Err()
}

// oneOf is what one of several servers sees of the store: its chats are stored, and it hears of that, late, in order.
type oneOf struct {
	*failingStore
	chats chan func()
}

func (s oneOf) Append(_ context.Context, room string, _ *engine.RequestID, payload []byte, done func(int64, bool, error)) error {
	payload = slices.Clone(payload)
	s.chats <- func() {
		at := s.put(room, payload)
		if rand.IntN(4) == 0 {
			time.Sleep(time.Duration(rand.IntN(8)) * time.Millisecond)
		}
		done(at, false, nil)
	}
	return nil
}

// viewer is a member that keeps what it has: chats, and the answers to its own, by position.
type viewer struct {
	conn *websocket.Conn
	mu   sync.Mutex
	view map[int64]string
	odd  []string
}

func (v *viewer) read() {
	for {
		messages, err := read(v.conn)
		v.mu.Lock()
		for _, m := range messages {
			var got struct {
				Type           string
				Position, Last int64
				UpTo           int64 `json:"up_to"`
			}
			json.Unmarshal(m.Payload, &got)
			switch got.Type {
			case "ok", "chat":
				if v.view[got.Position] != "" {
					v.odd = append(v.odd, "twice: "+string(m.Payload))
				}
				v.view[got.Position] = got.Type
			case "history_lost":
				for p := range v.view {
					if p > got.Last && p <= got.UpTo {
						delete(v.view, p)
					}
				}
			}
		}
		v.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// wrong returns in what the view differs from what is stored.
func (v *viewer) wrong(rows []engine.RoomMessage) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := slices.Clone(v.odd)
	for _, r := range rows {
		if v.view[r.Position] == "" {
			all = append(all, fmt.Sprint("misses ", r.Position))
		}
	}
	if len(v.view) > len(rows) {
		all = append(all, fmt.Sprint("has ", len(v.view)-len(rows), " that are lost"))
	}
	return strings.Join(all, ", ")
}

// TestStored_ManyFailovers: members at three servers talk while failovers lose chats, sometimes two at once. In the end, each member has what is stored, and
// knows of all the rest that it is lost.
func TestStored_ManyFailovers(t *testing.T) {
	t.Parallel()
	store := &failingStore{}
	var all []*viewer
	for range 3 {
		one := oneOf{store, make(chan func(), 10_000)}
		var running sync.WaitGroup
		running.Go(func() {
			for chat := range one.chats {
				chat()
			}
		})
		t.Cleanup(func() { close(one.chats); running.Wait() })
		_, addr := serve(t, gateway.Config{
			Engine: engine.Engine{Rooms: one}, Only: gateway.Chat, Chat: gateway.ChatConfig{StoredRooms: []string{"kept-*"}, RateLimit: 1e6, RateBurst: 1e6},
		})
		for range 2 {
			v := &viewer{conn: dial(t, "ws://"+addr+"/ws"), view: make(map[int64]string)}
			send(t, v.conn, `{"type":"join","room":"kept-1","id":0}`)
			expect(t, v.conn, `{"history":0,"id":0,"position":0,"type":"ok"}`)
			v.conn.SetReadDeadline(time.Time{})
			go v.read() // until the test closes the connection
			all = append(all, v)
		}
	}
	for round := range 4 * pgtest.Seeds() {
		for n := range 40 {
			for who, v := range all {
				if rand.IntN(2) == 0 {
					v.conn.Queue(websocket.OpText, fmt.Appendf(nil, `{"type":"chat","room":"kept-1","text":"%d-%d-%d","id":1}`, who, round, n))
					v.conn.Flush()
				}
			}
			time.Sleep(time.Millisecond)
		}
		store.lose(1 + rand.IntN(25))
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		if rand.IntN(2) == 0 {
			store.lose(1 + rand.IntN(25))
		}
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		store.mu.Lock()
		rows := slices.Clone(store.rows)
		store.mu.Unlock()
		var wrong []string
		for who, v := range all {
			if what := v.wrong(rows); what != "" {
				wrong = append(wrong, fmt.Sprint("member ", who, " ", what))
			}
		}
		if len(wrong) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(strings.Join(wrong, "\n"))
		}
	}
}

// slowCheck answers the first question about a loss late.
type slowCheck struct {
	*memoryStore
	asked, let chan struct{}
	once       atomic.Bool
}

func (s *slowCheck) Check(ctx context.Context, position int64) error {
	err := s.memoryStore.Check(ctx, position)
	if err != nil && s.once.CompareAndSwap(false, true) {
		close(s.asked)
		<-s.let
	}
	return err
}

// TestStored_LossIsFoundTwice: the follower finds a loss while the check for it is waiting for its answer. It is told once, and what has come since stays.
func TestStored_LossIsFoundTwice(t *testing.T) {
	t.Parallel()
	store := &slowCheck{memoryStore: newMemoryStore(t), asked: make(chan struct{}), let: make(chan struct{})}
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Rooms: store}, Only: gateway.Chat, Chat: gateway.ChatConfig{StoredRooms: []string{"kept-*"}}})
	member := dial(t, "ws://"+addr+"/ws")
	send(t, member, `{"type":"join","room":"kept-1","id":0}`)
	expect(t, member, `{"history":0,"id":0,"position":0,"type":"ok"}`)
	say := func(n int) {
		send(t, member, fmt.Sprintf(`{"type":"chat","room":"kept-1","text":"%d","id":%d}`, n, n))
		expect(t, member, fmt.Sprintf(`{"id":%d,"position":%d,"type":"ok"}`, n, n))
	}
	say(1)
	last := dial(t, "ws://"+addr+"/ws")
	send(t, last, `{"type":"join","room":"kept-1","after":1,"id":0}`) // the follower has seen it, or the join has waited for that
	expect(t, last, `{"history":0,"id":0,"position":1,"type":"ok"}`)
	store.awaitFollower(t, 1)
	store.see(false)
	say(2)
	store.lose(2)
	<-store.asked // lost after 1
	store.put("kept-1", `{"type":"chat","room":"kept-1","text":"3, of the new history"}`)
	store.see(true)
	expect(t, member, `{"type":"history_lost","room":"kept-1","last":1,"up_to":2}`, `{"type":"chat","room":"kept-1","text":"3, of the new history","position":3}`)
	close(store.let)
	again := dial(t, "ws://"+addr+"/ws")
	send(t, again, `{"type":"join","room":"kept-1","after":1,"id":9}`)
	expect(t, again, `{"type":"chat","room":"kept-1","text":"3, of the new history","position":3}`, `{"history":1,"id":9,"position":3,"type":"ok"}`)
}

// TestStored_LostWhileCatchingUp: chats that a join has sent as history are lost before it ends.
func TestStored_LostWhileCatchingUp(t *testing.T) {
	t.Parallel()
	store, _, addr := serveStored(t)
	member := dial(t, "ws://"+addr+"/ws")
	send(t, member, `{"type":"join","room":"kept-1","id":0}`)
	expect(t, member, `{"history":0,"id":0,"position":0,"type":"ok"}`)
	for n := 1; n <= 3; n++ {
		send(t, member, fmt.Sprintf(`{"type":"chat","room":"kept-1","text":"%d","id":%d}`, n, n))
		expect(t, member, fmt.Sprintf(`{"id":%d,"position":%d,"type":"ok"}`, n, n))
	}
	let := make(chan struct{})
	store.mu.Lock()
	store.let = let
	store.mu.Unlock()
	joiner := dial(t, "ws://"+addr+"/ws")
	send(t, joiner, `{"type":"join","room":"kept-1","id":9,"after":0}`)
	waitFor(t, func() bool { store.mu.Lock(); defer store.mu.Unlock(); return store.reads > 0 }, "no page is read")
	store.lose(2)
	expect(t, member, `{"type":"history_lost","room":"kept-1","last":1,"up_to":3}`)
	close(let)
	chat := func(n int) string {
		return fmt.Sprintf(`{"type":"chat","room":"kept-1","text":"%d","position":%d}`, n, n)
	}
	expect(t, joiner, chat(1), chat(2), chat(3), `{"code":"history_lost","id":9,"last":1,"message":"the position is after the end, or a failover has lost it: discard what you have after last, and continue there","retryable":false,"type":"error"}`)
}

// refusing takes one chat, whose outcome comes late, and refuses the others.
type refusing struct {
	*memoryStore
	chats atomic.Int32
	let   chan struct{}
}

func (s *refusing) Append(ctx context.Context, room string, as *engine.RequestID, payload []byte, done func(int64, bool, error)) error {
	if s.chats.Add(1) > 1 {
		return engine.ErrRefused
	}
	return s.memoryStore.Append(ctx, room, as, payload, func(position int64, duplicate bool, err error) {
		go func() { <-s.let; done(position, duplicate, err) }()
	})
}

// TestStored_RefusedMeanwhile: a chat that the store refuses at once says nothing about an earlier one, whose outcome is not known: its sender does not get it.
func TestStored_RefusedMeanwhile(t *testing.T) {
	t.Parallel()
	store := &refusing{memoryStore: newMemoryStore(t), let: make(chan struct{})}
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Rooms: store}, Only: gateway.Chat, Chat: gateway.ChatConfig{StoredRooms: []string{"kept-*"}}})
	c := dial(t, "ws://"+addr+"/ws")
	send(t, c, `{"type":"join","room":"kept-1","id":0}`)
	expect(t, c, `{"history":0,"id":0,"position":0,"type":"ok"}`)
	send(t, c, `{"type":"chat","room":"kept-1","text":"mine","id":1}`, `{"type":"chat","room":"kept-1","text":"refused","id":2}`)
	if got := nextCode(t, c); got != "database_refused" {
		t.Errorf("the second chat: %s", got)
	}
	waitFor(t, func() bool { store.mu.Lock(); defer store.mu.Unlock(); return len(store.stored) == 1 }, "the first chat is not stored")
	send(t, c, `{"type":"ping","ts":1}`)
	expect(t, c, `{"ts":1,"type":"pong"}`)
	close(store.let)
	expect(t, c, `{"id":1,"position":1,"type":"ok"}`)
}
