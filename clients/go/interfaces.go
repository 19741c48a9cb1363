package tidewire

import (
	"context"
	"iter"
)

// Log is a stream. *Stream has it over the wire, and package inprocess in the process of the program.
type Log[T any] interface {
	Publish(ctx context.Context, value T, options ...PublishOption) (Published, error)
	PublishAll(ctx context.Context, values []T, options ...PublishOption) (Published, error)
	Messages(ctx context.Context, options ...SubscribeOption) iter.Seq2[Message[T], error]
}

// Jobs is a queue. *Queue has it over the wire, and package inprocess in the process of the program.
type Jobs[T any] interface {
	Enqueue(ctx context.Context, value T, options ...EnqueueOption) (Published, error)
	EnqueueAll(ctx context.Context, values []T, options ...EnqueueOption) (Published, error)
	Work(ctx context.Context, handle Handler[T], options ...WorkOption) error
}

// EventStore is an event store. *Events has it over the wire, and package inprocess in the process of the program.
type EventStore interface {
	Append(ctx context.Context, events []Event, options ...AppendOption) (Appended, error)
	Query(ctx context.Context, query Query, options ...ReadOption) iter.Seq2[Event, error]
	Follow(ctx context.Context, query Query, options ...ReadOption) iter.Seq2[Event, error]
	Project(ctx context.Context, queries ...Query) (Counts, error)
}

var (
	_ Log[string]  = (*Stream[string])(nil)
	_ Jobs[string] = (*Queue[string])(nil)
	_ EventStore   = (*Events)(nil)
)
