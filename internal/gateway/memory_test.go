package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/websocket"
)

// TestBudget_GreedyConnectionsAreEvicted: when memory is short, connections that
// hold the most are evicted, and one that reads is still served.
func TestBudget_GreedyConnectionsAreEvicted(t *testing.T) {
	t.Parallel()
	const limit, total = 8 << 20, 200
	streams := newFakeStreams(t, "orders")
	fill(streams, "orders", total, 100_000)
	account := budget.New(limit)
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Ingest: (&memory{}).source, Streams: streams}, Budget: account})
	var greedy []*websocket.Conn
	for range 8 {
		c := dial(t, "ws://"+addr+"/ws")
		for n := range 5 {
			send(t, c, fmt.Sprintf(`{"type":"subscribe","stream":"orders","after":0,"subscription":"%d"}`, n))
		}
		greedy = append(greedy, c) // which never reads
	}
	waitFor(t, func() bool { return account.Stats().Evictions > 0 }, "nobody was evicted")
	good := connect(t, addr)
	good.ask(`{"type":"subscribe","stream":"orders","after":0,"id":1}`, `{"type":"ok","id":1,"position":0}`)
	good.positions("orders", 1, total)
	for _, c := range greedy {
		c.Abort()
	}
	waitFor(t, func() bool { return account.Stats().Holders == 1 }, "connections that have ended are still counted")
	if s := account.Stats(); s.Excess != 0 {
		t.Errorf("%d bytes were released that nobody held", s.Excess)
	}
	good.Abort()
	waitFor(t, func() bool { return account.Stats().Held == 0 }, "what nobody holds is still counted")
}

// heldAppends delays appends until the test releases them, or their context
// ends.
type heldAppends struct {
	*fakeEvents
	let chan struct{}
}

func (h heldAppends) Append(ctx context.Context, store string, as *engine.RequestID, events []engine.Event, condition *engine.EventCondition) (engine.AppendedEvents, error) {
	select {
	case <-h.let:
	case <-ctx.Done():
		return engine.AppendedEvents{}, ctx.Err()
	}
	return h.fakeEvents.Append(ctx, store, as, events, condition)
}

// TestBudget_CountsRequestsThatWait: requests that wait for a store are counted
// until they are answered.
func TestBudget_CountsRequestsThatWait(t *testing.T) {
	t.Parallel()
	const requests, size = 20, 100 << 10
	events := heldAppends{&fakeEvents{changed: make(chan struct{})}, make(chan struct{})}
	account := budget.New(1 << 30)
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Ingest: (&memory{}).source, Events: events}, Budget: account})
	c := connect(t, addr)
	data := strings.Repeat("x", size)
	for n := range requests {
		send(t, c.Conn, fmt.Sprintf(`{"type":"append","id":%d,"events":[{"type":"t","tags":[],"data":%q}]}`, n, data))
	}
	waitFor(t, func() bool { return account.Stats().ByKind[budget.Ingest] >= requests*size }, "requests that wait are not counted")
	close(events.let)
	for range requests {
		if text := c.next(); !strings.Contains(text, `"ok"`) {
			t.Error(text)
		}
	}
	waitFor(t, func() bool { return account.Stats().ByKind[budget.Ingest] == 0 }, "what is answered is still counted")
}

// TestBudget_CountsWhatIsFollowed: subscriptions and consumptions are counted
// until they end, also while idle.
func TestBudget_CountsWhatIsFollowed(t *testing.T) {
	t.Parallel()
	streams, queues := newFakeStreams(t, "orders"), newFakeQueues(t, "jobs")
	account := budget.New(1 << 30)
	_, addr := serve(t, gateway.Config{
		Engine: engine.Engine{Ingest: (&memory{}).source, Streams: streams, Queues: queues},
		Budget: account,
	})
	c := connect(t, addr)
	held := func() int64 { return account.Stats().ByKind[budget.Follow] }
	c.ask(`{"type":"subscribe","stream":"orders","after":0,"id":1}`, `{"type":"ok","id":1,"position":0}`)
	one := held()
	if one == 0 {
		t.Error("a subscription is not counted")
	}
	c.ask(`{"type":"consume","queue":"jobs","id":2}`, `{"type":"ok","id":2}`)
	if held() != 2*one {
		t.Errorf("%d bytes with a consumption as well, want %d", held(), 2*one)
	}
	send(t, c.Conn, `{"type":"subscribe","stream":"nothing","id":3}`)
	if a := c.next(); !strings.Contains(a, "not_found") {
		t.Error(a)
	}
	waitFor(t, func() bool { return held() == 2*one }, "a subscription that failed is counted")
	c.ask(`{"type":"unsubscribe","stream":"orders","id":4}`, `{"type":"ok","id":4}`)
	waitFor(t, func() bool { return held() == one }, "a subscription that has ended is still counted")
	c.Abort()
	waitFor(t, func() bool { return account.Stats().Held == 0 }, "what nobody holds is still counted")
}

