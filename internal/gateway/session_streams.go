package gateway

import (
	"context"
	"fmt"

	"github.com/tidewire/tidewire/internal/budget"
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
	s.submit(r, "stream", r.Stream, streams != nil, func(messages []engine.Message, done func(engine.Place, error)) error {
		return streams.Publish(s.server.work, r.Stream, id, messages, done)
	})
}

// submit stores a request's messages in an engine, and answers after the commit. It waits while the engine is at
// its limit, and nothing more is read: this is the back-pressure on a client that is too fast.
func (s *session) submit(r *request, field, name string, served bool, store func([]engine.Message, func(engine.Place, error)) error) {
	messages, why := r.messages(&s.one)
	defer func() { s.one[0] = engine.Message{} }() // its payload may be large
	switch {
	case !served:
		why = because(codeNotServed)
	case !usable(name):
		why = unusable(field, name)
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
	case !usable(r.Stream):
		s.refuseFor(r.asked(), unusable("stream", r.Stream))
	case !usable(r.Group):
		s.refuseFor(r.asked(), unusable("group", r.Group))
	case why != nil:
		s.refuseFor(r.asked(), why)
	case r.Has(wire.FieldPartition):
		s.commitOwned(r, position)
	case len(s.memberOf(r.Stream, r.Group)) > 0:
		s.refuseFor(r.asked(), malformed("partition", "that of the message, because this connection shares the group's partitions"))
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
	from, only, why := s.subscription(r)
	if why != nil {
		s.refuseFor(r.asked(), why)
		return
	}
	held := int64(0)
	if only != nil { // it keeps the request until the subscription ends
		var ok bool
		if held, ok = s.reserve(); !ok {
			return
		}
	}
	sub := newSubscriber(s, r.subscriptionName(), r)
	if why := s.enterSubscriber(sub); why != "" {
		s.conn.memory.Release(budget.Ingest, held)
		s.refuse(r.asked(), why)
		return
	}
	by, of, shared := r.asked(), r.Stream, r.Share // keeps only these of the request, without a filter
	s.feed(func() {
		defer s.conn.memory.Release(budget.Ingest, held)
		if shared {
			sub.run(by, func(ctx context.Context) (source, error) { return s.join(ctx, sub, of, from.Group, only) })
			return
		}
		key := sharedKey{of, sub.name, sub.encoding, only.sumOf(), sub.with}
		sub.shared = s.server.shared.enter(key)
		defer s.server.shared.leave(key, sub.shared)
		sub.run(by, func(ctx context.Context) (source, error) { return s.follow(ctx, sub, of, from, only) })
	})
}

// subscription returns where the subscription of a request begins and what its filter is, or why there is none.
func (s *session) subscription(r *request) (from engine.Start, only *filter, why *problem) {
	switch from, why = r.start(); {
	case s.server.streams == nil:
		why = because(codeNotServed)
	case why != nil:
	case r.Has(wire.FieldQuery):
		why = malformed("query", "either a stream or a query, not both")
	case !usable(r.Stream):
		why = unusable("stream", r.Stream)
	case !validName(r.subscriptionName()):
		why = wrong(codeName, "subscription", "a name of 1 to 128 bytes without NUL")
	case r.Share && from.Group == "":
		why = wrong(engine.CodeInvalid, "share", "a group beside it")
	default:
		why = r.creditsWithin(maxCredits)
	}
	if why == nil {
		only, why = r.filter()
	}
	return from, only, why
}

// subscriptionName is the name of a subscription, by default that of the stream.
func (r *request) subscriptionName() string {
	if r.Subscription == "" {
		return r.Stream
	}
	return r.Subscription
}

// follow opens a subscription of a stream.
func (s *session) follow(ctx context.Context, sub *subscriber, stream string, from engine.Start, only *filter) (source, error) {
	opened, err := s.server.streams.Subscribe(ctx, stream, from)
	if err != nil {
		return nil, err
	}
	all := streamFeed{opened, stream, sub.name}
	if only == nil {
		return paged{all, sub}, nil
	}
	return paged{&filteredFeed{streamFeed: all, filter: only, unsent: unsent{memory: s.conn.memory}}, sub}, nil
}

// join makes the subscription a member of a group.
func (s *session) join(ctx context.Context, sub *subscriber, stream, group string, only *filter) (source, error) {
	member, err := s.server.streams.Join(ctx, stream, group)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sub.of, sub.member = membershipOf{stream, group}, member
	return &memberSource{Membership: member, sub: sub, stream: stream, filter: only, unsent: unsent{memory: s.conn.memory}}, nil
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
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.subscriptions[r.subscriptionName()]
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
