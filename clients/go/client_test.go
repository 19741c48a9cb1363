package tidewire

import (
	"context"
	"errors"
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

func TestAFinalErrorOfTheTokenEndsTheClient(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	signedOut := errors.New("signed out")
	c := f.open(t, Options{Token: func(context.Context, bool) (string, error) { return "", Final(signedOut) }})
	if _, err := c.Stream("s").Publish(ctx, nil); !errors.Is(err, ErrClosed) || !errors.Is(err, signedOut) {
		t.Errorf("got %v", err)
	}
}
