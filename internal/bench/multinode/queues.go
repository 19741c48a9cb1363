package multinode

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// queue is the name of the queue.
const queue = "jobs"

// enqueuer sends messages to the queue. It does not repeat a request whose outcome is unknown.
type enqueuer struct{ client }

func (e *enqueuer) run(ctx context.Context) {
	defer e.close()
	for sequence := 0; e.rest(ctx, 4); sequence++ {
		c := contentOf(e.number, sequence)
		e.ledger.Count(countSent, 1)
		if m, err := e.ask(ctx, `"type":"enqueue","queue":%q,"payload":%q`, queue, c); err == nil {
			e.ledger.Acknowledged(queue, c, m.Position)
		}
	}
}

// consumer takes deliveries at one node, and acknowledges them at another one.
type consumer struct {
	client
	jobs *jobs
}

func (c *consumer) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := c.consume(ctx); err != nil && ctx.Err() == nil {
			c.ledger.Count(countErrors, 1)
			sleep(ctx, again)
		}
	}
}

// delivery is one that a node has given out.
type delivery struct {
	Delivery string
	Payload  string
	Position int64
	Attempt  int
}

// consume takes some deliveries, keeps them for a while, and acknowledges them.
func (c *consumer) consume(ctx context.Context) error {
	at, address := c.pick(c.home)
	if address == "" {
		return sleep(ctx, again)
	}
	asked := time.Now()
	var page struct{ Deliveries []delivery }
	if err := c.call(ctx, "POST", address, "/v1/queues/"+queue+"/receive?max=5&wait_ms=500", nil, &page); err != nil {
		return err
	}
	for _, d := range page.Deliveries {
		c.jobs.take(d, c.number, at, asked, time.Now())
	}
	c.delivered(len(page.Deliveries))
	if rand.IntN(20) == 0 {
		sleep(ctx, time.Duration(rand.Int64N(int64(2*time.Second))))
	}
	return c.acknowledge(ctx, at, page.Deliveries)
}

// attempts is how often a consumer asks to acknowledge a delivery whose node does not answer. After that, the message comes again when its
// lease ends, unless an attempt was recorded.
const attempts = 5

// acknowledge settles deliveries at another node than the one that has given them out. It repeats the request while the outcome
// of some is unknown.
func (c *consumer) acknowledge(ctx context.Context, owner life, left []delivery) (err error) {
	asked := false
	for attempt := 0; len(left) > 0 && attempt < attempts && ctx.Err() == nil; attempt++ {
		if attempt > 0 {
			sleep(ctx, 4*again)
		}
		_, address := c.pick((owner.node + 1 + attempt) % len(c.nodes))
		if address == "" {
			continue
		}
		left, err = c.settle(ctx, address, left, asked)
		asked = true
	}
	for _, d := range left {
		c.jobs.unknown(d)
	}
	return err
}

// settle acknowledges deliveries, and returns those whose outcome is unknown. asked is whether an earlier request for them had no
// certain answer.
func (c *consumer) settle(ctx context.Context, address string, all []delivery, asked bool) (unknown []delivery, err error) {
	body := struct {
		Deliveries []string `json:"deliveries"`
	}{}
	for _, d := range all {
		body.Deliveries = append(body.Deliveries, d.Delivery)
	}
	began := time.Now()
	err = c.call(ctx, "POST", address, "/v1/queues/"+queue+"/ack", body, &struct{}{})
	refused, ok := errors.AsType[*answerError](err)
	if err != nil && (!ok || len(refused.Lost)+len(refused.Failed) == 0) {
		return all, err
	}
	c.latency.answered(time.Since(began))
	for _, d := range all {
		switch {
		case ok && slices.Contains(refused.Failed, d.Delivery):
			unknown = append(unknown, d)
		case ok && slices.Contains(refused.Lost, d.Delivery):
			c.jobs.lost(d, asked)
		default:
			c.jobs.settle(d, c.number)
		}
	}
	return unknown, err
}
