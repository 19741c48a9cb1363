package gateway_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/testkit"
)

// got is a delivery as a client receives it.
type got struct {
	Type, Queue, Delivery, Payload, Key string
	Attempt                             int
	Position                            int64
}

func (w *wire) delivery() (d got) {
	w.t.Helper()
	if text := w.next(); json.Unmarshal([]byte(text), &d) != nil || d.Type != "delivery" || d.Delivery == "" {
		w.t.Fatalf("got %s, want a delivery", text)
	}
	return d
}

// jobs enqueues count messages.
func jobs(t *testing.T, c *wire, count int) {
	t.Helper()
	messages := strings.Repeat(`{"payload":"j"},`, count-1) + `{"payload":"j"}`
	c.ask(`{"type":"enqueue","id":"jobs","queue":"jobs","messages":[`+messages+`]}`, fmt.Sprintf(`{"type":"ok","id":"jobs","position":1,"count":%d}`, count))
}

// lookAt calls f with the state of the queue jobs.
func lookAt[T any](f *fakeQueues, look func(*fakeQueue) T) T {
	f.state.Lock()
	defer f.state.Unlock()
	return look(f.queues["jobs"])
}

func TestConsume_AckIsAnsweredAfterTheCommit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, queues, _, addr := serveAll(t)
		c := connect(t, addr)
		jobs(t, c, 3)
		c.ask(`{"type":"consume","id":2,"queue":"jobs"}`, `{"type":"ok","id":2}`)
		a, b, last := c.delivery(), c.delivery(), c.delivery()
		if a.Attempt != 1 || a.Queue != "jobs" || a.Payload != "j" || a.Position != 1 || b.Position != 2 {
			t.Errorf("got %+v", a)
		}
		queues.hold(true)
		send(t, c.socket, fmt.Sprintf(`{"type":"ack","id":3,"queue":"jobs","delivery":%q}`, a.Delivery))
		c.silent(time.Second)
		queues.hold(false)
		c.want(`{"type":"ok","id":3,"count":1}`)
		// One of them is lost, and named in the answer; the other is acknowledged.
		c.ask(fmt.Sprintf(`{"type":"ack","id":4,"queue":"jobs","deliveries":[%q,%q,"never"]}`, a.Delivery, b.Delivery),
			fmt.Sprintf(`{"type":"error","id":4,"code":"lease_lost","message":"the leases of some deliveries have ended, or were never this caller's: see lost","retryable":false,"count":1,"lost":[%q,"never"]}`, a.Delivery))
		send(t, c.socket, fmt.Sprintf(`{"type":"ack","queue":"jobs","delivery":%q}`, last.Delivery))
		testkit.Eventually(t, "all are acknowledged", func() bool {
			return slices.Equal(lookAt(queues, func(q *fakeQueue) []int64 { return slices.Clone(q.acked) }), []int64{1, 2, 3})
		})
		waitMetric(t, addr, "tidewire_settled_deliveries_total 3")
	})
}

func TestConsume_CreditsBoundWhatIsUnacknowledged(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, queues, _, addr := serveAll(t)
		c := connect(t, addr)
		jobs(t, c, 20)
		c.ask(`{"type":"consume","id":1,"queue":"jobs","credits":3}`, `{"type":"ok","id":1}`)
		tokens := []string{c.delivery().Delivery, c.delivery().Delivery, c.delivery().Delivery}
		if got := c.code(`{"type":"consume","id":"x","queue":"jobs"}`); got != "already_consuming" {
			t.Error(got)
		}
		c.silent(time.Second)
		send(t, c.socket, fmt.Sprintf(`{"type":"ack","queue":"jobs","deliveries":[%q,%q]}`, tokens[0], tokens[1]))
		c.delivery()
		c.delivery()
		c.silent(time.Second)
		c.ask(`{"type":"credit","id":2,"queue":"jobs","n":-3}`, `{"type":"ok","id":2}`)
		send(t, c.socket, fmt.Sprintf(`{"type":"ack","queue":"jobs","delivery":%q}`, tokens[2]))
		c.silent(time.Second)
		for _, n := range []string{"-1", "10001", "-10001"} {
			if got := c.code(`{"type":"credit","id":"x","queue":"jobs","n":` + n + `}`); got != "invalid_credits" {
				t.Errorf("n %s: %s", n, got)
			}
		}
		send(t, c.socket, `{"type":"credit","queue":"jobs","n":4}`)
		c.delivery()
		c.delivery()
		c.silent(time.Second)
		if n := lookAt(queues, func(q *fakeQueue) int { return len(q.leased) }); n != 4 {
			t.Errorf("%d are leased, want the 4 of the credits", n)
		}
	})
}

