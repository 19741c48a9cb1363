package tidewire

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// begin calls f in the background, and returns where its result comes.
func begin[T any](f func() (T, error)) chan result[T] {
	c := make(chan result[T], 1)
	go func() {
		value, err := f()
		c <- result[T]{value, err}
	}()
	return c
}

type result[T any] struct {
	value T
	err   error
}

func TestPublishIsRepeatedWithItsSequence(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	c := f.open(t, Options{})
	got := begin(func() (Published, error) { return c.Stream("s").Publish(ctx, []byte("x"), Key("k")) })
	first := f.accept(t)
	sent := first.read("publish")
	first.ws.Close()
	second := f.accept(t)
	again := second.read("publish")
	for _, name := range []string{"client", "sequence", "payload", "stream", "key"} {
		if again[name] == nil || again[name] != sent[name] {
			t.Errorf("%s is %v, and was %v", name, again[name], sent[name])
		}
	}
	second.answer(again, "ok", frame{"position": 7, "duplicate": true})
	if r := <-got; r.err != nil || r.value.Position != 7 || !r.value.Duplicate {
		t.Errorf("got %+v", r)
	}
}

func TestWhatWaitsSharesRequestsInTheOrderOfTheCalls(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	c := f.open(t, Options{})
	s := c.Stream("s")
	var all []*Pending
	for i := range 2500 {
		all = append(all, s.PublishAsync(ctx, []byte(strconv.Itoa(i))))
		if i == 999 {
			break // as many as may wait
		}
	}
	other := c.Stream("other").PublishAsync(ctx, []byte("o"))
	p := f.accept(t)
	next, position := 0, int64(1)
	for next < len(all) {
		sent := p.read("publish")
		messages, _ := sent["messages"].([]any)
		if messages == nil {
			messages = []any{map[string]any(sent)}
		}
		for _, m := range messages {
			if payload := m.(map[string]any)["payload"]; payload != strconv.Itoa(next) {
				t.Fatalf("message %d is %v", next, payload)
			}
			next++
		}
		p.answer(sent, "ok", frame{"position": position, "count": len(messages)})
		position += int64(len(messages))
	}
	for i, pending := range all {
		if got, err := pending.Wait(ctx); err != nil || got.Position != int64(i+1) {
			t.Fatalf("message %d: %+v, %v", i, got, err)
		}
	}
	p.answer(p.read("publish"), "ok", frame{"position": 1})
	if _, err := other.Wait(ctx); err != nil {
		t.Error(err)
	}
}

func TestOneBadMessageHarmsNoOther(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	c := f.open(t, Options{})
	s := c.Stream("s")
	all := []*Pending{s.PublishAsync(ctx, []byte("good")), s.PublishAsync(ctx, []byte("bad")), s.PublishAsync(ctx, []byte("fine"))}
	p := f.accept(t)
	used := map[float64]bool{}
	for left := 3; left > 0; {
		sent := p.read("publish")
		if sequence := sent["sequence"].(float64); used[sequence] {
			t.Errorf("sequence %v comes twice", sequence)
		} else {
			used[sequence] = true
		}
		if sent["messages"] != nil || sent["payload"] == "bad" {
			p.answer(sent, "error", frame{"code": "invalid", "message": "bad", "retryable": false})
		} else {
			p.answer(sent, "ok", frame{"position": 4})
		}
		if sent["messages"] == nil {
			left--
		}
	}
	for i, pending := range all {
		_, err := pending.Wait(ctx)
		var e *Error
		if bad := i == 1; bad != (errors.As(err, &e) && e.Code == "invalid") {
			t.Errorf("message %d: %v", i, err)
		}
	}
}

func TestARetryableErrorIsRepeated(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	c := f.open(t, Options{})
	got := begin(func() (Published, error) { return c.Stream("s").Publish(ctx, nil) })
	p := f.accept(t)
	sent := p.read("publish")
	p.answer(sent, "error", frame{"code": "rate_limited", "message": "slow", "retryable": true, "retry_after_ms": 1})
	again := p.read("publish")
	if again["sequence"] != sent["sequence"] {
		t.Errorf("sequence %v became %v", sent["sequence"], again["sequence"])
	}
	p.answer(again, "error", frame{"code": "outcome_unknown", "message": "?", "retryable": false, "retry_after_ms": 1})
	p.answer(p.read("publish"), "ok", frame{"position": 1})
	if r := <-got; r.err != nil {
		t.Error(r.err)
	}
}

