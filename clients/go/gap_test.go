package tidewire

import (
	"errors"
	"fmt"
	"testing"
)

const tooLarge = `"code":"message_too_large","message":"m","position":2,"size":5000000`

// begun begins a subscription, to which the server has sent the message at position 1, and then more.
func begun(t *testing.T, f *fake, c *Client, more string, options ...SubscribeOption) (*Subscription[[]byte], *peer, string) {
	t.Helper()
	got := begin(func() (*Subscription[[]byte], error) { return c.Stream("s").Subscribe(testContext(t), options...) })
	p := f.accept(t)
	q := p.read("subscribe")
	p.answer(q, "ok", frame{"position": 0})
	r := <-got
	if r.err != nil {
		t.Fatal(r.err)
	}
	name := q["subscription"].(string)
	for _, text := range []string{`"type":"assigned","partitions":[3]`, `"type":"message","partition":3,"position":1,"payload":"1"`, more} {
		p.send(fmt.Sprintf(`{"stream":"s","subscription":%q,%s}`, name, text))
	}
	return r.value, p, name
}

func TestAParkedPartitionEndsTheIterationUntilTheProgramCommits(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	sub, p, name := begun(t, f, f.open(t, Options{}), `"type":"parked","partition":3,"oldest":3,`+tooLarge, Group("g"), Share())
	var positions []int64
	var failure error
	take := func(stop int64) {
		for m, err := range sub.Messages(ctx) {
			if failure = err; err != nil {
				return
			}
			if positions = append(positions, m.Position); m.Position == stop {
				return
			}
		}
	}
	take(0)
	var large *MessageTooLargeError
	if !errors.As(failure, &large) || large.Partition != 3 || large.Position != 2 || large.Size != 5000000 || !errors.Is(failure, ErrMessageTooLarge) {
		t.Fatalf("got %v", failure)
	}
	committed := begin(func() (int64, error) { return sub.CommitTo(ctx, large.Partition, large.Position) })
	p.answer(p.read("commit"), "ok", frame{"position": 2})
	if r := <-committed; r.err != nil {
		t.Fatal(r.err)
	}
	p.send(fmt.Sprintf(`{"type":"message","stream":"s","subscription":%q,"partition":3,"position":3,"payload":"3"}`, name))
	if take(3); failure != nil || fmt.Sprint(positions) != "[1 3]" {
		t.Fatal(positions, failure)
	}
}

func TestAGapIsCrossedAfterWhatTheProgramHasTaken(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	var gaps []Gap
	skip := OnGap(func(g Gap) { gaps = append(gaps, g) })
	sub, p, name := begun(t, f, f.open(t, Options{}), `"type":"parked","partition":3,"oldest":3,`+tooLarge, Group("g"), Share(), skip)
	page := func() ([]int64, error) {
		for page, err := range sub.Pages(ctx, 10) {
			var positions []int64
			for _, m := range page.Messages {
				positions = append(positions, m.Position)
			}
			return positions, err
		}
		return nil, nil
	}
	if got, err := page(); err != nil || fmt.Sprint(got) != "[1]" || gaps != nil {
		t.Fatal(got, err, gaps)
	}
	next := begin(page)
	p.answer(p.read("commit"), "error", frame{"code": "forbidden", "message": "no"})
	if r := <-next; !errors.Is(r.err, ErrForbidden) { // it must not stand still without an error
		t.Fatal(r)
	}
	next = begin(page)
	q := p.read("commit")
	if q.number("position") != 2 || q.number("partition") != 3 {
		t.Fatal(q)
	}
	p.answer(q, "ok", frame{"position": 2})
	p.send(fmt.Sprintf(`{"type":"message","stream":"s","subscription":%q,"partition":3,"position":3,"payload":"3"}`, name))
	if r := <-next; r.err != nil || fmt.Sprint(r.value) != "[3]" {
		t.Fatal(r)
	}
	if want := (Gap{"message_too_large", 3, 3, 2, 5000000}); len(gaps) != 2 || gaps[1] != want {
		t.Fatal(gaps)
	}
}

func TestWhatCameBeforeAGapComesAgainAfterACut(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	var gaps []Gap
	skip := OnGap(func(g Gap) { gaps = append(gaps, g) })
	c, failures := hurried(t, f, Options{})
	sub, p, _ := begun(t, f, c, `"type":"error",`+tooLarge, After(0), skip)
	p.ws.Close()
	<-failures
	p = f.accept(t)
	q := p.read("subscribe")
	if q.number("after") != 0 {
		t.Fatal(q)
	}
	p.answer(q, "ok", frame{"position": 0})
	for _, text := range []string{`"type":"message","position":1,"payload":"1"`, `"type":"error",` + tooLarge} {
		p.send(fmt.Sprintf(`{"stream":"s","subscription":%q,%s}`, q["subscription"], text))
	}
	taken := begin(func() (positions []int64, err error) {
		for m, err := range sub.Messages(ctx) {
			if positions = append(positions, m.Position); err != nil || m.Position == 3 {
				return positions, err
			}
		}
		return positions, nil
	})
	q = p.read("subscribe")
	if q.number("after") != 2 {
		t.Fatal(q)
	}
	p.answer(q, "ok", frame{"position": 2})
	p.send(fmt.Sprintf(`{"type":"message","stream":"s","subscription":%q,"position":3,"payload":"3"}`, q["subscription"]))
	if r := <-taken; r.err != nil || fmt.Sprint(r.value) != "[1 3]" || len(gaps) != 1 {
		t.Fatal(r, gaps)
	}
}
