package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/testkit"
)

// received are the deliveries of a receive.
func (c client) received(path string) (out []got) {
	c.t.Helper()
	status, text := c.do("POST", path, "")
	var answer struct{ Deliveries []got }
	if err := json.Unmarshal([]byte(text), &answer); err != nil || status != 200 || answer.Deliveries == nil {
		c.t.Fatalf("%s: %d %s", path, status, text)
	}
	return answer.Deliveries
}

func TestAPI_Queues(t *testing.T) {
	t.Parallel()
	_, queues, _, addr := serveAll(t)
	c := client{t, addr}
	c.want("POST", "/v1/queues/more", `{"retry_min_ms":5,"retry_max_ms":5000,"max_attempts":3}`, 200, `{"queue":"more"}`)
	queues.state.Lock()
	if opts := queues.queues["more"].opts; opts != (engine.QueueOptions{MaxAttempts: 3, RetryMin: 5 * time.Millisecond, RetryMax: 5 * time.Second}) {
		t.Errorf("made with %+v", opts)
	}
	queues.state.Unlock()
	c.want("DELETE", "/v1/queues/more", "", 200, `{"queue":"more"}`)
	c.want("GET", "/v1/queues", "", 200, `{"queues":[{"queue":"jobs"}]}`)
	c.want("POST", "/v1/queues/jobs/messages", `{"payload":"1"}`, 200, `{"position":1,"count":1}`)
	c.want("POST", "/v1/queues/jobs/messages", `{"messages":[{"payload":"2"},{"payload":"3"}]}`, 200, `{"position":2,"count":2}`)
	first, rest := c.received("/v1/queues/jobs/receive"), c.received("/v1/queues/jobs/receive?max=10")
	if len(first) != 1 || len(rest) != 2 || first[0].Payload != "1" || first[0].Attempt != 1 || rest[1].Position != 3 {
		t.Fatalf("got %+v and %+v", first, rest)
	}
	c.want("GET", "/v1/queues/jobs", "", 200, `{"queue":"jobs","ready":0,"leased":3,"delayed":0,"dead":0,"head":0,"oldest_ms":0,"nodes":0,"paused":false}`)
	ack := func(kind, more string, tokens ...string) (string, string) {
		text, _ := json.Marshal(tokens)
		return "/v1/queues/jobs/" + kind, `{"deliveries":` + string(text) + more + `}`
	}
	path, body := ack("ack", "", first[0].Delivery, "never")
	c.want("POST", path, body, 409, `{"error":{"code":"lease_lost","message":"the leases of some deliveries have ended, or were never this caller's: see lost","retryable":false,"count":1,"lost":["never"]}}`)
	path, body = ack("extend", `,"lease_ms":60000`, rest[0].Delivery, rest[1].Delivery)
	c.want("POST", path, body, 200, `{"count":2}`)
	path, body = ack("nack", `,"reason":"r","delay_ms":1`, rest[0].Delivery)
	c.want("POST", path, body, 200, `{"count":1}`)
	c.refused("POST", path, body, 409, "lease_lost")
	queues.change(func() { queues.fail = errors.New("away") })
	path, body = ack("ack", "", rest[1].Delivery)
	c.refused("POST", path, body, 503, "not_settled")
	queues.change(func() { queues.fail = nil })
	c.want("POST", path, body, 200, `{"count":1}`)
	again := c.received("/v1/queues/jobs/receive?max=10&wait_ms=1000")
	if len(again) != 1 || again[0].Attempt != 2 || again[0].Position != 2 {
		t.Errorf("got %+v after the nack", again)
	}
	if done := lookAt(queues, func(q *fakeQueue) []int64 { return slices.Clone(q.acked) }); !slices.Equal(done, []int64{1, 3}) {
		t.Errorf("acknowledged %v", done)
	}
}

// TestAPI_CreateWithoutOptions: a create without options accepts an existing queue; only a body with options is compared with it.
func TestAPI_CreateWithoutOptions(t *testing.T) {
	t.Parallel()
	_, _, _, addr := serveAll(t)
	c := client{t, addr}
	c.want("POST", "/v1/queues/slow", `{"retry_min_ms":5,"max_attempts":3}`, 200, `{"queue":"slow"}`)
	c.want("POST", "/v1/queues/slow", "", 200, `{"queue":"slow"}`)
	c.want("POST", "/v1/queues/slow", "{}", 200, `{"queue":"slow"}`)
	c.want("POST", "/v1/queues/slow", `{"retry_min_ms":5,"max_attempts":3}`, 200, `{"queue":"slow"}`)
	c.refused("POST", "/v1/queues/slow", `{"max_attempts":4}`, 409, "exists")
	c.refused("POST", "/v1/queues/slow", `{"partitions":0}`, 409, "exists")
	c.want("POST", "/v1/streams/keyed", `{"keyed":true,"partitions":2}`, 200, `{"keyed":true,"partitions":2,"stream":"keyed"}`)
	c.want("POST", "/v1/streams/keyed", "", 200, `{"keyed":true,"partitions":2,"stream":"keyed"}`)
	c.want("POST", "/v1/streams/keyed", "{}", 200, `{"keyed":true,"partitions":2,"stream":"keyed"}`)
	c.refused("POST", "/v1/streams/keyed", `{"keyed":false,"partitions":2}`, 409, "exists")
	c.refused("POST", "/v1/streams/keyed", `{"keyed":true}`, 409, "exists")
}

