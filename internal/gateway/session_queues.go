package gateway

import (
	"context"
	"fmt"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/wire"
)

// enqueue stores messages in a queue.
func (s *session) enqueue(r *request) {
	opts, why := r.enqueueOptions(s.conn.identity.caller.Load())
	var id *engine.RequestID
	if why == nil {
		id, why = r.requestID(s.conn.identity.caller.Load())
	}
	if why != nil {
		s.refuseFor(r.asked(), why)
		return
	}
	store := s.server.queues
	s.submit(r, "queue", r.Queue, store != nil, func(messages []engine.Message, done func(engine.Place, error)) error {
		return store.Enqueue(s.server.work, r.Queue, id, messages, opts, done)
	})
}

// consume starts a consumption.
func (s *session) consume(r *request) {
	credits := int64(defaultPrefetch)
	if r.Has(wire.FieldCredits) {
		credits = r.Credits
	}
	why := r.creditsWithin(maxPrefetch)
	switch {
	case s.server.queues == nil:
		why = because(codeNotServed)
	case !usable(r.Queue):
		why = unusable("queue", r.Queue)
	}
	if why != nil {
		s.refuseFor(r.asked(), why)
		return
	}
	c := newConsumer(s, r.Queue, r.Encoding, credits, engine.ConsumeOptions{ExplicitBegin: r.Begin})
	if why := s.enterConsumer(c); why != "" {
		s.refuse(r.asked(), why)
		return
	}
	by := r.asked() // keeps only this of the request
	s.feed(func() { c.run(by) })
}

// enterConsumer adds a consumption unless there is one of that queue, or too
// many.
func (s *session) enterConsumer(c *consumer) code {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.consumers[c.queue] != nil:
		return codeConsuming
	case s.full():
		return codeTooManyFeeds
	}
	s.consumers[c.queue] = c
	s.server.consuming.add(c)
	return ""
}

func (s *session) consumer(queue string) *consumer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.consumers[queue]
}

// cancelConsumer ends a consumption; the answer is sent when its deliveries
// have been released.
func (s *session) cancelConsumer(r *request) {
	c := s.consumer(r.Queue)
	if c == nil || !c.end.ask(r.asked()) {
		s.refuse(r.asked(), codeNotConsuming)
		return
	}
	c.cancel()
}

// creditConsumer changes how many unsettled messages a consumption may have.
func (s *session) creditConsumer(r *request) {
	c := s.consumer(r.Queue)
	switch {
	case c == nil:
		s.refuse(r.asked(), codeNotConsuming)
	case !c.grant(r.N):
		s.refuseFor(r.asked(), wrong(codeCredits, "n", fmt.Sprintf("a number that leaves the consumption 0 to %d credits", maxPrefetch)))
	default:
		s.ok(r.asked(), reply{})
	}
}

// settle acknowledges, nacks or extends deliveries. As soon as the request is
// read, acked and nacked deliveries leave the client and free its credit; if
// settling fails, the client has them again.
func (s *session) settle(r *request) {
	how, why := r.settlement(r.Type)
	tokens, whyTokens := r.tokens()
	if why == nil {
		why = whyTokens
	}
	c := s.consumer(r.Queue)
	switch {
	case s.server.queues == nil:
		why = because(codeNotServed)
	case why == nil && c == nil:
		why = because(codeNotConsuming)
	}
	if why != nil {
		s.refuseFor(r.asked(), why)
		return
	}
	if how.kind == "begin" {
		s.begin(r.asked(), c, how, tokens)
		return
	}
	taken, lost := c.leases.take(how, tokens)
	signal(c.changed)
	if r.ID == nil && how.kind == "ack" {
		s.server.ignored.Add(uint64(len(lost)))
		s.server.settled.Add(uint64(len(taken)))
		s.server.queues.AckLater(owns(taken))
		return
	}
	by := r.asked()
	c.settling.add()
	runs := s.inBackground(func(ctx context.Context) {
		defer c.settling.done()
		s.settled(ctx, by, c, how, taken, lost)
	})
	if !runs {
		c.settling.done()
	}
}

// begin makes deliveries attempts. That is done in memory, and before anything that the
// client sends later, or the end of its connection.
func (s *session) begin(by asked, c *consumer, how settlement, tokens []string) {
	taken, lost := c.leases.take(how, tokens)
	gone, failed, _ := c.leases.settle(s.work, s.server.queues, how, taken)
	lost = append(lost, gone...)
	if len(lost)+len(failed) > 0 {
		s.server.ignored.Add(1)
	}
	s.answer(by, settledReply(lost, failed, len(taken)-len(gone)-len(failed)))
}

// settled settles the deliveries and answers.
func (s *session) settled(ctx context.Context, by asked, c *consumer, how settlement, taken []lease, lost []string) {
	gone, failed, err := c.leases.settle(ctx, s.server.queues, how, taken)
	if err != nil {
		s.server.log.warn("deliveries not settled", "queue", c.queue, "type", how.kind, "error", err)
	}
	done := len(taken) - len(gone) - len(failed)
	s.server.settled.Add(uint64(done))
	lost = append(lost, gone...)
	if len(lost)+len(failed) > 0 {
		s.server.ignored.Add(1)
	}
	s.answer(by, settledReply(lost, failed, done))
	signal(c.changed)
}
