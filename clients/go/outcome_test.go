package tidewire

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// TestARequestThatWasRefusedEachTime has had no effect when its time is over.
func TestARequestThatWasRefusedEachTime(t *testing.T) {
	refuse := func(code string) func(p *peer) {
		return func(p *peer) {
			p.answer(p.read("publish"), "error", frame{"code": code, "message": "later", "retryable": code != "outcome_unknown", "retry_after_ms": 86400000})
		}
	}
	for name, r := range map[string]struct {
		answers []func(p *peer)
		want    error
	}{
		"refused":                         {[]func(*peer){refuse("rate_limited")}, errorCode("rate_limited")},
		"its outcome is not known":        {[]func(*peer){refuse("outcome_unknown")}, ErrOutcomeUnknown},
		"it has no answer":                {[]func(*peer){func(p *peer) { p.read("publish") }}, ErrOutcomeUnknown},
		"refused after a lost connection": {[]func(*peer){func(p *peer) { p.read("publish"); p.ws.Close() }, refuse("rate_limited")}, ErrOutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			f, ctx := newFake(t), testContext(t)
			c, _ := hurried(t, f, Options{})
			got := begin(func() (Published, error) { return c.Stream("s").Publish(ctx, []byte("x"), Timeout(time.Second)) })
			for _, answer := range r.answers {
				answer(f.accept(t))
			}
			if g := <-got; !errors.Is(g.err, r.want) {
				t.Errorf("got %v, want %v", g.err, r.want)
			}
		})
	}
}

// TestWhatMayHaveHappenedSaysSo ends calls after they were sent.
func TestWhatMayHaveHappenedSaysSo(t *testing.T) {
	f := newFake(t)
	c := f.open(t, Options{})
	var p *peer
	for kind, call := range map[string]func(ctx context.Context) error{
		"publish": func(ctx context.Context) error {
			_, err := c.Stream("s").Publish(ctx, nil)
			return err
		},
		"enqueue": func(ctx context.Context) error {
			_, err := c.Queue("q").Enqueue(ctx, nil, Unique("u", time.Minute))
			return err
		},
		"append": func(ctx context.Context) error {
			_, err := c.Events("").Append(ctx, []Event{{Type: "T"}})
			return err
		},
		"commit": func(ctx context.Context) error {
			_, err := c.Stream("s").Commit(ctx, "g", 1)
			return err
		},
	} {
		ctx, cancel := context.WithCancel(testContext(t))
		got := begin(func() (any, error) { return nil, call(ctx) })
		if p == nil {
			p = f.accept(t)
		}
		p.read(kind)
		cancel()
		if r := <-got; !errors.Is(r.err, ErrOutcomeUnknown) || !errors.Is(r.err, context.Canceled) {
			t.Errorf("%s: got %v", kind, r.err)
		}
	}
	ctx, cancel := context.WithCancel(testContext(t))
	got := begin(func() (any, error) { _, err := c.Events("").Project(ctx, Query{}); return nil, err })
	p.read("project")
	cancel()
	if r := <-got; !errors.Is(r.err, ErrCancelled) {
		t.Errorf("project: got %v", r.err)
	}
}

// TestTheEndOfTheClientSaysWhatMayHaveHappened closes a client that has sent one request, and not the other.
func TestTheEndOfTheClientSaysWhatMayHaveHappened(t *testing.T) {
	for name, end := range map[string]func(c *Client, p *peer){
		"close": func(c *Client, _ *peer) {
			now, cancel := context.WithCancel(context.Background())
			cancel()
			c.Shutdown(now)
		},
		"revoked": func(_ *Client, p *peer) {
			p.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(4403, "revoked"), time.Now().Add(patience))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, ctx := newFake(t), testContext(t)
			c := f.open(t, Options{MaxPending: 1})
			sent := c.Stream("s").PublishAsync(ctx, []byte("sent"))
			p := f.accept(t)
			p.read("publish")
			waits := c.Stream("s").PublishAsync(ctx, []byte("waits"))
			end(c, p)
			if _, err := sent.Wait(ctx); !errors.Is(err, ErrClosed) || !errors.Is(err, ErrOutcomeUnknown) || (name == "revoked") != errors.Is(err, ErrForbidden) {
				t.Errorf("sent: got %v", err)
			}
			if _, err := waits.Wait(ctx); !errors.Is(err, ErrClosed) || errors.Is(err, ErrOutcomeUnknown) {
				t.Errorf("not sent: got %v", err)
			}
		})
	}
}
