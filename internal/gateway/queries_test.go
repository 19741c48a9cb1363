package gateway_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
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
	events := &fakeEvents{changed: make(chan struct{})}
	l := serveLimited(t, "", limits.Config{Pending: 100, UserQueries: 2}, false, func(cfg *gateway.Config) {
		cfg.Engine.Streams, cfg.Engine.Events = held, events
	})
	release := sync.OnceFunc(func() { close(held.release) })
	t.Cleanup(release) // also if the test fails: the server waits for it
	ann, bob := tokenOf(t, "ann", time.Hour, "read stream:*", "publish stream:*", "append events:*", "query events:*"), tokenOf(t, "bob", time.Hour)
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
	conns[0].ask(`{"type":"append","store":"orders","events":[{"type":"A"}],"id":"a"}`, `{"type":"ok","id":"a","positions":[1]}`)
	send(t, conns[0].Conn, `{"type":"append","store":"orders","events":[{"type":"A"}],"condition":{"query":{"items":[{"tags":["x"]}]}},"id":"b"}`)
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
	if stored, _ := events.Query(t.Context(), "orders", engine.EventQuery{}, engine.EventRange{Limit: 9}); len(stored) != 1 {
		t.Errorf("%d events are stored, want only that without a condition", len(stored))
	}
	release()
	if got := <-read; got != "200" {
		t.Errorf("in the end the request is answered with %q", got)
	}
	for n, c := range conns {
		for range []int{4, 3, 3}[n] {
			if a := c.next(); !strings.Contains(a, `"type":"ok"`) {
				t.Errorf("answered with %s", a)
			}
		}
	}
	if most := held.most.Load(); most != 2 {
		t.Errorf("%d asked the store at a time, want 2", most)
	}
}

// TestQueries_RightsAfterTheWait: a request that has waited for its turn needs its right once more.
func TestQueries_RightsAfterTheWait(t *testing.T) {
	t.Parallel()
	held := &heldStreams{fakeStreams: newFakeStreams(t, "orders", "held"), release: make(chan struct{})}
	policy, err := auth.NewPolicy(auth.Config{Token: auth.TokenConfig{Audience: "tidewire"}, Keys: []auth.Key{mustSecret(t)}})
	if err != nil {
		t.Fatal(err)
	}
	l := serveLimited(t, "", limits.Config{Pending: 100, UserQueries: 1}, false, func(cfg *gateway.Config) {
		cfg.Engine.Streams, cfg.Auth.Policy = held, policy
	})
	first, _, _ := l.dial("/ws", bearer(tokenOf(t, "ann", time.Hour, "read stream:held")))
	send(t, first.Conn, `{"type":"subscribe","stream":"held","id":1}`)
	release := sync.OnceFunc(func() { close(held.release) })
	t.Cleanup(release)
	l.eventually("it asks the store", func() bool { return held.now.Load() == 1 })

	second, _, _ := l.dial("/ws", bearer(tokenOf(t, "ann", time.Hour, "commit stream:orders")))
	send(t, second.Conn, `{"type":"commit","stream":"orders","group":"g","position":1,"id":1}`)
	send(t, second.Conn, `{"type":"auth","id":2,"token":"`+tokenOf(t, "ann", time.Hour, "read stream:other")+`"}`)
	if a := second.next(); !strings.Contains(a, `"type":"ok","id":2`) {
		t.Fatalf("a new token was answered with %s", a)
	}
	short := tokenOf(t, "ann", time.Second, "read stream:orders")
	end := time.Now().Add(2 * time.Second)
	read := make(chan string)
	go func() { read <- l.once("GET", "/v1/streams/orders/messages", short) }()
	time.Sleep(time.Until(end))
	release()
	if a := second.next(); !strings.Contains(a, `"id":1,"code":"forbidden"`) {
		t.Errorf("a commit whose right has ended was answered with %s", a)
	}
	if got := <-read; got != "401 token_expired" {
		t.Errorf("a read whose token has ended was answered with %s", got)
	}
}

// TestRates_Handshakes: only handshakes have no rate.
func TestRates_Handshakes(t *testing.T) {
	t.Parallel()
	l := serveLimited(t, "", limits.Config{RequestRate: oneRequest}, true, nil)
	l.once("GET", "/v1/streams", "")
	for _, r := range [][]string{{"GET", "/ws/nothing", "websocket"}, {"GET", "/ws/../v1/streams", "websocket"}, {"POST", "/ws", "websocket"}, {"GET", "/ws/chat", "x"}} {
		if got := l.once(r[0], r[1], "", "Connection", "Upgrade", "Upgrade", r[2]); got != "429 rate_limited" {
			t.Errorf("%s: got %s", r, got)
		}
	}
	if w, status, _ := l.dial("/ws", nil); w == nil {
		t.Errorf("a handshake was answered with %d", status)
	}
	for _, at := range []string{"//v1/queues/jobs/ack", "/v1/queues/./jobs/ack"} {
		if got := l.once("POST", at, ""); got != "429 rate_limited" {
			t.Errorf("%s: got %s", at, got)
		}
	}
}
