package engine

import (
	"context"
	"time"
)

// EnqueueOptions apply to all messages of a request.
type EnqueueOptions struct {
	Delay    time.Duration
	Priority int     // for a queue with priorities
	Unique   *Unique // of the only message of a request; nil if it is not unique
}

// Unique stores a message with that key only once in a period, which begins with the first one. The Place of another one
// is that of the first, with Duplicate set.
type Unique struct {
	Key    string
	Period time.Duration
}

// Queues are message queues with competing consumers. A ctx bounds only the call
// it is passed to.
type Queues interface {
	// Enqueue is Streams.Publish. With as, the first request is looked for where the messages go: a repetition has to
	// give the same priority and keys. The delay of the first request counts, and a repetition of a unique message gets the first
	// answer also after the end of the period. Positions are those in the whole
	// queue, so a Place has no partition.
	Enqueue(ctx context.Context, queue string, as *RequestID, messages []Message, opts EnqueueOptions, done func(first Place, err error)) error
	// Consume opens a consumer of a queue.
	Consume(ctx context.Context, queue string, opts ConsumeOptions) (Consumption, error)

	// Begin makes deliveries attempts, without waiting for the database: see ConsumeOptions. Ack and Nack imply
	// it. It returns what Ack does.
	Begin(leases []Lease) []error
	// Ack, Nack and Extend settle deliveries, all of one queue. They wait for the commit. The result is nil if all
	// succeeded; otherwise it has an error or nil for each lease, in order.
	Ack(ctx context.Context, leases []Lease) []error
	// AckLater is Ack without a result; it does not wait for the commit.
	AckLater(leases []Lease)
	// Nack rejects deliveries, which are delivered again after a delay, or become dead letters.
	Nack(ctx context.Context, leases []Lease, how Nack) []error
	// Extend sets leases to expire after that time from now.
	Extend(ctx context.Context, leases []Lease, lease time.Duration) []error

	// Create creates a queue if it does not exist. If it exists with other options,
	// the error is ErrExists. With nil opts a new queue gets the engine's defaults,
	// and an existing one may have any options.
	Create(ctx context.Context, name string, opts *QueueOptions) error
	List(ctx context.Context) ([]string, error)
	Stats(ctx context.Context, name string) (QueueStats, error)
	// Options returns the options of a queue.
	Options(ctx context.Context, name string) (QueueOptions, error)
	// Alter changes MaxAttempts, RetryMin and RetryMax of a queue, those that are not 0, and returns all its options. All
	// servers take them within seconds. If RetryMax would be less than RetryMin, it becomes RetryMin. From then on Create
	// wants the new options.
	Alter(ctx context.Context, name string, changes QueueOptions) (QueueOptions, error)
	Drop(ctx context.Context, name string) error

	QueueOperations
}

// QueueOperations are what operators do with the messages of a queue.
type QueueOperations interface {
	// Peek returns the first messages that are not done, in order, and leases none: at most limit, and fewer if they
	// are large, but one if there is one. Servers may be delivering some of them. Dead letters are not among them.
	Peek(ctx context.Context, name string, limit int) ([]Message, error)
	// Pause stops deliveries on all servers, within seconds, until Resume. Messages can be enqueued, and those that are
	// delivered already can be settled.
	Pause(ctx context.Context, name string) error
	Resume(ctx context.Context, name string) error
	// Purge removes all messages that no server has claimed, dead letters too if dead is set, and returns how many.
	Purge(ctx context.Context, name string, dead bool) (int64, error)

	// DeadLetters returns dead letters that the filter selects, after a position, in order: at most limit, which is 1 to
	// MaxDeadStep, and fewer if they are large. It may return none although there are more: next says where to continue,
	// and is 0 if there are no more.
	DeadLetters(ctx context.Context, name string, filter DeadFilter, after int64, limit int) (letters []DeadLetter, next int64, err error)
	// Redrive makes the dead letters at these positions ready again, with no attempts, and returns how many there were.
	Redrive(ctx context.Context, name string, positions []int64) (int64, error)
	// PurgeDead removes the dead letters at these positions, and returns how many there were.
	PurgeDead(ctx context.Context, name string, positions []int64) (int64, error)
	// ReplaceDead removes the dead letter at a position and enqueues a message, both or neither. It reports whether there was such a dead letter.
	ReplaceDead(ctx context.Context, name string, position int64, m Message, opts EnqueueOptions) (bool, error)
	// RedriveStep and PurgeDeadStep do that with at most limit of the dead letters, 1 to MaxDeadStep, that the filter selects, after a
	// position. A step takes a bounded time, and is committed when it returns. The next one begins after its Next.
	RedriveStep(ctx context.Context, name string, filter DeadFilter, after int64, limit int) (DeadStep, error)
	PurgeDeadStep(ctx context.Context, name string, filter DeadFilter, after int64, limit int) (DeadStep, error)
}

