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
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/websocket"
)

// chatAt is the n-th chat of a room, at a position, as members get it.
func chatAt(n, position int) string {
	return fmt.Sprintf(`{"type":"chat","room":"kept-1","text":"%d","position":%d}`, n, position)
}

// lostAfter is the answer to a join at a position that is lost.
func lostAfter(last int) string {
	return fmt.Sprintf(`{"code":"history_lost","id":9,"last":%d,"message":"the position is after the end, or a failover has lost it: discard what you have after last, and continue there","retryable":false,"type":"error"}`, last)
}

// joined is the answer to a join of a stored room.
func joined(history, position int) string {
	return fmt.Sprintf(`{"history":%d,"id":9,"position":%d,"type":"ok"}`, history, position)
}

// joinStored joins kept-1.
func joinStored(t *testing.T, addr, fields string, want ...string) *wire {
	t.Helper()
	w := connect(t, addr)
	send(t, w.socket, `{"type":"join","room":"kept-1","id":9`+fields+`}`)
	w.want(want...)
	return w
}

// say says the n-th chat, which is stored at that position.
func (w *wire) say(n int) {
	w.t.Helper()
	w.ask(fmt.Sprintf(`{"type":"chat","room":"kept-1","text":"%d","id":%[1]d}`, n), fmt.Sprintf(`{"id":%d,"position":%[1]d,"type":"ok"}`, n))
}

func TestStored_AnswerAndDeliveryComeAfterTheCommit(t *testing.T) {
	t.Parallel()
	store, _, addr := serveStored(t)
	alice, bob := joinStored(t, addr, "", joined(0, 0)), joinStored(t, addr, "", joined(0, 0))
	store.hold(true)
	send(t, alice.socket, `{"type":"chat","room":"kept-1","text":"é","more":[1],"id":"a"} `, `{"type":"chat","room":"kept-1","text":"2"}`)
	alice.pong() // handled after both, and no answer to them
	bob.pong()
	store.hold(false)
	alice.want(`{"id":"a","position":1,"type":"ok"}`)
	bob.want(`{"type":"chat","room":"kept-1","text":"é","more":[1],"position":1}`, chatAt(2, 2))
}

func TestStored_HistoryAndResume(t *testing.T) {
	t.Parallel()
	store, _, addr := serveStored(t)
	for n := range 6 {
		store.put(fmt.Sprintf("kept-%d", 2-n%2), fmt.Sprintf(`{"type":"chat","room":"kept-1","text":"%d"}`, n+1))
	}
	for join, want := range map[string][]string{
		`,"history":2`:   {chatAt(4, 4), chatAt(6, 6), joined(2, 6)},
		`,"history":100`: {chatAt(2, 2), chatAt(4, 4), chatAt(6, 6), joined(3, 6)},
		`,"after":2`:     {chatAt(4, 4), chatAt(6, 6), joined(2, 6)},
		`,"after":6`:     {joined(0, 6)},
		`,"after":0`:     {chatAt(2, 2), chatAt(4, 4), chatAt(6, 6), joined(3, 6)},
		`,"after":7`:     {lostAfter(6)},
		`,"after":-1`:    {`{"code":"malformed","id":9,"message":"after: want a whole number, 0 or more","retryable":false,"type":"error"}`},
	} {
		joinStored(t, addr, join, want...)
	}
	connect(t, addr).ask(`{"type":"join","room":"loose","after":1,"id":1}`, `{"code":"room_not_stored","id":1,"message":"the chats of this room are not stored: join without after and history","retryable":false,"type":"error"}`)
}

