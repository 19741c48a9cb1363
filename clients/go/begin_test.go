package tidewire

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// TestWhatDoesNotBeginIsTakenBack has a server answer too late: it must not be left with something that nobody takes from.
func TestWhatDoesNotBeginIsTakenBack(t *testing.T) {
	for kind, c := range map[string]struct {
		back  string
		begin func(ctx context.Context, c *Client) error
	}{
		"subscribe": {"unsubscribe", func(ctx context.Context, c *Client) error {
			_, err := c.Stream("s").Subscribe(ctx)
			return err
		}},
		"consume": {"cancel", func(ctx context.Context, c *Client) error {
			_, err := c.Queue("q").Start(ctx, func(context.Context, *Job[[]byte]) error { return nil })
			return err
		}},
		"join": {"leave", func(ctx context.Context, c *Client) error {
			_, err := c.Room("r").Join(ctx)
			return err
		}},
	} {
		t.Run(kind, func(t *testing.T) {
			f := newFake(t)
			client := f.open(t, Options{})
			ctx, cancel := context.WithCancel(testContext(t))
			ended := begin(func() (any, error) { return nil, c.begin(ctx, client) })
			p := f.accept(t)
			p.read(kind)
			cancel()
			if r := <-ended; !errors.Is(r.err, context.Canceled) {
				t.Errorf("got %v", r.err)
			}
			again := begin(func() (any, error) { return nil, c.begin(testContext(t), client) })
			p.read(c.back)
			p.answer(p.read(kind), "ok", frame{"position": 1})
			if r := <-again; r.err != nil {
				t.Errorf("again: %v", r.err)
			}
		})
	}
}

// TestAWorkerThatStopsDoesNotConsumeAgain has the connection end while a worker waits for its handlers.
func TestAWorkerThatStopsDoesNotConsumeAgain(t *testing.T) {
	ctx := testContext(t)
	handle, release := stubborn(t)
	c, w, p := working(t, ctx, handle, 1, Drain(patience))
	stopped := begin(func() (any, error) { return nil, w.Stop(ctx) })
	p.read("credit")
	p.ws.Close()
	p = p.f.accept(t)
	p.reached(t, c)
	release()
	if r := <-stopped; r.err != nil {
		t.Error(r.err)
	}
}

// TestAPauseDoesNotOutliveItsConnection has the connection end while something pauses before it begins again.
func TestAPauseDoesNotOutliveItsConnection(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	c, _ := hurried(t, f, Options{})
	began := begin(func() (*Subscription[[]byte], error) { return c.Stream("s").Subscribe(ctx) })
	p := f.accept(t)
	p.answer(p.read("subscribe"), "error", frame{"code": "unavailable", "message": "later", "retryable": true, "retry_after_ms": 100})
	p.reached(t, c)
	p.ws.Close()
	p = f.accept(t)
	p.answer(p.read("subscribe"), "ok", frame{"position": 1})
	if r := <-began; r.err != nil {
		t.Fatal(r.err)
	}
	begin(func() (*Subscription[[]byte], error) { return c.Stream("other").Subscribe(ctx) })
	later := frame{"code": "unavailable", "message": "later", "retryable": true, "retry_after_ms": 200} // a pause that is not over would end before
	p.answer(p.read("subscribe"), "error", later)
	if again := p.read("subscribe"); again["stream"] != "other" {
		t.Errorf("got %v", again)
	}
}

func (p *peer) chats(from, to int) {
	for i := from; i <= to; i++ {
		p.send(fmt.Sprintf(`{"type":"chat","room":"r","user":"u","text":"t","position":%d,"time":"2026-11-26T08:00:00Z"}`, i))
	}
}

// takeChats takes events until the chat at a position has come, which have to be in order.
func takeChats(t *testing.T, ctx context.Context, m *Membership, from, to int) {
	t.Helper()
	for next := int64(from); next <= int64(to); {
		e, err := m.next(ctx)
		if err != nil {
			t.Fatalf("%v, in place of chat %d", err, next)
		}
		if chat, ok := e.(*Chat); ok {
			if chat.Position != next {
				t.Fatalf("got chat %d, want %d", chat.Position, next)
			}
			next++
		}
	}
}

// TestAHistoryThatIsLongerThanWhatWaits has more chats come before the answer to join than the client keeps.
func TestAHistoryThatIsLongerThanWhatWaits(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	c := f.open(t, Options{})
	joined := begin(func() (*Membership, error) { return c.Room("r").Join(ctx, After(0)) })
	p := f.accept(t)
	r := p.read("join")
	const n = 3 * mostEvents
	p.chats(1, n)
	p.answer(r, "ok", frame{"position": n})
	m := (<-joined).value
	go func() {
		for {
			var f frame
			if err := p.ws.ReadJSON(&f); err != nil {
				return
			}
			if f["type"] == "join" {
				p.chats(int(f.number("after"))+1, n)
			}
			p.answer(f, "ok", frame{"position": n})
		}
	}()
	takeChats(t, ctx, m, 1, n)
}

// TestAMemberJoinsAgainOnce has something happen between leave and its answer, when a room was left because the program was too slow.
func TestAMemberJoinsAgainOnce(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	c := f.open(t, Options{})
	joined := begin(func() (*Membership, error) { return c.Room("r").Join(ctx, After(0), WithPresence()) })
	p := f.accept(t)
	p.answer(p.read("join"), "ok", frame{"position": 0})
	m := (<-joined).value
	p.chats(1, mostEvents+1)
	p.reached(t, c)
	events := make(chan RoomEvent)
	go func() {
		for e, err := range m.Events(ctx) {
			if err != nil {
				close(events)
				return
			}
			events <- e
		}
	}()
	for range mostEvents {
		<-events
	}
	r := p.read("leave")
	p.send(`{"type":"presence","room":"r","count":1,"joined":["ann"]}`)
	<-events // the program waits again
	p.send(`{"type":"presence","room":"r","count":1,"joined":["bob"]}`)
	<-events
	p.answer(r, "ok", nil)
	r = p.read("join")
	p.chats(mostEvents+1, mostEvents+1)
	p.answer(r, "ok", frame{"position": mostEvents + 1})
	if e, ok := (<-events).(*Chat); !ok || e.Position != mostEvents+1 {
		t.Errorf("got %+v", e)
	}
	p.reached(t, c)
}

// TestWhatComesBeforeARoomIsLeftIsForNobody has a client leave a busy room, and join it again.
func TestWhatComesBeforeARoomIsLeftIsForNobody(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	c := f.open(t, Options{})
	joined := begin(func() (*Membership, error) { return c.Room("r").Join(ctx) })
	p := f.accept(t)
	p.answer(p.read("join"), "ok", frame{"position": 5})
	if err := (<-joined).value.Leave(); err != nil {
		t.Fatal(err)
	}
	joined = begin(func() (*Membership, error) { return c.Room("r").Join(ctx, History(3)) })
	leave, join := p.read("leave"), p.read("join")
	p.chats(6, 6)
	p.answer(leave, "ok", nil)
	p.chats(4, 6)
	p.answer(join, "ok", frame{"position": 6})
	takeChats(t, ctx, (<-joined).value, 4, 6)
}