func TestErrors(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	c := f.open(t, Options{})
	var p *peer
	ask := func(answer frame) error {
		got := begin(func() (Published, error) { return c.Stream("s").Publish(ctx, nil) })
		if p == nil {
			p = f.accept(t)
		}
		p.answer(p.read("publish"), "error", answer)
		return (<-got).err
	}
	err := ask(frame{"code": "forbidden", "message": "no", "verb": "publish", "kind": "stream", "name": "s"})
	var forbidden *ForbiddenError
	if !errors.Is(err, ErrForbidden) || !errors.As(err, &forbidden) || forbidden.Verb != "publish" || forbidden.Kind != "stream" || forbidden.Object != "s" {
		t.Errorf("got %v", err)
	}
	var e *Error
	if !errors.As(err, &e) || e.RequestID == "" || e.Retryable {
		t.Errorf("got %+v", e)
	}
	if err := ask(frame{"code": "not_found", "message": "no"}); !errors.Is(err, ErrNotFound) || errors.Is(err, ErrConflict) {
		t.Errorf("got %v", err)
	}
	if err := ask(frame{"code": "sequence_too_old", "message": "no"}); !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("got %v", err)
	}
	if err := ask(frame{"code": "what_is_this", "message": "no"}); !errors.As(err, &e) || e.Code != "what_is_this" {
		t.Errorf("got %v", err)
	}
}

func TestTheContextOfACall(t *testing.T) {
	f := newFake(t)
	c := f.open(t, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	got := begin(func() (Published, error) { return c.Stream("s").Publish(ctx, nil) })
	f.accept(t).read("publish")
	cancel()
	if r := <-got; !errors.Is(r.err, ErrOutcomeUnknown) || !errors.Is(r.err, context.Canceled) {
		t.Errorf("got %v", r.err)
	}
	if _, err := c.Stream("s").Publish(ctx, nil); !errors.Is(err, ErrCancelled) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestSubscriptionResumesAfterWhatTheProgramHasTaken(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	c := f.open(t, Options{})
	got := begin(func() (*Subscription[[]byte], error) { return c.Stream("s").Subscribe(ctx, FromStart()) })
	p := f.accept(t)
	sent := p.read("subscribe")
	if sent["from"] != "start" || sent.number("credits") != 256 {
		t.Errorf("got %v", sent)
	}
	p.answer(sent, "ok", frame{"position": 0})
	message := func(p *peer, position int) {
		p.send(fmt.Sprintf(`{"type":"message","stream":"s","subscription":%q,"position":%d,"time":"2026-11-26T08:00:00Z","payload":"%d"}`, sent["subscription"], position, position))
	}
	for i := 1; i <= 3; i++ {
		message(p, i)
	}
	sub := <-got
	if sub.err != nil {
		t.Fatal(sub.err)
	}
	var taken []int64
	for m, err := range sub.value.Messages(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, m.Position)
		if m.Position == 2 {
			break
		}
	}
	p.ws.Close()
	p = f.accept(t)
	again := p.read("subscribe")
	if again.number("after") != 2 || again["from"] != nil {
		t.Errorf("got %v", again)
	}
	p.answer(again, "ok", frame{"position": 2})
	message(p, 3)
	message(p, 4)
	for m, err := range sub.value.Messages(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if taken = append(taken, m.Position); m.Position == 4 {
			break
		}
	}
	if !slices.Equal(taken, []int64{1, 2, 3, 4}) {
		t.Errorf("got %v", taken)
	}
	sub.value.Close()
	p.read("unsubscribe")
	for _, err := range sub.value.Messages(ctx) {
		t.Errorf("got a message, %v", err)
	}
}

func TestCreditIsGrantedAtHalf(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	c := f.open(t, Options{})
	got := begin(func() (*Subscription[[]byte], error) { return c.Stream("s").Subscribe(ctx, After(0), Credits(4)) })
	p := f.accept(t)
	sent := p.read("subscribe")
	p.answer(sent, "ok", frame{"position": 0})
	for i := 1; i <= 4; i++ {
		p.send(fmt.Sprintf(`{"type":"message","stream":"s","subscription":%q,"position":%d,"time":"2026-11-26T08:00:00Z","payload":""}`, sent["subscription"], i))
	}
	sub := <-got
	for page, err := range sub.value.Pages(ctx, 2) {
		if err != nil {
			t.Fatal(err)
		}
		if last := page.Messages[len(page.Messages)-1].Position; last >= 2 {
			break
		}
	}
	if credit := p.read("credit"); credit.number("n") != 2 || credit["id"] != nil {
		t.Errorf("got %v", credit)
	}
}

func TestCloseCodes(t *testing.T) {
	for _, test := range []struct {
		code  int
		text  string
		least time.Duration
		most  time.Duration
	}{
		{1001, "bye retry_after_ms=1234", 1234 * time.Millisecond, 1234 * time.Millisecond},
		{1001, "bye", 0, 2 * time.Second},
		{4429, "slow", 5 * time.Second, 5*time.Second + 250*time.Millisecond},
		{1011, "", 0, 250 * time.Millisecond},
	} {
		err := error(&websocket.CloseError{Code: test.code, Text: test.text})
		if got := pauseAfter(err, 0); got < test.least || got > test.most || endsClient(err) != nil {
			t.Errorf("%d %q: %v", test.code, test.text, got)
		}
	}
	if got := pause(60); got > 20*time.Second {
		t.Errorf("got %v", got)
	}
}

func TestARevokedTokenEndsTheClient(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	states := make(chan State, 16)
	c := f.open(t, Options{OnState: func(s State) { states <- s }})
	got := begin(func() (Published, error) { return c.Stream("s").Publish(ctx, nil) })
	p := f.accept(t)
	p.read("publish")
	p.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(4403, "revoked"), time.Now().Add(patience))
	if r := <-got; !errors.Is(r.err, ErrClosed) || !errors.Is(r.err, ErrForbidden) {
		t.Errorf("got %v", r.err)
	}
	for s := range states {
		if s.Phase == Closed {
			if !errors.Is(s.Err, ErrForbidden) {
				t.Errorf("got %v", s.Err)
			}
			break
		}
	}
}

