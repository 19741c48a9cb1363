package tidewire

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"math/rand/v2"
	"time"
)

// EventSubscription is a subscription of events. It lives until Close. One goroutine at a time takes its events.
type EventSubscription struct{ core *subCore }

// Subscribe begins a subscription of the events that the query matches: those that are stored, after the position of After, and those to come.
func (e *Events) Subscribe(ctx context.Context, query Query, options ...ReadOption) (*EventSubscription, error) {
	o := NewReadOptions(options...)
	if err := o.Check(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(query)
	if err != nil {
		return nil, err
	}
	core := newSubCore(e.c, "", SubscribeOptions{Credits: 256})
	core.after, core.resumes = o.After, true
	core.encode = func(w *writer, after int64, _ bool) {
		e.writeStore(w)
		w.json("query", text)
		w.number("after", after)
	}
	core.convert = eventItem
	if err := e.c.subscribe(ctx, core); err != nil {
		return nil, err
	}
	return &EventSubscription{core}, nil
}

// eventItem takes an event of a subscription.
func eventItem(m *incoming) (item, bool) {
	var message struct {
		Event wireEvent `json:"event"`
	}
	text, err := m.json()
	if err != nil || json.Unmarshal(text, &message) != nil {
		return item{}, false
	}
	i := item{event: message.Event.event()}
	i.message.Position = i.event.Position
	return i, true
}

// Position returns the position after which the next event comes.
func (s *EventSubscription) Position() int64 { return s.core.position() }

// Close ends the subscription, and its iteration without an error.
func (s *EventSubscription) Close() error {
	s.core.close()
	return nil
}

// Events iterates over the events. The iteration ends with an error, without one after Close, and with that of ctx when it ends.
func (s *EventSubscription) Events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			i, ok, err := s.core.nextItem(ctx, true)
			if err != nil {
				yield(Event{}, err)
				return
			}
			if !ok || !yield(i.event, nil) {
				return
			}
		}
	}
}

// Follow subscribes, and iterates over the events. See Subscribe.
func (e *Events) Follow(ctx context.Context, query Query, options ...ReadOption) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		sub, err := e.Subscribe(ctx, query, options...)
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer sub.Close()
		for event, err := range sub.Events(ctx) {
			if !yield(event, err) {
				return
			}
		}
	}
}

// Decision is a command: what it reads, and what it does then.
type Decision[S any] struct {
	Query    Query                        // the events that it depends on
	Initial  func() S                     // the state before the first of them; the zero value if it is nil
	Fold     func(state S, event Event) S // the state after one more
	Decide   func(state S) ([]Event, error)
	Attempts int // how often it begins after a conflict, in all; 5 by default
}

// Decide reads the events, computes the state, and appends what the decision returns if nothing that it depends on has happened meanwhile. After a
// conflict it begins again. An error of the decision is returned unchanged, and nothing is stored.
func Decide[S any](ctx context.Context, store EventStore, d Decision[S]) (Appended, error) {
	if err := atLeast("Attempts", d.Attempts, 0); err != nil {
		return Appended{}, err
	}
	attempts := d.Attempts
	if attempts == 0 {
		attempts = 5
	}
	for n := 0; ; n++ {
		appended, err := decideOnce(ctx, store, d)
		if err == nil || !errors.Is(err, ErrConflict) || n+1 >= attempts {
			return appended, err
		}
		select {
		case <-time.After(rand.N(10*time.Millisecond<<min(n, 10) + 1)):
		case <-ctx.Done():
			return Appended{}, ctx.Err()
		}
	}
}

func decideOnce[S any](ctx context.Context, store EventStore, d Decision[S]) (Appended, error) {
	var state S
	if d.Initial != nil {
		state = d.Initial()
	}
	after := int64(0)
	for event, err := range store.Query(ctx, d.Query) {
		if err != nil {
			return Appended{}, err
		}
		state = d.Fold(state, event)
		after = event.Position
	}
	events, err := d.Decide(state)
	if err != nil || len(events) == 0 {
		return Appended{}, err
	}
	return store.Append(ctx, events, If(d.Query, after))
}