// follow reads up to a position, and expects every position once and in order.
func follow(t *testing.T, c socket, after, to int64) int64 {
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

func TestStored_ErrorsAreReported(t *testing.T) {
	t.Parallel()
	store, _, addr := serveStored(t)
	c := joinStored(t, addr, "", joined(0, 0))
	for _, known := range []struct {
		err        error
		chat, join string
	}{
		{errors.New("disk full"), "not_stored", "unavailable"}, {engine.ErrOutcomeUnknown, "outcome_unknown", "unavailable"}, {engine.ErrRefused, "database_refused", "database_refused"},
	} {
		err := fmt.Errorf("wrapped: %w", known.err)
		store.change(func() { store.fail, store.broken = err, err })
		for request, want := range map[string]string{`"type":"chat","room":"kept-1","text":"x"`: known.chat, `"type":"join","room":"kept-2","history":5`: known.join, `"type":"chat","room":"kept-2","text":"x"`: "not_joined"} {
			if got := c.code(`{"id":"x",` + request + `}`); got != want {
				t.Errorf("%s, %v: %s, want %s", request, err, got, want)
			}
		}
	}
}

// TestStored_AFailoverLosesChats: members that received lost chats get a report, and nobody gets a lost position for resuming.
func TestStored_AFailoverLosesChats(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store, _, addr := serveStored(t)
		member, outsider := joinStored(t, addr, "", joined(0, 0)), talk(t, addr, "loose")
		for n := range 6 {
			member.say(n + 1)
		}
		store.lose(5)
		member.want(`{"type":"history_lost","room":"kept-1","last":4,"up_to":6}`)
		joinStored(t, addr, `,"after":6`, lostAfter(4))
		joinStored(t, addr, `,"after":4`, joined(0, 4))
		member.say(7)
		joinStored(t, addr, `,"after":5`, lostAfter(4))
		joinStored(t, addr, `,"after":4`, chatAt(7, 7), joined(1, 7))
		outsider.pong() // it got no notice
	})
}

// TestStored_OtherServers: the history of a join has the chats that other servers stored before it. A member that has received a chat at
// another server, which this one has not seen yet, gets what follows, once.
func TestStored_OtherServers(t *testing.T) {
	t.Parallel()
	store, _, addr := serveStored(t)
	store.put("kept-1", `{"type":"chat","room":"kept-1","text":"1"}`)
	joinStored(t, addr, `,"after":0`, chatAt(1, 1), joined(1, 1))
	store.see(false)
	store.put("kept-1", `{"type":"chat","room":"kept-1","text":"2"}`)
	w := joinStored(t, addr, `,"after":2`)
	w.pong() // the join waits
	store.see(true)
	w.want(joined(0, 2))
	store.put("kept-1", `{"type":"chat","room":"kept-1","text":"3"}`)
	w.want(chatAt(3, 3))
}

// slowCheck answers the first question about a loss late.
type slowCheck struct {
	*memoryStore
	asked, let chan struct{}
	once       sync.Once
}

func (s *slowCheck) Check(ctx context.Context, position int64) error {
	err := s.memoryStore.Check(ctx, position)
	if err != nil {
		s.once.Do(func() { close(s.asked); <-s.let })
	}
	return err
}

// TestStored_LossIsFoundTwice: the follower finds a loss while the check for it is waiting for its answer. It is reported once, and the chats that came since stay.
func TestStored_LossIsFoundTwice(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &slowCheck{memoryStore: newMemoryStore(t), asked: make(chan struct{}), let: make(chan struct{})}
		let := opener(store.let)
		defer let()
		_, addr := serve(t, storedConfig(store))
		member := joinStored(t, addr, "", joined(0, 0))
		member.say(1)
		joinStored(t, addr, `,"after":1`, joined(0, 1)) // the follower has seen it, or the join has waited for that
		store.awaitFollower(t, 1)
		store.see(false)
		member.say(2)
		store.lose(2)
		<-store.asked // lost after 1
		store.put("kept-1", `{"type":"chat","room":"kept-1","text":"3"}`)
		store.see(true)
		member.want(`{"type":"history_lost","room":"kept-1","last":1,"up_to":2}`, chatAt(3, 3))
		let()
		joinStored(t, addr, `,"after":1`, chatAt(3, 3), joined(1, 3))
	})
}

// TestStored_LostWhileCatchingUp: chats that a join has sent as history are lost before it ends.
func TestStored_LostWhileCatchingUp(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store, _, addr := serveStored(t)
		member := joinStored(t, addr, "", joined(0, 0))
		for n := range 3 {
			member.say(n + 1)
		}
		gate := make(chan struct{})
		let := opener(gate)
		defer let()
		store.change(func() { store.let = gate })
		joiner := joinStored(t, addr, `,"after":0`)
		testkit.Eventually(t, "a page is read", func() bool { return store.reading() > 0 })
		store.lose(2)
		member.want(`{"type":"history_lost","room":"kept-1","last":1,"up_to":3}`)
		let()
		joiner.want(chatAt(1, 1), chatAt(2, 2), chatAt(3, 3), lostAfter(1))
	})
}