func TestTokens(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	tokens := []string{"bad", "good", "renewed"}
	asked := make(chan bool, 16)
	n := 0
	c := f.open(t, Options{Token: func(_ context.Context, refused bool) (string, error) {
		asked <- refused
		n++
		return tokens[min(n, len(tokens))-1], nil
	}})
	got := begin(func() (Published, error) { return c.Stream("s").Publish(ctx, nil) })
	p := f.accept(t)
	if token := p.header.Get("Authorization"); token != "Bearer good" {
		t.Errorf("got %q", token)
	}
	if <-asked || !<-asked {
		t.Error("the callback is not told that the token was refused")
	}
	p.answer(p.read("publish"), "ok", frame{"position": 1})
	<-got
	p.send(`{"type":"expiring","expires_in_ms":1000}`)
	auth := p.read("auth")
	if auth["token"] != "renewed" {
		t.Errorf("got %v", auth)
	}
	p.answer(auth, "ok", nil)
}

func TestAFinalErrorOfTheTokenEndsTheClient(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	signedOut := errors.New("signed out")
	c := f.open(t, Options{Token: func(context.Context, bool) (string, error) { return "", Final(signedOut) }})
	if _, err := c.Stream("s").Publish(ctx, nil); !errors.Is(err, ErrClosed) || !errors.Is(err, signedOut) {
		t.Errorf("got %v", err)
	}
}

func TestPingsAreAnswered(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	c := f.open(t, Options{})
	got := begin(func() (Published, error) { return c.Stream("s").Publish(ctx, nil) })
	p := f.accept(t)
	sent := p.read("publish")
	pongs := make(chan string, 16)
	p.ws.SetPongHandler(func(text string) error { pongs <- text; return nil })
	go p.obey()
	for i := range 3 {
		p.ws.WriteControl(websocket.PingMessage, fmt.Append(nil, i), time.Now().Add(patience))
	}
	for text := range pongs {
		if text == "2" { // those before may have been answered together with it
			break
		}
	}
	p.answer(sent, "ok", frame{"position": 1})
	if r := <-got; r.err != nil {
		t.Error(r.err)
	}
}

// TestAMessageIsTakenAtOnce has one message come, and nothing after it.
func TestAMessageIsTakenAtOnce(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	c := f.open(t, Options{})
	got := begin(func() (*Subscription[[]byte], error) { return c.Stream("s").Subscribe(ctx, After(0)) })
	p := f.accept(t)
	sent := p.read("subscribe")
	p.answer(sent, "ok", frame{"position": 0})
	taken := make(chan int64)
	go func() {
		for m := range (<-got).value.Messages(ctx) {
			taken <- m.Position
		}
	}()
	for i := range 5 {
		p.message(sent["subscription"], i+1)
		if position := <-taken; position != int64(i+1) {
			t.Fatalf("got %d", position)
		}
	}
}
