package gateway_test

import (
	"context"
	"sync"
	"testing"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
)

// lingering are streams and queues whose subscriptions and consumptions end when
// the test allows it.
type lingering struct {
	*fakeStreams
	ending chan struct{} // receives each end that has begun
	let    chan struct{}
}

func (l lingering) Subscribe(ctx context.Context, stream string, from engine.Start) (engine.Subscription, error) {
	s, err := l.fakeStreams.Subscribe(ctx, stream, from)
	return lingeringSubscription{s, l}, err
}

type lingeringSubscription struct {
	engine.Subscription
	l lingering
}

func (s lingeringSubscription) Close() {
	s.l.ending <- struct{}{}
	<-s.l.let
	s.Subscription.Close()
}

type lingeringQueues struct {
	*fakeQueues
	l lingering
}

func (q lingeringQueues) Consume(ctx context.Context, queue string, opts engine.ConsumeOptions) (engine.Consumption, error) {
	c, err := q.fakeQueues.Consume(ctx, queue, opts)
	return lingeringConsumption{c, q.l}, err
}

type lingeringConsumption struct {
	engine.Consumption
	l lingering
}

func (c lingeringConsumption) Close() {
	c.l.ending <- struct{}{}
	<-c.l.let
	c.Consumption.Close()
}

// TestUnsubscribe_IsAnsweredWhenItHasEnded: unsubscribe and cancel are answered
// after the last message, and when everything held is released.
func TestUnsubscribe_IsAnsweredWhenItHasEnded(t *testing.T) {
	t.Parallel()
	for begin, end := range map[string]string{
		`"type":"subscribe","stream":"orders"`: `"type":"unsubscribe","stream":"orders"`,
		`"type":"consume","queue":"jobs"`:      `"type":"cancel","queue":"jobs"`,
	} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			streams, queues := newFakeStreams(t, "orders"), newFakeQueues(t, "jobs")
			l := lingering{fakeStreams: streams, ending: make(chan struct{}), let: make(chan struct{})}
			let := sync.OnceFunc(func() { close(l.let) })
			_, addr := serve(t, gateway.Config{
				Engine: engine.Engine{Ingest: (&memory{}).source, Streams: l, Queues: lingeringQueues{queues, l}},
			})
			t.Cleanup(let)
			c := connect(t, addr)
			send(t, c.Conn, `{"id":"begin",`+begin+`}`)
			if a := c.next(); a != `{"type":"ok","id":"begin","position":0}` && a != `{"type":"ok","id":"begin"}` {
				t.Fatal(a)
			}
			send(t, c.Conn, `{"id":"end",`+end+`}`)
			<-l.ending
			// Answers are sent in order: if the end had been answered already,
			// that answer would come first.
			c.ask(`{"type":"ping","ts":1}`, `{"ts":1,"type":"pong"}`)
			let()
			c.want(`{"type":"ok","id":"end"}`)
		})
	}
}
