package tidewire

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// hurried returns a client that connects again at once, and where the errors of its connections come.
func hurried(t *testing.T, f *fake, o Options) (*Client, chan error) {
	t.Helper()
	failures := make(chan error, 1024)
	o.OnState = func(s State) {
		if s.Phase == Waiting {
			failures <- s.Err
		}
	}
	c := f.open(t, o)
	c.between = func(error, int) time.Duration { return 0 }
	return c, failures
}

// dropped checks that a connection has ended with an error that says something.
func dropped(t *testing.T, failures chan error, says string) {
	t.Helper()
	select {
	case err := <-failures:
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("the connection has ended with %v, want an error that says %q", err, says)
		}
	case <-time.After(patience):
		t.Fatal("the connection lasts")
	}
}

func (p *peer) message(subscription any, position int) {
	p.send(fmt.Sprintf(`{"type":"message","stream":"s","subscription":%q,"position":%d,"time":"2026-11-26T08:00:00Z","payload":"%d"}`, subscription, position, position))
}

func TestMoreMessagesThanCreditsEndTheConnection(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	c, failures := hurried(t, f, Options{})
	got := begin(func() (*Subscription[[]byte], error) { return c.Stream("s").Subscribe(ctx, After(0), Credits(4)) })
	p := f.accept(t)
	sent := p.read("subscribe")
	p.answer(sent, "ok", frame{"position": 0})
	sub := (<-got).value
	for i := range 4 {
		p.message(sent["subscription"], i+1)
	}
	next := 1
	for m, err := range sub.Messages(ctx) {
		if err != nil || m.Position != int64(next) {
			t.Fatal(m, err)
		}
		if next++; next > 2 {
			break
		}
	}
	if n := p.read("credit").number("n"); n != 2 {
		t.Fatalf("%d credits", n)
	}
	for i := range 3 { // two more than the two that wait would be right
		p.message(sent["subscription"], i+5)
	}
	dropped(t, failures, "more messages")
	p = f.accept(t)
	sent = p.read("subscribe")
	if sent.number("after") != 2 {
		t.Errorf("got %v", sent)
	}
	p.answer(sent, "ok", frame{"position": 2})
	p.message(sent["subscription"], 3)
	for m, err := range sub.Messages(ctx) {
		if err != nil || m.Position != 3 {
			t.Errorf("got %v, %v", m, err)
		}
		break
	}
}

func TestMoreDeliveriesThanCreditsEndTheConnection(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	handle, _ := stubborn(t)
	_, w, p := working(t, ctx, handle, 1, Concurrency(1), Drain(0))
	go p.obey()
	l := w.core.link
	for i := range mostEarly + 2 {
		p.deliver(i + 2)
	}
	select {
	case <-l.over:
	case <-ctx.Done():
		t.Error("the connection lasts")
	}
}

func TestPositionsBetweenMessagesAreNotKept(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	c := f.open(t, Options{})
	got := begin(func() (*Subscription[[]byte], error) {
		return c.Stream("s").Subscribe(ctx, After(0), Keys("k"))
	})
	p := f.accept(t)
	sent := p.read("subscribe")
	p.answer(sent, "ok", frame{"position": 0})
	sub := (<-got).value
	p.message(sent["subscription"], 1)
	for i := range 5000 {
		p.send(fmt.Sprintf(`{"type":"position","subscription":%q,"position":%d}`, sent["subscription"], i+2))
	}
	p.message(sent["subscription"], 6000)
	p.reached(t, c)
	sub.core.mu.Lock()
	if n := len(sub.core.items); n != 3 {
		t.Errorf("%d items wait", n)
	}
	sub.core.mu.Unlock()
	for m, err := range sub.Messages(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if m.Position == 6000 {
			break
		}
	}
}

// reached waits until the client has read everything that was sent to it.
func (p *peer) reached(t *testing.T, c *Client) {
	t.Helper()
	got := begin(func() (Published, error) { return c.Stream("other").Publish(testContext(t), nil) })
	p.answer(p.read("publish"), "ok", frame{"position": 1})
	if r := <-got; r.err != nil {
		t.Fatal(r.err)
	}
}

func TestChangesOfPartitionsThatTheProgramDoesNotTakeEndTheConnection(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	c, failures := hurried(t, f, Options{})
	got := begin(func() (*Subscription[[]byte], error) {
		return c.Stream("s").Subscribe(ctx, Group("g"), Share(), Credits(1), OnAssigned(func([]int) {}))
	})
	p := f.accept(t)
	sent := p.read("subscribe")
	p.answer(sent, "ok", nil)
	sub := (<-got).value
	for range sub.core.most() + 1 {
		p.send(fmt.Sprintf(`{"type":"assigned","subscription":%q,"partitions":[1]}`, sent["subscription"]))
	}
	dropped(t, failures, "partitions")
}

