package gateway_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/testkit"
)

// positions reads messages of a subscription, and expects the positions from first to last.
func (w *wire) positions(subscription string, first, last int64) {
	w.t.Helper()
	for want := first; want <= last; want++ {
		var got struct {
			Type, Subscription string
			Position           int64
		}
		if text := w.next(); json.Unmarshal([]byte(text), &got) != nil || got.Type != "message" || got.Subscription != subscription || got.Position != want {
			w.t.Fatalf("got %.200s, want position %d of %s", text, want, subscription)
		}
	}
}

func TestSubscribe_WhereItBegins(t *testing.T) {
	t.Parallel()
	streams, _, _, addr := serveAll(t)
	fill(streams, "orders", 25, 10)
	streams.change(func() { streams.streams["orders"].groups["g"] = 20 })
	for _, one := range []struct {
		from  string
		begin int64
	}{
		{`,"from":"start"`, 0}, {`,"after":7`, 7}, {`,"after":0`, 0}, {`,"from":"end"`, 25}, {``, 25},
		{`,"group":"g"`, 20}, {`,"group":"new"`, 0}, {`,"at":"1970-01-01T00:16:50.5+00:00"`, 10},
	} {
		c := connect(t, addr)
		c.ask(`{"type":"subscribe","id":1,"stream":"orders"`+one.from+`}`, fmt.Sprintf(`{"type":"ok","id":1,"position":%d}`, one.begin))
		c.positions("orders", one.begin+1, 25)
		c.Abort()
	}
	late := connect(t, addr)
	late.ask(`{"type":"subscribe","id":1,"stream":"orders","subscription":"mine"}`, `{"type":"ok","id":1,"position":25}`)
	fill(streams, "orders", 30, 10)
	late.positions("mine", 26, 55)
	waitMetric(t, addr, "tidewire_delivered_messages_total 143")
}

func TestSubscribe_OneOfAName(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		streams, _, _, addr := serveAll(t)
		c := connect(t, addr)
		c.ask(`{"type":"subscribe","id":1,"stream":"orders"}`, `{"type":"ok","id":1,"position":0}`)
		if got := c.code(`{"type":"subscribe","id":"x","stream":"orders"}`); got != "already_subscribed" {
			t.Error(got)
		}
		c.ask(`{"type":"subscribe","id":2,"stream":"orders","subscription":"second"}`, `{"type":"ok","id":2,"position":0}`)
		c.ask(`{"type":"consume","id":3,"queue":"jobs"}`, `{"type":"ok","id":3}`)
		for _, text := range []string{`{"type":"subscribe","id":"x","stream":"orders","subscription":"third"}`, `{"type":"consume","id":"x","queue":"other"}`} {
			if got := c.code(text); got != "too_many_subscriptions" {
				t.Errorf("%s: %s", text, got)
			}
		}
		c.ask(`{"type":"unsubscribe","id":4,"subscription":"second"}`, `{"type":"ok","id":4}`)
		if got := c.code(`{"type":"unsubscribe","id":"x","subscription":"second"}`); got != "not_subscribed" {
			t.Error(got)
		}
		c.ask(`{"type":"unsubscribe","id":5,"stream":"orders"}`, `{"type":"ok","id":5}`)
		fill(streams, "orders", 3, 10)
		c.silent(time.Second)
		c.ask(`{"type":"subscribe","id":6,"stream":"orders","after":1}`, `{"type":"ok","id":6,"position":1}`)
		c.positions("orders", 2, 3)
		c.Abort()
		testkit.Eventually(t, "no subscription is left", func() bool { return locked(streams, func() bool { return streams.open == 0 }) })
	})
}

func TestSubscribe_EndsWithAnError(t *testing.T) {
	t.Parallel()
	streams, _, _, addr := serveAll(t)
	fill(streams, "orders", 5, 10)
	c := connect(t, addr)
	c.ask(`{"type":"subscribe","id":1,"stream":"orders","subscription":"s","after":2}`, `{"type":"ok","id":1,"position":2}`)
	c.positions("s", 3, 5)
	streams.change(func() { delete(streams.streams, "orders") })
	c.want(`{"type":"error","subscription":"s","code":"stream_gone","message":"the stream was dropped","retryable":false}`)
	if got := c.code(`{"type":"unsubscribe","id":"x","subscription":"s"}`); got != "not_subscribed" {
		t.Error(got)
	}
	streams.change(func() { streams.streams["orders"] = &fakeStream{oldest: 4} })
	c.ask(`{"type":"subscribe","id":2,"stream":"orders","subscription":"s","after":2}`, `{"type":"ok","id":2,"position":2}`)
	c.want(`{"type":"error","subscription":"s","code":"too_old","message":"the next messages after this position were dropped: continue after oldest - 1","retryable":false,"oldest":4}`)
}

// TestSubscribe_Credits: a subscription gets as many messages as it has credit for, and without credit the server holds none for it.
func TestSubscribe_Credits(t *testing.T) {
	t.Parallel()
	streams, _, _, addr := serveAll(t)
	fill(streams, "orders", 30, 10)
	c := connect(t, addr)
	c.ask(`{"type":"subscribe","id":1,"stream":"orders","after":0,"credits":4}`, `{"type":"ok","id":1,"position":0}`)
	c.positions("orders", 1, 4)
	send(t, c.socket, `{"type":"credit","subscription":"orders","n":13}`)
	c.positions("orders", 5, 17)
	for _, n := range []string{"0", "-1", "1073741825"} {
		if got := c.code(`{"type":"credit","id":"x","subscription":"orders","n":` + n + `}`); got != "invalid_credits" {
			t.Errorf("n %s: %s", n, got) // or a message without credit
		}
	}
	if given := locked(streams, func() int { return streams.given }); given != 17 {
		t.Errorf("%d messages were read for 17 credits", given)
	}
	send(t, c.socket, `{"type":"credit","subscription":"orders","n":100}`)
	c.positions("orders", 18, 30)
}