// TestConsume_LessCreditWhileWaiting: a client that withdraws its credit while waiting gets no later messages.
func TestConsume_LessCreditWhileWaiting(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, _, _, addr := serveAll(t)
		c := connect(t, addr)
		c.ask(`{"type":"consume","id":1,"queue":"jobs","credits":5}`, `{"type":"ok","id":1}`)
		time.Sleep(time.Second) // it waits for messages
		c.ask(`{"type":"credit","id":2,"queue":"jobs","n":-4}`, `{"type":"ok","id":2}`)
		jobs(t, connect(t, addr), 3) // on the same connection its answer may come after the first
		c.delivery()
		c.silent(time.Second)
	})
}

func TestConsume_NackAndExtend(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, queues, _, addr := serveAll(t)
		c := connect(t, addr)
		jobs(t, c, 1)
		c.ask(`{"type":"enqueue","id":1,"queue":"jobs","payload":"later","delay_ms":86400000}`, `{"type":"ok","id":1,"position":2}`)
		c.ask(`{"type":"consume","id":1,"queue":"jobs","credits":1}`, `{"type":"ok","id":1}`)
		first := c.delivery()
		send(t, c.socket, fmt.Sprintf(`{"type":"nack","id":2,"queue":"jobs","delivery":%q,"delay_ms":40,"reason":"no"}`, first.Delivery))
		var second got
		for answered := false; !answered || second.Delivery == ""; { // by different lanes, in any order
			if line := c.next(); line == `{"type":"ok","id":2,"count":1}` {
				answered = true
			} else if json.Unmarshal([]byte(line), &second) != nil || second.Type != "delivery" {
				t.Fatalf("got %s", line)
			}
		}
		if second.Attempt != 2 || second.Delivery == first.Delivery {
			t.Errorf("got %+v", second)
		}
		if reasons := lookAt(queues, func(q *fakeQueue) []string { return q.nacks }); !slices.Equal(reasons, []string{"no"}) {
			t.Errorf("reasons %q", reasons)
		}
		c.ask(fmt.Sprintf(`{"type":"extend","id":3,"queue":"jobs","delivery":%q,"lease_ms":60000}`, second.Delivery), `{"type":"ok","id":3,"count":1}`)
		if want := []time.Duration{24 * time.Hour, 40 * time.Millisecond, time.Minute}; !slices.Equal(lookAt(queues, func(*fakeQueue) []time.Duration { return queues.asked }), want) {
			t.Errorf("the queue was asked for %v, want %v", queues.asked, want)
		}
		c.ask(fmt.Sprintf(`{"type":"ack","id":4,"queue":"jobs","delivery":%q}`, second.Delivery), `{"type":"ok","id":4,"count":1}`)
	})
}