// refusing takes one chat, whose outcome comes late, and refuses the others.
type refusing struct {
	*memoryStore
	taken bool
	let   chan struct{}
}

func (s *refusing) Append(ctx context.Context, room string, as *engine.RequestID, payload []byte, done func(int64, bool, error)) error {
	if s.taken {
		return engine.ErrRefused
	}
	s.taken = true
	return s.memoryStore.Append(ctx, room, as, payload, func(position int64, duplicate bool, err error) {
		go func() { <-s.let; done(position, duplicate, err) }()
	})
}

// TestStored_RefusedMeanwhile: a chat that the store refuses at once says nothing about an earlier one, whose outcome is not known: its sender does not get it.
func TestStored_RefusedMeanwhile(t *testing.T) {
	t.Parallel()
	store := &refusing{memoryStore: newMemoryStore(t), let: make(chan struct{})}
	_, addr := serve(t, storedConfig(store))
	c := joinStored(t, addr, "", joined(0, 0))
	send(t, c.socket, `{"type":"chat","room":"kept-1","text":"mine","id":1}`)
	if got := c.code(`{"type":"chat","room":"kept-1","text":"refused","id":"x"}`); got != "database_refused" {
		t.Errorf("the second chat: %s", got)
	}
	testkit.Eventually(t, "the first chat is stored", func() bool { return store.count() == 1 })
	c.pong()
	close(store.let)
	c.want(`{"id":1,"position":1,"type":"ok"}`)
}

// interruptedRooms calls functions in the first and in the second read of a history.
type interruptedRooms struct {
	*memoryStore
	number int
	first  func()
	second func(context.Context) error
}

func (r *interruptedRooms) After(ctx context.Context, room string, after, upTo int64, limit, bytes int) ([]engine.RoomMessage, error) {
	var err error
	switch r.number++; r.number {
	case 1:
		r.first()
	case 2:
		err = r.second(ctx)
	}
	page, _ := r.memoryStore.After(ctx, room, after, upTo, limit, bytes)
	return page, err
}

// TestJoin_InterruptedLeaves: a join that fails after the member has entered, while the rest of the history is sent, leaves the room.
func TestJoin_InterruptedLeaves(t *testing.T) {
	t.Parallel()
	for _, breaks := range []bool{false, true} {
		store := &interruptedRooms{memoryStore: newMemoryStore(t)}
		_, addr := serve(t, storedConfig(store))
		talker, joiner := joinStored(t, addr, "", joined(0, 0)), connect(t, addr)
		talker.say(1)
		said := make(chan struct{})
		store.first = func() { // so that there is more to send once the member has entered
			talker.Queue(websocket.OpText, []byte(`{"type":"chat","room":"kept-1","text":"meanwhile","id":3}`))
			talker.Flush()
			<-said
		}
		store.second = func(ctx context.Context) error {
			if !breaks {
				return errors.New("away")
			}
			joiner.Abort()
			<-ctx.Done() // the server has noticed
			return nil
		}
		send(t, joiner.socket, `{"type":"join","room":"kept-1","after":0,"id":"x"}`)
		talker.want(`{"id":3,"position":2,"type":"ok"}`)
		close(said)
		if !breaks {
			joiner.want(chatAt(1, 1), `{"code":"unavailable","id":"x","message":"this cannot be read now; try again later","retryable":true,"type":"error"}`)
			if got := joiner.code(`{"type":"chat","room":"kept-1","text":"x","id":"x"}`); got != "not_joined" {
				t.Errorf("after the join: %s", got)
			}
		} else {
			waitMetric(t, addr, "tidewire_connections 1")
		}
		waitMetric(t, addr, "tidewire_chat_rooms 1")
		talker.ask(`{"type":"leave","room":"kept-1","id":4}`, `{"id":4,"type":"ok"}`)
		waitMetric(t, addr, "tidewire_chat_rooms 0")
		waitMetric(t, addr, "tidewire_panics_total 0")
	}
}