// TestAPI_LongPoll: a receive and a read wait for messages. Receives wait as one consumer; at the end of polls they are answered.
func TestAPI_LongPoll(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, queues, server, addr := serveAll(t)
		c := client{t, addr}
		began := time.Now()
		if none := c.received("/v1/queues/jobs/receive?wait_ms=150"); len(none) > 0 || time.Since(began) != 150*time.Millisecond {
			t.Errorf("got %v after %v", none, time.Since(began))
		}
		c.want("GET", "/v1/streams/orders/messages?wait_ms=150", "", 200, `{"messages":[],"next":0}`)
		answers, read := make(chan []got, 3), make(chan string)
		for range 3 {
			go func() { answers <- c.received("/v1/queues/jobs/receive?max=1&wait_ms=20000") }()
		}
		go func() { _, text := c.do("GET", "/v1/streams/orders/messages?wait_ms=20000", ""); read <- text }()
		time.Sleep(time.Second)
		c.want("POST", "/v1/queues/jobs/messages", `{"messages":[{"payload":"1"},{"payload":"2"}]}`, 200, `{"position":1,"count":2}`)
		for range 2 {
			if ds := <-answers; len(ds) != 1 {
				t.Errorf("got %+v", ds)
			}
		}
		c.want("POST", "/v1/streams/orders/messages", `{"payload":"x"}`, 200, `{"position":1,"count":1}`)
		if text := <-read; !strings.Contains(text, `"next":1`) {
			t.Errorf("read %s", text)
		}
		if open := lookAt(queues, func(*fakeQueue) int { return queues.open }); open != 1 {
			t.Errorf("%d consumptions are open, want one", open)
		}
		server.EndPolls()
		if ds := <-answers; len(ds) != 0 || time.Since(began) > 10*time.Second {
			t.Errorf("the end of polls: %+v after %v", ds, time.Since(began))
		}
	})
}

// lateQueues lease messages after the client has gone.
type lateQueues struct{ *fakeQueues }

func (l lateQueues) Consume(ctx context.Context, queue string, opts engine.ConsumeOptions) (engine.Consumption, error) {
	c, err := l.fakeQueues.Consume(ctx, queue, opts)
	return lateConsumption{c}, err
}

type lateConsumption struct{ engine.Consumption }

func (l lateConsumption) Receive(ctx context.Context, limit int) ([]engine.Delivery, error) {
	<-ctx.Done()
	return l.Consumption.Receive(context.WithoutCancel(ctx), limit)
}

func TestAPI_LeasedTooLateGoesBack(t *testing.T) {
	t.Parallel()
	queues := newFakeQueues(t, "jobs")
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Queues: lateQueues{queues}}})
	client{t, addr}.want("POST", "/v1/queues/jobs/messages", `{"payload":"1"}`, 200, `{"position":1,"count":1}`)
	conn := unread(t, addr, "POST /v1/queues/jobs/receive?wait_ms=20000", "")
	testkit.Eventually(t, "the request waits", func() bool { return lookAt(queues, func(*fakeQueue) int { return queues.open }) == 1 })
	conn.Close()
	testkit.Eventually(t, "it is given back", func() bool {
		return lookAt(queues, func(q *fakeQueue) bool { return len(q.nacks) == 1 && len(q.ready) == 1 })
	})
}

// TestAPI_ReceiveOfANewQueue: a receive of a queue that was dropped is refused. The first one of a new queue of its name gets its messages, and nothing is
// left of the deliveries of the old one.
func TestAPI_ReceiveOfANewQueue(t *testing.T) {
	t.Parallel()
	_, queues, _, addr := serveAll(t)
	c := client{t, addr}
	c.want("POST", "/v1/queues/jobs/messages", `{"payload":"old"}`, 200, `{"position":1,"count":1}`)
	if old := c.received("/v1/queues/jobs/receive"); len(old) != 1 {
		t.Fatalf("got %+v", old)
	}
	for _, refused := range []bool{true, false} {
		c.want("DELETE", "/v1/queues/jobs", "", 200, `{"queue":"jobs"}`)
		if refused {
			c.refused("POST", "/v1/queues/jobs/receive", "", 404, "not_found")
			if open := lookAt(queues, func(*fakeQueue) int { return queues.open }); open != 0 {
				t.Errorf("%d consumptions of it are open", open)
			}
		}
		c.want("POST", "/v1/queues/jobs", "", 200, `{"queue":"jobs"}`)
		c.want("POST", "/v1/queues/jobs/messages", `{"payload":"new"}`, 200, `{"position":1,"count":1}`)
		if got := c.received("/v1/queues/jobs/receive?wait_ms=20000"); len(got) != 1 || got[0].Payload != "new" {
			t.Errorf("got %+v, want the new message", got)
		}
	}
	if got := c.consumers("jobs", "").text(); !strings.HasPrefix(got, "1 []: http  1/") {
		t.Errorf("consumers: %s, want one with one message", got)
	}
}
