package gateway

import (
	"context"
)

// enqueue stores messages in a queue.
func (s *session) enqueue(r request) {
	opts, unique, why := r.enqueueOptions()
	if why != "" {
		s.refuse(r, why)
		return
	}
	store := s.server.queues.Store
	if unique != nil {
		s.enqueueUnique(r, opts, *unique)
		return
	}
	s.store(r, r.Queue, store != nil, func(messages []Message, done func(Place, error)) error {
		return store.Enqueue(s.server.work, r.Queue, messages, opts, done)
	})
}

// enqueueUnique stores a message unless there is one.
func (s *session) enqueueUnique(r request, opts EnqueueOptions, unique Unique) {
	store := s.server.queues.Store
	messages, why := r.messages()
	switch {
	case store == nil:
		why = codeNotServed
	case !usable(r.Queue):
		why = codeName
	case why == "" && r.Messages != nil:
		why = codeInvalid
	}
	if why != "" {
		s.refuse(r, why)
		return
	}
	before, end := s.uniqueTurn(r.Queue + "\x00" + unique.Key)
	s.inBackground(func(ctx context.Context) {
		defer end()
		select {
		case <-before: // the first one that was sent is the one that is stored
		case <-ctx.Done():
		}
		place, duplicate, err := store.EnqueueUnique(ctx, r.Queue, messages[0], opts, unique)
		if err != nil {
			s.fail(r, err, codeNotStored)
			return
		}
		if !duplicate {
			s.server.stored.Add(1)
		}
		answer := stored(place, 0)
		answer.Duplicate = duplicate
		s.ok(r, answer)
	})
}

// uniqueTurn has the connection's enqueues of one unique key follow each other: it
// returns a channel that is closed when those before have ended, and a function to
// be called when this one has.
func (s *session) uniqueTurn(key string) (before <-chan struct{}, end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, done := s.unique[key], make(chan struct{})
	if last == nil {
		last = make(chan struct{})
		close(last)
	}
	s.unique[key] = done
	return last, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.unique[key] == done {
			delete(s.unique, key)
		}
		close(done)
	}
}

// consume begins a consumption.
func (s *session) consume(r request) {
	credits := int64(defaultPrefetch)
	if r.Credits != nil {
		credits = *r.Credits
	}
	var why code
	switch {
	case s.server.queues.Store == nil:
		why = codeNotServed
	case !usable(r.Queue):
		why = codeName
	case credits < 0 || credits > maxPrefetch:
		why = codeCredits
	}
	if why != "" {
		s.refuse(r, why)
		return
	}
	c := newConsumer(s, r.Queue, credits)
	if why := s.enterConsumer(c); why != "" {
		s.refuse(r, why)
		return
	}
	s.feed(func() { c.run(r) })
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
	return ""
}

func (s *session) consumer(queue string) *consumer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.consumers[queue]
}

// cancelConsumer ends a consumption; the answer comes when its deliveries have
// been given back.
func (s *session) cancelConsumer(r request) {
	c := s.consumer(r.Queue)
	if c == nil || !c.end.ask(r) {
		s.refuse(r, codeNotConsuming)
		return
	}
	c.cancel()
}

// creditConsumer changes how much a consumption may have unacknowledged.
func (s *session) creditConsumer(r request) {
	c := s.consumer(r.Queue)
	switch {
	case c == nil:
		s.refuse(r, codeNotConsuming)
	case !c.grant(r.N):
		s.refuse(r, codeCredits)
	default:
		s.ok(r, reply{})
	}
}

// settle deals with deliveries. They are the client's no more, and free its
// credit, from when the request was read, and again if that fails.
func (s *session) settle(r request) {
	how, why := r.settlement(r.Type)
	tokens, wrong := r.tokens()
	c := s.consumer(r.Queue)
	switch {
	case s.server.queues.Leases == nil:
		why = codeNotServed
	case why == "" && wrong != "":
		why = wrong
	case why == "" && c == nil:
		why = codeNotConsuming
	}
	if why != "" {
		s.refuse(r, why)
		return
	}
	taken, lost := c.leases.take(how, tokens)
	signal(c.changed)
	if r.ID == nil && how.kind == "ack" {
		s.server.ignored.Add(uint64(len(lost)))
		s.server.settled.Add(uint64(len(taken)))
		s.server.queues.Leases.AckLater(owns(taken))
		return
	}
	answered := request{Type: r.Type, ID: r.ID}
	c.settling.add()
	s.inBackground(func(ctx context.Context) {
		defer c.settling.done()
		s.settled(ctx, answered, c, how, taken, lost)
	})
}

// settled settles and answers.
func (s *session) settled(ctx context.Context, r request, c *consumer, how settlement, taken []lease, lost []string) {
	gone, failed, err := c.leases.settle(ctx, s.server.queues.Leases, how, taken)
	if err != nil {
		s.server.log.warn("deliveries not settled", "queue", c.queue, "type", how.kind, "error", err)
	}
	done := len(taken) - len(gone) - len(failed)
	s.server.settled.Add(uint64(done))
	lost = append(lost, gone...)
	if len(lost)+len(failed) > 0 {
		s.server.ignored.Add(1)
	}
	s.answer(r, settledReply(lost, failed, done))
	signal(c.changed)
}