// ConsumeOptions configure a Consumption.
type ConsumeOptions struct {
	// ExplicitBegin says that a delivery is no attempt before Begin. Without it all are, from Receive on.
	ExplicitBegin bool
}

// Nack says what happens to a delivery that failed.
type Nack struct {
	// Delay until it is delivered again; 0 is the pause of the queue, which doubles with each attempt.
	Delay time.Duration
	// Dead makes it a dead letter now.
	Dead bool
	// Reason is kept with the message.
	Reason string
}

// MaxDeadStep is the highest limit of DeadLetters, RedriveStep and PurgeDeadStep.
const MaxDeadStep = 1000

// DeadFilter selects the dead letters to which everything applies that is set. The zero value selects all.
type DeadFilter struct {
	Key                      string // exactly
	Reason                   string // a part of it, in upper or lower case
	MinAttempts, MaxAttempts int
	Since, Before            time.Time // of DeadLetter.Died
}

// DeadLetter is a message that is not delivered again.
type DeadLetter struct {
	Message
	Attempts int
	Reason   string    // of the last nack
	Died     time.Time // when it became a dead letter
}

// DeadStep is the result of a step.
type DeadStep struct {
	Changed int64
	Next    int64 // the position after which to continue, or 0 if there is nothing more
}

// Consumption is one consumer of a queue.
type Consumption interface {
	// Receive leases messages, at least one and at most limit; the store also
	// limits their bytes. It waits until there is one, also while the database is
	// away. Only one goroutine at a time may call it. If ctx ends it returns ctx's
	// error, and any message leased meanwhile is returned by the next call or
	// released. Any other error is permanent.
	Receive(ctx context.Context, limit int) ([]Delivery, error)
	// SetCredits sets how many unsettled messages the consumer may have, initially
	// 0. The store claims no more for it, and claimed messages above that go to
	// consumers of other nodes. It is safe for concurrent use, and does nothing
	// after Close.
	SetCredits(n int)
	// Broken is closed when no more messages will come: Receive returns why.
	Broken() <-chan struct{}
	// Close releases unsettled deliveries at once; those passed to AckLater are
	// acknowledged. It is called after Receive has returned, and waits at most
	// briefly for the database.
	Close()
	// Lost is Close for a client that has crashed, or was cut off: deliveries that are
	// attempts are delivered again after a pause.
	Lost()
}

// Delivery is a message leased to a Consumption.
type Delivery struct {
	Message
	Attempt int       // that it is, or would be; 1 is the first
	Until   time.Time // end of the lease
	Lease   Lease
}

// Lease identifies a delivery for the engine; it is opaque to the caller.
type Lease any

// QueueOptions are the options of a queue. For a new one, zero is the store's default.
type QueueOptions struct {
	MaxAttempts        int           // after them a message is a dead letter
	RetryMin, RetryMax time.Duration // delay after the first nack, and the longest
	Priorities         int           // 0: none
	Partitions         int           // the order of each key is kept; 0: no order
}

// QueueStats are the statistics of a queue.
type QueueStats struct {
	Name    string `json:"queue"`
	Ready   int64  `json:"ready"`   // to be delivered now
	Leased  int64  `json:"leased"`  // claimed by a server: delivered and not settled, or about to be delivered
	Delayed int64  `json:"delayed"` // to be delivered later
	Dead    int64  `json:"dead"`    // dead letters: delivered MaxAttempts times
	Head    int64  `json:"head"`    // messages ever enqueued, approximately; for computing rates
	Oldest  int64  `json:"oldest_ms"`
	Nodes   int    `json:"nodes"`
	Paused  bool   `json:"paused"`
}
