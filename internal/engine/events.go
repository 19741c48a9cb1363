package engine

import (
	"context"
	"time"
)

// Event is one event of an event store.
type Event struct {
	// Position and Time are set by the store.
	Position int64
	Time     time.Time
	Type     string
	Tags     []string
	Data     []byte
	JSON     bool // Data is JSON
	ID       string
}

// EventQuery selects the events that match any of the items, or all events
// without items.
type EventQuery struct {
	Items []EventItem `json:"items"`
}

// EventItem matches events that have any of the types and all of the tags.
type EventItem struct {
	Types []string `json:"types,omitempty"`
	Tags  []string `json:"tags,omitempty"`
}

// EventCondition makes an append fail if an event after a position matches.
type EventCondition struct {
	Query EventQuery `json:"query"`
	After int64      `json:"after"`
}

// AppendedEvents says where the events of an append are.
type AppendedEvents struct {
	Positions []int64 // consecutive
	// Duplicate: an earlier call with the same RequestID, or with the same events with ids, stored them.
	Duplicate bool
}

// EventRange limits which of the matching events are read.
type EventRange struct {
	After, Before int64 // positions; Before 0 is up to the end
	Limit         int
	Backwards     bool
}

// Events are stores of events with conditional append. An empty name is the
// default store. A ctx bounds only the call it is passed to. If there is no store of
// that name, or it was dropped, the error is ErrNoEventStore.
type Events interface {
	// Append stores the events, all or none, unless the condition fails, and
	// returns their positions after the commit. A nil condition always holds.
	//
	// With as, a repeated request of the client stores nothing, also if the condition fails by now, and gets the
	// positions of the first one. It has to have the same events and condition. A request that was rejected is
	// evaluated again.
	Append(ctx context.Context, store string, as *RequestID, events []Event, condition *EventCondition) (AppendedEvents, error)
	// Query returns at most r.Limit events as of one moment, and fewer if they
	// are large, but one if there is one.
	Query(ctx context.Context, store string, q EventQuery, r EventRange) ([]Event, error)
	// Count returns how many events each of the queries matches, as of one
	// moment, and the condition that holds as long as these counts are current.
	Count(ctx context.Context, store string, queries []EventQuery) (counts []int64, guard EventCondition, err error)
	// SubscribeEvents subscribes to the matching events after a position, or
	// after the end if that is negative.
	SubscribeEvents(ctx context.Context, store string, q EventQuery, after int64) (EventSubscription, error)

	// Create creates an event store if it does not exist. The default store is created when it is first used.
	Create(ctx context.Context, store string) error
	// List returns the names of all event stores, ordered by their bytes.
	List(ctx context.Context) ([]string, error)
	// Head returns the position of the last event of a store, or 0.
	Head(ctx context.Context, store string) (int64, error)
	// Types returns types of events: those that begin with prefix and come after another text, ordered by their bytes, at most limit.
	Types(ctx context.Context, store, prefix, after string, limit int) ([]string, error)
	// Drop removes an event store with all its events. It waits for a moment without readers and writers, until ctx ends.
	Drop(ctx context.Context, store string) error
}

// EventSubscription is Subscription for events.
type EventSubscription interface {
	Position() int64
	Next(ctx context.Context, most int) ([]Event, error)
	Close()
}