// TestConsume_LeaseEnds: when a lease expires its credit is free again, and a later acknowledgement fails.
func TestConsume_LeaseEnds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, queues, _, addr := serveAll(t)
		queues.first = 5 * time.Second
		c := connect(t, addr)
		jobs(t, c, 1)
		c.ask(`{"type":"consume","id":1,"queue":"jobs","credits":1}`, `{"type":"ok","id":1}`)
		first, second := c.delivery(), c.delivery()
		if second.Attempt != 2 || second.Position != first.Position {
			t.Errorf("got %+v and %+v", first, second)
		}
		if got := c.code(fmt.Sprintf(`{"type":"ack","id":"x","queue":"jobs","delivery":%q}`, first.Delivery)); got != "lease_lost" {
			t.Error(got)
		}
	})
}

// TestConsume_AckThatFailed: a failed acknowledgement can be repeated.
func TestConsume_AckThatFailed(t *testing.T) {
	t.Parallel()
	_, queues, _, addr := serveAll(t)
	c := connect(t, addr)
	jobs(t, c, 1)
	c.ask(`{"type":"consume","id":1,"queue":"jobs"}`, `{"type":"ok","id":1}`)
	token := c.delivery().Delivery
	for _, kind := range []string{`"ack"`, `"nack"`, `"extend","lease_ms":5`} {
		queues.change(func() { queues.fail = errors.New("disk full") })
		c.ask(fmt.Sprintf(`{"type":%s,"id":2,"queue":"jobs","delivery":%q}`, kind, token),
			fmt.Sprintf(`{"type":"error","id":2,"code":"not_settled","message":"the outcome for some deliveries is not known: send the request again for those in failed","retryable":true,"failed":[%q]}`, token))
	}
	queues.change(func() { queues.fail = nil })
	c.ask(fmt.Sprintf(`{"type":"ack","id":3,"queue":"jobs","delivery":%q}`, token), `{"type":"ok","id":3,"count":1}`)
}

func TestConsume_CancelGivesBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, queues, _, addr := serveAll(t)
		c, other := connect(t, addr), connect(t, addr)
		jobs(t, c, 2)
		c.ask(`{"type":"consume","id":1,"queue":"jobs"}`, `{"type":"ok","id":1}`)
		first, second := c.delivery(), c.delivery()
		queues.hold(true)
		send(t, c.socket, fmt.Sprintf(`{"type":"ack","id":2,"queue":"jobs","delivery":%q}`, first.Delivery), `{"type":"cancel","id":3,"queue":"jobs"}`)
		c.silent(time.Second) // the acknowledgement comes before the end
		queues.hold(false)
		c.want(`{"type":"ok","id":2,"count":1}`, `{"type":"ok","id":3}`)
		other.ask(`{"type":"consume","id":1,"queue":"jobs"}`, `{"type":"ok","id":1}`)
		if again := other.delivery(); again.Position != second.Position || again.Attempt != 2 || again.Delivery == first.Delivery {
			t.Errorf("got %+v, want what was given back", again)
		}
		if got := c.code(fmt.Sprintf(`{"type":"ack","id":"x","queue":"jobs","delivery":%q}`, second.Delivery)); got != "not_consuming" {
			t.Error(got)
		}
		c.ask(`{"type":"consume","id":4,"queue":"jobs"}`, `{"type":"ok","id":4}`)
		if got := c.code(fmt.Sprintf(`{"type":"ack","id":"x","queue":"jobs","delivery":%q}`, second.Delivery)); got != "lease_lost" {
			t.Errorf("a token of the consumption before: %s", got)
		}
	})
}

func TestConsume_QueueIsDropped(t *testing.T) {
	t.Parallel()
	_, queues, _, addr := serveAll(t)
	c := connect(t, addr)
	c.ask(`{"type":"consume","id":1,"queue":"jobs"}`, `{"type":"ok","id":1}`)
	queues.change(func() { delete(queues.queues, "jobs") })
	c.want(`{"type":"error","queue":"jobs","code":"queue_gone","message":"the queue was dropped","retryable":false}`)
	if got := c.code(`{"type":"cancel","id":"x","queue":"jobs"}`); got != "not_consuming" {
		t.Error(got)
	}
}
