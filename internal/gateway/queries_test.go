package gateway_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/limits"
)

// heldStreams are streams of which "held" is opened only when it is released.
type heldStreams struct {
	*fakeStreams
	release   chan struct{}
	now, most atomic.Int32 // waits for the release
}

func (h *heldStreams) Subscribe(ctx context.Context, stream string, from engine.Start) (engine.Subscription, error) {
	if stream == "held" {
		n := h.now.Add(1)
		defer h.now.Add(-1)
		for most := h.most.Load(); n > most && !h.most.CompareAndSwap(most, n); {
			most = h.most.Load()
		}
		<-h.release
	}
	return h.fakeStreams.Subscribe(ctx, stream, from)
}

// TestQueries_OfOneUser: a user that asks much of a slow store makes itself wait, on all its connections and by HTTP, and nobody else.
func TestQueries_OfOneUser(t *testing.T) {
	t.Parallel()
	held := &heldStreams{fakeStreams: newFakeStreams(t, "orders", "held"), release: make(chan struct{})}
	l := serveLimited(t, "", limits.Config{Pending: 100, UserQueries: 2}, false, func(cfg *gateway.Config) { cfg.Engine.Streams = held })
	ann, bob := tokenOf(t, "ann", time.Hour), tokenOf(t, "bob", time.Hour)
	var conns []*wire
	for range 3 {
		c, _, _ := l.dial("/ws", bearer(ann))
		for n := range 3 {
			send(t, c.Conn, fmt.Sprintf(`{"type":"subscribe","stream":"held","subscription":"s-%d","id":%d}`, n, n))
		}
		conns = append(conns, c)
	}
	l.eventually("two of nine ask the store", func() bool { return held.now.Load() == 2 })
	read := make(chan string)
	go func() { read <- l.once("GET", "/v1/streams/orders/messages", ann) }()

	other, _, _ := l.dial("/ws", bearer(bob))
	other.ask(`{"type":"subscribe","stream":"orders","id":1}`, `{"type":"ok","id":1,"position":0}`)
	conns[0].ask(`{"type":"publish","stream":"orders","payload":"x","id":"p"}`, `{"type":"ok","id":"p","position":1}`) // is not a query
	if got := l.once("GET", "/v1/streams/orders/messages", bob); got != "200" {
		t.Errorf("another user's request is answered with %q", got)
	}
	select {
	case got := <-read:
		t.Errorf("a request of the user that waits was answered with %q", got)
	default:
	}
	close(held.release)
	if got := <-read; got != "200" {
		t.Errorf("in the end the request is answered with %q", got)
	}
	for _, c := range conns {
		for range 3 {
			c.next()
		}
	}
	if most := held.most.Load(); most != 2 {
		t.Errorf("%d asked the store at a time, want 2", most)
	}
}
