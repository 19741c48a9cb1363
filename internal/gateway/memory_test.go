package gateway_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/websocket"
)

// released waits until nothing is counted any more.
func released(t *testing.T, account *budget.Budget) {
	t.Helper()
	testkit.Eventually(t, "nothing is counted", func() bool { return account.Stats().Held == 0 })
	if s := account.Stats(); s.Excess != 0 {
		t.Errorf("%d bytes were released that nobody held", s.Excess)
	}
}

// unread sends a request on a connection that is never read.
func unread(t *testing.T, addr, request, headers string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", request, headers)
	return conn
}

// TestBudget_FollowersAreEvicted: when memory is short, followers that hold the most are evicted. One that reads is served, or comes again when it is ended.
func TestBudget_FollowersAreEvicted(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	t.Parallel()
	const limit, total = 8 << 20, 100
	streams := newFakeStreams(t, "orders")
	fill(streams, "orders", total, 100_000)
	account := budget.New(limit)
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Streams: streams}, Budget: account})
	for range 12 {
		unread(t, addr, "GET /v1/streams/orders/follow?after=0", "")
	}
	testkit.Eventually(t, "a follower was ended", func() bool { return account.Stats().Evictions > 0 })
	for got := 0; got < total; {
		e := followRoom(t, addr, "/v1/streams/orders/follow", "Last-Event-ID", fmt.Sprint(got))
		got = e.untilEnded(got, total)
		e.resp.Body.Close()
	}
}

// untilEnded reads the messages after a position, in their order, up to a position or until the server ends this follower. It returns the
// position of the last one.
func (e *roomEvents) untilEnded(after, upTo int) int {
	e.t.Helper()
	for ; after < upTo; after++ {
		for i, part := range []string{"event: message\n", fmt.Sprintf("id: %d\n", after+1), "data: ", "\n"} {
			line, err := e.lines.ReadString('\n')
			if err != nil || i == 0 && line != part { // an event that is not whole does not count
				return after
			}
			if !strings.Contains(line, part) {
				e.t.Fatalf("got %.200s, want %s", line, part)
			}
		}
	}
	return after
}

// TestBudget_Requests: requests that wait for a store are counted until they are answered. They use at most the budget, beside the message that each
// connection is receiving, and evicted connections free the memory of theirs.
func TestBudget_Requests(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	t.Parallel()
	const limit, receiving = 8 << 20, 2 * 512 << 10
	events := &heldEvents{fakeEvents: newFakeEvents(), let: make(chan struct{}), appends: true}
	account := budget.New(limit)
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Events: events}, Budget: account})
	appending := func(size int) []byte {
		return fmt.Appendf(nil, `{"type":"append","id":1,"events":[{"type":"t","tags":[],"data":%q}]}`, strings.Repeat("x", size))
	}
	var sending sync.WaitGroup
	for range 2 {
		c := dial(t, "ws://"+addr+"/ws")
		sending.Go(func() {
			for err := error(nil); err == nil; err = c.Flush() {
				c.Queue(websocket.OpText, appending(300<<10))
			}
		})
	}
	testkit.Eventually(t, "connections that fill the budget are evicted", func() bool {
		s := account.Stats()
		if requests := account.Held(budget.Ingest); requests > limit || s.Held > limit+receiving {
			t.Errorf("%d bytes are held, %d for requests, of %d", s.Held, requests, limit)
		}
		return s.Evictions == 2
	})
	sending.Wait()
	released(t, account)
	const requests, size = 20, 50 << 10
	c := connect(t, addr)
	for range requests {
		send(t, c.socket, string(appending(size)))
	}
	testkit.Eventually(t, "requests that wait are counted", func() bool { return account.Held(budget.Ingest) >= requests*size })
	close(events.let)
	for range requests {
		if text := c.next(); !strings.Contains(text, `"ok"`) {
			t.Error(text)
		}
	}
	testkit.Eventually(t, "what is answered is not counted", func() bool { return account.Held(budget.Ingest) == 0 })
}