// TestBudget_EvictedPublishMayBeStored: a request that is evicted after the store
// has accepted it is not answered with an error that says to try again, which would
// store it twice.
func TestBudget_EvictedPublishMayBeStored(t *testing.T) {
	t.Parallel()
	const limit, small = 1 << 20, 60 << 10
	streams := newFakeStreams(t, "orders")
	account := budget.New(limit)
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Ingest: (&memory{}).source, Streams: streams}, Budget: account, MaxMessage: 256 << 10})
	streams.hold(true)
	type answer struct {
		status     int
		retryAfter string
		text       []byte
		err        error
	}
	answered := make(chan answer, 1)
	go func() {
		body := `{"payload":"` + strings.Repeat("x", 200_000) + `"}`
		resp, err := http.Post("http://"+addr+"/v1/streams/orders/messages", "application/json", strings.NewReader(body))
		if err != nil {
			answered <- answer{err: err}
			return
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		answered <- answer{resp.StatusCode, resp.Header.Get("Retry-After"), text, err}
	}()
	waitFor(t, func() bool {
		streams.mu.Lock()
		defer streams.mu.Unlock()
		return len(streams.waiting) > 0
	}, "the store does not get the message")
	for range limit / small { // others, so that the request is the greediest
		other := account.Open(nil)
		defer other.Close()
		other.Take(budget.Page, small)
	}
	if got := <-answered; got.err != nil || got.status != 500 || got.retryAfter != "" || !strings.Contains(string(got.text), `"outcome_unknown"`) {
		t.Errorf("the request was answered %d %s, %v, to be tried again after %q", got.status, got.text, got.err, got.retryAfter)
	}
	streams.hold(false)
	waitFor(t, func() (there bool) {
		streams.change(func() { there = len(streams.streams["orders"].messages) == 1 })
		return there
	}, "the message is not stored")
}

// appending sends appends of that size until the connection ends.
func appending(c *websocket.Conn, size int) {
	text := fmt.Appendf(nil, `{"type":"append","id":1,"events":[{"type":"t","tags":[],"data":%q}]}`, strings.Repeat("x", size))
	for err := error(nil); err == nil; err = c.Flush() {
		c.Queue(websocket.OpText, text)
	}
}

// TestBudget_RequestsWaitForRoom: while a store does not answer, requests use at
// most the budget, and evicted connections free the memory of theirs.
func TestBudget_RequestsWaitForRoom(t *testing.T) {
	t.Parallel()
	const limit, size, greedy = 8 << 20, 300 << 10, 2
	events := heldAppends{&fakeEvents{changed: make(chan struct{})}, make(chan struct{})}
	account := budget.New(limit)
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Ingest: (&memory{}).source, Events: events}, Budget: account})
	var sending sync.WaitGroup
	for range greedy {
		c := dial(t, "ws://"+addr+"/ws")
		sending.Go(func() { appending(c, size) })
	}
	waitFor(t, func() bool {
		s := account.Stats()
		if s.Held > limit {
			t.Errorf("%d bytes are held, of %d", s.Held, limit)
		}
		return s.Evictions == greedy
	}, "connections that fill the budget stay")
	sending.Wait()
	waitFor(t, func() bool { return account.Stats().Held == 0 }, "what evicted connections asked for is still held")
	close(events.let)
	connect(t, addr).ask(`{"type":"append","id":1,"events":[{"type":"t","tags":[]}]}`, `{"type":"ok","id":1,"positions":[1]}`)
}

// TestBudget_CountsSubscribedQueries: queries of subscriptions are counted
// until the subscription ends.
func TestBudget_CountsSubscribedQueries(t *testing.T) {
	t.Parallel()
	const queries, size = 10, 100 << 10
	account := budget.New(1 << 30)
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Ingest: (&memory{}).source, Events: &fakeEvents{changed: make(chan struct{})}}, Budget: account})
	c := connect(t, addr)
	for n := range queries {
		c.ask(fmt.Sprintf(`{"type":"subscribe","id":1,"subscription":"%d","query":{"items":[{"tags":[%q]}]}}`, n, strings.Repeat("t", size)), `{"type":"ok","id":1,"position":0}`)
	}
	if held := account.Stats().ByKind[budget.Ingest]; held < queries*size {
		t.Errorf("%d queries of %d bytes count %d", queries, size, held)
	}
	for n := range queries {
		c.ask(fmt.Sprintf(`{"type":"unsubscribe","id":1,"subscription":"%d"}`, n), `{"type":"ok","id":1}`)
	}
	waitFor(t, func() bool { return account.Stats().ByKind[budget.Ingest] == 0 }, "queries that nobody follows are still counted")
}
