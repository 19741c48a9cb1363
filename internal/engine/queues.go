package engine

import (
	"context"
	"time"
)

// EnqueueOptions are those of all messages of a request.
type EnqueueOptions struct {
	Delay    time.Duration
	Priority int // of a queue that has some
}

// Unique has a message stored once in a period.
type Unique struct {
	Key    string
	Period time.Duration
}

// Queues are competing consumers of messages. A ctx bounds the call, and nothing
// beyond.
type Queues interface {
	// Enqueue is Streams' Publish, without a RequestID.
	Enqueue(ctx context.Context, queue string, messages []Message, opts EnqueueOptions, done func(first Place, err error)) error
	// EnqueueUnique is Enqueue of a message unless one with that key was stored in
	// this period: then done is told that one's place, which is a Duplicate. What one
	// caller enqueues like that one after the other is looked at in that order.
	EnqueueUnique(ctx context.Context, queue string, m Message, opts EnqueueOptions, unique Unique, done func(place Place, err error)) error
	// Consume begins to take part in a queue.
	Consume(ctx context.Context, queue string) (Consumption, error)

	// Ack, Nack and Extend settle deliveries, all of one queue. They wait for the commit; what they return is nil if
	// all went well, or has an error or nil for each lease, in their order.
	Ack(ctx context.Context, leases []Lease) []error
	// AckLater is Ack without a promise, and does not wait.
	AckLater(leases []Lease)
	// Nack gives back, to be delivered again after a delay.
	Nack(ctx context.Context, leases []Lease, delay time.Duration, reason string) []error
	// Extend has leases end at that time from now.
	Extend(ctx context.Context, leases []Lease, lease time.Duration) []error

	// Create makes a queue unless there is one. One with other options is ErrExists,
	// unless opts is nil: then it is made with the engine's defaults, or may have any.
	Create(ctx context.Context, name string, opts *QueueOptions) error
	List(ctx context.Context) ([]string, error)
	Stats(ctx context.Context, name string) (QueueStats, error)
	Drop(ctx context.Context, name string) error
}

// Consumption is one consumer of a queue.
type Consumption interface {
	// Receive leases messages, at least one and at most limit, also bounded in
	// bytes by the store. It waits until there is one, also while the database is
	// away, and is for one goroutine at a time. If ctx ends it returns ctx's
	// error and has leased none that it does not return with the next call or give
	// back. Any other error is for good.
	Receive(ctx context.Context, limit int) ([]Delivery, error)
	// SetCredits says how many messages the consumer may have that are not settled,
	// none to begin with. The store claims no more for it, and what it had claimed
	// beyond that goes to consumers elsewhere. It is for any goroutine, and does
	// nothing after Close.
	SetCredits(n int)
	// Broken is closed when there is nothing more to come: Receive returns why.
	Broken() <-chan struct{}
	// Close gives back at once what was received and not settled; what was given
	// to AckLater is settled. It is called after Receive has returned, and waits
	// at most briefly for the database.
	Close()
}

// Delivery is a message leased to a Consumption.
type Delivery struct {
	Message
	Attempt int       // 1 is the first
	Until   time.Time // end of the lease
	Lease   Lease
}

// Lease is the engine's own name of a delivery; its user only keeps it.
type Lease any

// QueueOptions are given when a queue is made; zero is the store's default.
type QueueOptions struct {
	MaxAttempts        int           // then it is a dead letter
	RetryMin, RetryMax time.Duration // pause after the first refusal, and the longest
	Priorities         int           // 0: none
	Partitions         int           // that keep the order of keys; 0: there is none
}

// QueueStats is what is told of a queue.
type QueueStats struct {
	Name    string `json:"queue"`
	Ready   int64  `json:"ready"`   // to be delivered now
	Leased  int64  `json:"leased"`  // claimed by a server: delivered and not settled, or about to be delivered
	Delayed int64  `json:"delayed"` // to be delivered later
	Dead    int64  `json:"dead"`    // given up after too many attempts
	Head    int64  `json:"head"`    // messages ever enqueued, about: what rates come from
	Oldest  int64  `json:"oldest_ms"`
	Nodes   int    `json:"nodes"`
	Paused  bool   `json:"paused"`
}
