package gateway

import (
	"context"
	"fmt"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/wire"
)

// publish stores messages in a stream.
func (s *session) publish(r *request) {
	streams := s.server.streams
	id, why := r.requestID(s.conn.identity.caller.Load())
	if why != nil {
		s.refuseFor(r.asked(), why)
		return
	}
	s.submit(r, r.Stream, streams != nil, func(messages []engine.Message, done func(engine.Place, error)) error {
		return streams.Publish(s.server.work, r.Stream, id, messages, done)
	})
}

// submit stores a request's messages in an engine, and answers after the commit. It waits while the engine is at
// its limit, and nothing more is read: this is the back-pressure on a client that is too fast.
func (s *session) submit(r *request, name string, served bool, store func([]engine.Message, func(engine.Place, error)) error) {
	messages, why := r.messages(&s.one)
	defer func() { s.one[0] = engine.Message{} }() // its payload may be large
	switch {
	case !served:
		why = because(codeNotServed)
	case !usable(name):
		why = because(codeName)
	}
	if why != nil {
		s.refuseFor(r.asked(), why)
		return
	}
	a := s.storing(r, len(messages))
	s.pending.add()
	if err := store(messages, a.done); err != nil { // then done is not called
		s.pending.done()
		s.fail(r.asked(), err, codeNotStored)
		a.recycle()
	}
}

// commit moves a group's offset.
func (s *session) commit(r *request) {
	store := s.server.streams
	position, why := r.commitPosition()
	switch {
	case store == nil:
		s.refuse(r.asked(), codeNotServed)
	case !usable(r.Stream) || !usable(r.Group):
		s.refuse(r.asked(), codeName)
	case why != nil:
		s.refuseFor(r.asked(), why)
	case r.ID == nil:
		if err := store.CommitLater(s.server.work, r.Stream, r.Group, position); err != nil {
			s.fail(r.asked(), err, codeNotStored)
		}
	default:
		s.inBackground(func(ctx context.Context) {
			offset, err := query(ctx, sessionQuery{s, r}, func() (int64, error) { return store.Commit(ctx, r.Stream, r.Group, position) })
			if err != nil {
				s.fail(r.asked(), err, codeNotStored)
				return
			}
			s.ok(r.asked(), reply{Position: &offset})
		})
	}
}

// subscribe starts a subscription. The answer is sent when the start position
// is known.
func (s *session) subscribe(r *request) {
	from, why := r.start()
	name := r.Subscription
	if name == "" {
		name = r.Stream
	}
	switch {
	case s.server.streams == nil:
		why = because(codeNotServed)
	case why != nil:
	case r.Has(wire.FieldQuery):
		why = malformed("query", "either a stream or a query, not both")
	case !usable(r.Stream) || !validName(name):
		why = because(codeName)
	default:
		why = r.creditsWithin(maxCredits)
	}
	if why != nil {
		s.refuseFor(r.asked(), why)
		return
	}
	sub := newSubscriber(s, name, r)
	if why := s.enterSubscriber(sub); why != "" {
		s.refuse(r.asked(), why)
		return
	}
	store, by, of := s.server.streams, r.asked(), r.Stream // keeps only these of the request
	s.feed(func() {
		key := sharedKey{of, name, sub.encoding}
		sub.shared = s.server.shared.enter(key)
		defer s.server.shared.leave(key, sub.shared)
		sub.run(by, func(ctx context.Context) (feed, error) {
			source, err := store.Subscribe(ctx, of, from)
			return streamFeed{source, of, name}, err
		})
	})
}

// enterSubscriber adds a subscription unless there is one of that name, or too
// many.
func (s *session) enterSubscriber(sub *subscriber) code {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.subscriptions[sub.name] != nil:
		return codeSubscribed
	case s.full():
		return codeTooManyFeeds
	}
	s.subscriptions[sub.name] = sub
	return ""
}

func (s *session) subscriber(r *request) *subscriber {
	name := r.Subscription
	if name == "" {
		name = r.Stream
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.subscriptions[name]
}

// unsubscribe ends a subscription; the answer follows its last message.
func (s *session) unsubscribe(r *request) {
	sub := s.subscriber(r)
	if sub == nil || !sub.end.ask(r.asked()) {
		s.refuse(r.asked(), codeNotSubscribed)
		return
	}
	sub.cancel()
}

// creditSubscriber grants a subscription credit for more messages.
func (s *session) creditSubscriber(r *request) {
	sub := s.subscriber(r)
	switch {
	case sub == nil:
		s.refuse(r.asked(), codeNotSubscribed)
	case !sub.credits.add(r.N):
		s.refuseFor(r.asked(), wrong(codeCredits, "n", fmt.Sprintf("a number from 1 on, and no more than %d unused credits", maxCredits)))
	default:
		s.ok(r.asked(), reply{})
	}
}
