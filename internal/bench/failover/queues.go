package failover

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
)

// enqueuer sends messages to a queue.
type enqueuer struct {
	client
	queue string
}

func (e *enqueuer) run(ctx context.Context) {
	defer e.close()
	for sequence := 0; e.rest(ctx, 1); sequence++ {
		c, sent := contentOf(e.number, sequence), time.Now()
		m, err := e.ask(ctx, `"type":"enqueue","queue":%q,"payload":%q`, e.queue, c)
		if err != nil {
			continue
		}
		e.ledger.Acknowledged(e.queue, c, m.Position, sent)
		e.answerTimes.answered(kindEnqueue)
	}
}

// settlement records the messages of a queue whose acknowledgement by a consumer was answered. Safe for concurrent
// use.
type settlement struct {
	mu        sync.Mutex // guards the fields below
	positions map[int64]settled
	contents  map[content]bool
}

// settled describes how a delivery was acknowledged.
type settled struct {
	answered time.Time
	client   int
}

func newSettlement() *settlement {
	return &settlement{positions: make(map[int64]settled), contents: make(map[content]bool)}
}

// at returns how the message at a position was settled.
func (s *settlement) at(position int64) (how settled, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how, ok = s.positions[position]
	return how, ok
}

// of reports whether a message was settled, at any position.
func (s *settlement) of(c content) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.contents[c]
}

func (s *settlement) settle(c content, position int64, client int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.positions[position], s.contents[c] = settled{time.Now(), client}, true
}

// consumer receives deliveries and acknowledges each of them. It extends some leases before that.
type consumer struct {
	client
	queue   string
	quorum  bool
	settled *settlement
}

func (c *consumer) run(ctx context.Context) {
	defer c.close()
	for ctx.Err() == nil {
		c.consume(ctx)
	}
}

// consume receives deliveries until the consumption ends.
func (c *consumer) consume(ctx context.Context) {
	wire, err := c.dial(ctx)
	if err != nil {
		return
	}
	inbox := wire.Inbox(c.queue)
	if _, err := c.ask(ctx, `"type":"consume","queue":%q,"credits":50`, c.queue); err != nil {
		sleep(ctx, 50*time.Millisecond)
		return
	}
	var memory []bench.WireMessage
	for {
		page, err := inbox.Next(ctx, memory)
		if err != nil {
			c.close()
			return
		}
		for _, m := range page {
			if m.Type == "error" {
				c.ledger.Count(countErrors)
				c.close()
				return
			}
			c.receive(wire, m)
		}
		memory = page
	}
}

// receive acknowledges a delivery, and does not wait for the answer.
func (c *consumer) receive(wire *bench.Wire, m bench.WireMessage) {
	what, err := parseContent(m.Payload)
	if err != nil {
		c.ledger.Break(PromiseSettled, "%s: position %d: %v", c.queue, m.Position, err)
	}
	c.ledger.Seen(c.queue, m.Position, what)
	if how, ok := c.settled.at(m.Position); ok && c.quorum {
		c.ledger.Break(PromiseSettled, "%s: %v, position %d, was settled by client %d, and is delivered to client %d %v later, attempt %d",
			c.queue, what, m.Position, how.client, c.number, time.Since(how.answered).Round(time.Millisecond), m.Attempt)
	}
	if c.settled.of(what) {
		// With an asynchronous standby the acknowledgement may be lost. The message may also be lost, if it was
		// delivered before the standby had it: then the enqueue request was not answered, and is repeated.
		c.ledger.Count(countRedelivered)
	}
	if rand.IntN(10) == 0 {
		wire.Send(fmt.Appendf(nil, `"type":"extend","queue":%q,"delivery":%q,"lease_ms":60000`, c.queue, m.Delivery), c.counted)
	}
	position := m.Position
	wire.Send(fmt.Appendf(nil, `"type":"ack","queue":%q,"delivery":%q`, c.queue, m.Delivery), func(m bench.WireMessage, err error) {
		if err == nil && m.Type != "error" {
			c.settled.settle(what, position, c.number)
			c.answerTimes.answered(kindSettle)
			return
		}
		c.counted(m, err)
	})
}

// counted counts an error answer.
func (c *consumer) counted(m bench.WireMessage, err error) {
	if err == nil && m.Type == "error" {
		c.ledger.Count(countErrors)
		if m.Code == "lease_lost" {
			c.ledger.Count(countTold)
		}
	}
}