// TestBudget_Follow: subscriptions and consumptions, their queries and their filters are counted until they end, also while idle.
func TestBudget_Follow(t *testing.T) {
	t.Parallel()
	account := budget.New(1 << 30)
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Streams: newFakeStreams(t, "orders"), Queues: newFakeQueues(t, "jobs"), Events: newFakeEvents()}, Budget: account})
	c := connect(t, addr)
	c.ask(`{"type":"subscribe","stream":"orders","after":0,"id":1}`, `{"type":"ok","id":1,"position":0}`)
	one := account.Held(budget.Follow)
	c.ask(`{"type":"consume","queue":"jobs","id":2}`, `{"type":"ok","id":2}`)
	if held := account.Held(budget.Follow); one == 0 || held != 2*one {
		t.Errorf("%d bytes with a subscription, %d with a consumption as well", one, held)
	}
	if got := c.code(`{"type":"subscribe","stream":"nothing","id":"x"}`); got != "not_found" {
		t.Error(got)
	}
	testkit.Eventually(t, "a subscription that failed is not counted", func() bool { return account.Held(budget.Follow) == 2*one })
	const n, size = 5, 100 << 10
	var keys []string
	for k := range 100 {
		keys = append(keys, fmt.Sprintf("%03d", k)+strings.Repeat("k", 1021))
	}
	list, _ := json.Marshal(keys)
	for i, fields := range []string{`"query":{"items":[{"tags":["` + strings.Repeat("t", size) + `"]}]}`, `"stream":"orders","keys":` + string(list)} {
		before := account.Stats().Held
		for s := range n {
			if got := c.code(fmt.Sprintf(`{"type":"subscribe","id":"x","subscription":"%d",%s}`, s, fields)); got != "ok" {
				t.Fatal(got)
			}
		}
		if held := account.Stats().Held - before; held < n*size {
			t.Errorf("%d: %d bytes are counted, want at least %d", i, held, n*size)
		}
		for s := range n {
			c.ask(fmt.Sprintf(`{"type":"unsubscribe","id":1,"subscription":"%d"}`, s), `{"type":"ok","id":1}`)
		}
		testkit.Eventually(t, "what nobody follows is not counted", func() bool { return account.Stats().Held <= before })
	}
	c.ask(`{"type":"unsubscribe","stream":"orders","id":4}`, `{"type":"ok","id":4}`)
	testkit.Eventually(t, "a subscription that has ended is not counted", func() bool { return account.Held(budget.Follow) == one })
	c.Abort()
	released(t, account)
}

// fillBudget takes what is left of a budget, in parts, so that another holder is the greediest.
func fillBudget(t *testing.T, account *budget.Budget, limit, part int64) {
	for range limit / part {
		h := account.Open(nil)
		t.Cleanup(h.Close)
		h.Take(budget.Page, part)
	}
}

// TestBudget_EvictedPublishMayBeStored: a request that is evicted after the store has accepted it is not answered with an error that says to
// try again, which would store it twice.
func TestBudget_EvictedPublishMayBeStored(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	streams := newFakeStreams(t, "orders")
	account := budget.New(limit)
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Streams: streams}, Budget: account, MaxMessage: 256 << 10})
	streams.hold(true)
	answered := make(chan string, 1)
	go func() {
		status, text := client{t, addr}.do("POST", "/v1/streams/orders/messages", `{"payload":"`+strings.Repeat("x", 200_000)+`"}`)
		answered <- fmt.Sprint(status, text)
	}()
	testkit.Eventually(t, "the store has the message", streams.waits)
	fillBudget(t, account, limit, 60<<10)
	if got := <-answered; !strings.HasPrefix(got, "500") || !strings.Contains(got, `"outcome_unknown"`) || strings.Contains(got, "retry_after") {
		t.Errorf("the request was answered %s", got)
	}
	streams.hold(false)
	testkit.Eventually(t, "the message is stored", func() bool { return streams.stored("orders") == 1 })
}

// TestBudget_EvictedRequestReadsNoBody: a request that is evicted before its body has arrived ends at once, with an answer, and gives back its memory.
func TestBudget_EvictedRequestReadsNoBody(t *testing.T) {
	t.Parallel()
	const limit = 4 << 20
	account := budget.New(limit)
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Streams: newFakeStreams(t, "orders")}, Budget: account, BodyTimeout: time.Hour})
	conn := unread(t, addr, "POST /v1/streams/orders/messages", "Content-Type: application/json\r\nContent-Length: 1048576\r\n")
	conn.SetDeadline(time.Now().Add(patience))
	testkit.Eventually(t, "the body is counted", func() bool { return account.Held(budget.Body) > 0 })
	fillBudget(t, account, limit, 64<<10)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !resp.Close {
		t.Errorf("%d, to be tried again after %q, the connection ends: %v", resp.StatusCode, resp.Header.Get("Retry-After"), resp.Close)
	}
	testkit.Eventually(t, "the body is not counted", func() bool { return account.Held(budget.Body) == 0 })
}
