package tidewire

import (
	"context"
	"errors"
	"fmt"
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
