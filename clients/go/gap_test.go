package tidewire

import (
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

func TestASubscriptionBeginsAfterAGap(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	c, _ := hurried(t, f, Options{})
	var gaps []Gap
	got := begin(func() (*Subscription[[]byte], error) {
		return c.Stream("s").Subscribe(ctx, After(0), OnGap(func(g Gap) { gaps = append(gaps, g) }))
	})
	p := f.accept(t)
	p.answer(p.read("subscribe"), "error", frame{"code": "too_old", "message": "m", "oldest": 7})
	q := p.read("subscribe")
	if q.number("after") != 6 {
		t.Fatal(q)
	}
	p.answer(q, "ok", frame{"position": 6})
	r := <-got
	if r.err != nil {
		t.Fatal(r.err)
	}
	p.send(fmt.Sprintf(`{"type":"message","stream":"s","subscription":%q,"position":7,"payload":"7"}`, q["subscription"]))
	for m, err := range r.value.Messages(ctx) {
		if err != nil || m.Position != 7 || len(gaps) != 1 || gaps[0].Oldest != 7 {
			t.Fatal(m, err, gaps)
		}
		break
	}
}