func TestAFrameThatIsTooLargeEndsTheConnection(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	c, failures := hurried(t, f, Options{MaxFrame: 1000})
	got := begin(func() (Published, error) { return c.Stream("s").Publish(ctx, []byte("x")) })
	p := f.accept(t)
	sent := p.read("publish")
	p.send(`{"type":"ok","more":"` + strings.Repeat("x", 1000) + `"}`)
	dropped(t, failures, "MaxFrame")
	p = f.accept(t)
	again := p.read("publish")
	if again["sequence"] != sent["sequence"] {
		t.Errorf("got %v", again)
	}
	p.answer(again, "ok", frame{"position": 1})
	if r := <-got; r.err != nil {
		t.Error(r.err)
	}
}

func TestAHelloThatIsTooLargeIsAFailedAttempt(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	f.hello.Store(`{"type":"hello","x":"` + strings.Repeat("x", helloBytes) + `"}`)
	c, failures := hurried(t, f, Options{})
	begin(func() (Published, error) { return c.Stream("s").Publish(ctx, []byte("x")) })
	dropped(t, failures, "hello")
}

func TestAPageOfEventsThatIsTooLargeIsAskedForInParts(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	c, failures := hurried(t, f, Options{MaxFrame: 5000})
	got := begin(func() (int, error) {
		n := 0
		for _, err := range c.Events("").Query(ctx, Query{}) {
			if err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	})
	p := f.accept(t)
	const all = 1000
	failed := 0
	tag := strings.Repeat("t", 100)
	for after := int64(0); after <= all; {
		sent := p.read("query")
		if after = sent.number("after"); after == all {
			p.answer(sent, "ok", frame{"events": []any{}, "next": all})
			break
		}
		last := min(after+sent.number("limit"), all)
		page := []any{}
		for i := after + 1; i <= last; i++ {
			page = append(page, frame{"position": i, "type": "T", "tags": []string{tag}})
		}
		p.answer(sent, "ok", frame{"events": page, "next": last})
		if len(page) > 34 {
			dropped(t, failures, "MaxFrame")
			p = f.accept(t)
			failed++
		}
	}
	if r := <-got; r.err != nil || r.value != all || failed != 5 {
		t.Errorf("got %+v after %d pages that were too large", r, failed)
	}
}

func TestARoomWhoseEventsTheProgramDoesNotTakeKeepsFew(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	c := f.open(t, Options{})
	joined := begin(func() (*Membership, error) { return c.Room("r").Join(ctx, WithPresence()) })
	p := f.accept(t)
	p.answer(p.read("join"), "ok", nil)
	m := (<-joined).value
	const n = 3000
	for i := range n {
		p.send(`{"type":"gap","room":"r","missed":1}`)
		p.send(fmt.Sprintf(`{"type":"presence","room":"r","count":1,"joined":["u%d"],"left":["u%d"]}`, i, i-1))
		p.send(fmt.Sprintf(`{"type":"history_lost","room":"r","last":%d,"up_to":%d}`, n-i, n))
	}
	p.reached(t, c)
	m.mu.Lock()
	waiting := len(m.events)
	m.mu.Unlock()
	if waiting > mostEvents {
		t.Errorf("%d events wait", waiting)
	}
	missed, members, last := 0, []string(nil), int64(n)
	for missed < n || last > 1 || len(members) != 1 || members[0] != fmt.Sprintf("u%d", n-1) {
		e, err := m.next(ctx)
		if err != nil {
			t.Fatalf("%v, after %d missed, members %v, last %d", err, missed, members, last)
		}
		switch e := e.(type) {
		case *Missed:
			missed += e.Count
		case *Presence:
			members = e.Members
		case *HistoryLost:
			last = e.Last
		}
	}
}

func TestCreditOfMessagesThatAreDiscardedIsGranted(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	c := f.open(t, Options{})
	got := begin(func() (*Subscription[[]byte], error) {
		return c.Stream("s").Subscribe(ctx, Group("g"), Share(), Credits(2))
	})
	p := f.accept(t)
	sent := p.read("subscribe")
	p.answer(sent, "ok", nil)
	<-got
	p.send(fmt.Sprintf(`{"type":"assigned","subscription":%q,"partitions":[1]}`, sent["subscription"]))
	for i := range 2 {
		p.send(fmt.Sprintf(`{"type":"message","subscription":%q,"partition":1,"position":%d,"payload":""}`, sent["subscription"], i+1))
	}
	p.send(fmt.Sprintf(`{"type":"revoked","subscription":%q,"partitions":[1]}`, sent["subscription"]))
	if n := p.read("credit").number("n"); n != 2 {
		t.Errorf("%d credits", n)
	}
}
