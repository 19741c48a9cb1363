package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// What stores answer, as far as clients are told; an error may wrap one of
// these. Of any other, clients learn only that something is wrong.
var (
	// ErrNotFound: there is no stream, group or queue of that name, or not any
	// more.
	ErrNotFound = errors.New("gateway: not found")
	// ErrInvalid: a name, key, header or number is outside of the store's limits.
	ErrInvalid = errors.New("gateway: invalid")
	// ErrExists: there is one of that name, with other options; or, where a queue is
	// to be made, a stream with messages, groups or partitions.
	ErrExists = errors.New("gateway: exists with other options")
	// ErrNotKeyed: the stream cannot be read by key.
	ErrNotKeyed = errors.New("gateway: not keyed")
	// ErrTooOld: what was to be read is not kept any more. See TooOldError.
	ErrTooOld = errors.New("gateway: too old")
	// ErrHistoryLost: the position is past the end, or of messages or events that a failover has lost. See
	// HistoryLostError.
	ErrHistoryLost = errors.New("gateway: history lost")
	// ErrLeaseLost: the delivery is not the caller's any more.
	ErrLeaseLost = errors.New("gateway: lease lost")
	// ErrConflict: an append's condition failed. See ConflictError.
	ErrConflict = errors.New("gateway: condition failed")
	// ErrDuplicateID: an event with that id is stored already.
	ErrDuplicateID = errors.New("gateway: event id exists")
	// ErrTooExpensive: finding out whether it may be done takes the store too long.
	ErrTooExpensive = errors.New("gateway: too expensive")
	// ErrBusy: the store does as much of that at a time as it may.
	ErrBusy = errors.New("gateway: too many at a time")
	// ErrSpread: the messages of a request belong to several lanes.
	ErrSpread = errors.New("gateway: several lanes")
	// ErrSequenceTooOld: whether the producer's request was stored earlier is not
	// known any more; it was not stored now.
	ErrSequenceTooOld = errors.New("gateway: sequence too old")
	// ErrManyPartitions: the messages' keys belong to several partitions.
	ErrManyPartitions = errors.New("gateway: several partitions")
	// ErrAhead: the position is after the end of the stream.
	ErrAhead = errors.New("gateway: position after the end")
	// ErrIncomplete: the database was restored without the group's offset.
	ErrIncomplete = errors.New("gateway: offset missing")
	// ErrJournalLost: the database was restored without the queue's journal.
	ErrJournalLost = errors.New("gateway: journal lost")
	// ErrPartitioned: that is done with one partition, not with the whole stream.
	ErrPartitioned = errors.New("gateway: has partitions")
	// ErrQueueStream: the stream holds a queue's messages, and only the queue may
	// write to it, drop it, or have offsets in it.
	ErrQueueStream = errors.New("gateway: stream of a queue")
	// ErrRefused: the database refuses it, and will until an operator has changed
	// something: rights, or tables that are missing. Nothing was stored.
	ErrRefused = errors.New("gateway: refused by the database")
	// ErrOutcomeUnknown: it may have been stored or not.
	ErrOutcomeUnknown = errors.New("gateway: outcome unknown")
)

// TooOldError is ErrTooOld with the position of the oldest message there is.
type TooOldError struct{ Oldest int64 }

func (e *TooOldError) Error() string { return fmt.Sprintf("%v: the oldest is %d", ErrTooOld, e.Oldest) }
func (e *TooOldError) Unwrap() error { return ErrTooOld }

// HistoryLostError is ErrHistoryLost with the position of the last message or event before those that are lost.
type HistoryLostError struct{ Last int64 }

func (e *HistoryLostError) Error() string {
	return fmt.Sprintf("%v: the last before is %d", ErrHistoryLost, e.Last)
}
func (e *HistoryLostError) Unwrap() error { return ErrHistoryLost }

// Message is one message of a stream or queue.
type Message struct {
	// Position and Time are the store's.
	Position int64
	Time     time.Time
	// Key is valid UTF-8; empty is none.
	Key string
	// Headers is a JSON object, or empty.
	Headers json.RawMessage
	Payload []byte
}

// Producer names a request, so that it can be repeated.
type Producer struct {
	ID       string
	Sequence int64
}

// Place is where a message is.
type Place struct {
	Partition int // -1 where there are none
	Position  int64
	// Of a request with a Producer: how many messages it has stored, and whether an
	// earlier call did so.
	Count     int
	Duplicate bool
}

// StreamStore is the log behind publish, subscribe and commit. A ctx bounds the
// call it is given to, and nothing beyond.
type StreamStore interface {
	// Publish accepts messages, which it may keep, and waits while the store is
	// behind. If it returns nil it calls done once: after the commit with the
	// place of the first, the others following without a gap, or with why none is
	// stored. done is brief and may be called before Publish returns. Messages
	// that one caller publishes to a stream are stored in the order of its calls,
	// in each partition. With as, a repetition of the producer's request stores
	// nothing and is told the place of the first.
	Publish(ctx context.Context, stream string, as *Producer, messages []Message, done func(first Place, err error)) error
	// Subscribe begins to follow a stream.
	Subscribe(ctx context.Context, stream string, from Start) (Subscription, error)
	// Commit moves a group's offset up to a position and returns where it is,
	// which may be further, when that is committed.
	Commit(ctx context.Context, stream, group string, position int64) (offset int64, err error)
	// CommitLater is Commit without a promise; it does not wait for the commit.
	CommitLater(ctx context.Context, stream, group string, position int64) error
}

// Start is where a subscription begins: in a group, at a time, or behind a
// position, the first of these that is set.
type Start struct {
	Group string    // at its committed offset; made if there is none
	At    time.Time // with the first message of that time or later
	End   bool      // behind what is there
	After int64     // 0 is the beginning
}

// Subscription follows a stream. Next is for one goroutine; Close may be called
// by another.
type Subscription interface {
	// Position is that of the last message of Next, before that where it begins.
	Position() int64
	// Next returns the next messages in order, from one to most, without gap or
	// repetition, bounded in bytes by the store. It waits until there is one, also
	// while the database is away. They are not changed. Any error but ctx's is for
	// good.
	Next(ctx context.Context, most int) ([]Message, error)
	Close()
}

// StreamReader reads without following.
type StreamReader interface {
	// Read returns messages behind a position, in order, with a key if that is
	// not nil: at most limit, and fewer if they are large, but one if there is one.
	Read(ctx context.Context, stream string, key *string, after int64, limit int) ([]Message, error)
}

// StreamAdmin makes, describes and drops streams.
type StreamAdmin interface {
	// Create makes a stream unless there is one, and returns its options. One with
	// other options is ErrExists, unless opts is nil: then it is made with the
	// store's defaults, or may have any.
	Create(ctx context.Context, name string, opts *StreamOptions) (StreamOptions, error)
	List(ctx context.Context) ([]StreamInfo, error)
	Info(ctx context.Context, name string) (StreamDetails, error)
	// Groups returns groups of a stream, ordered by the bytes of their names: at most
	// limit of those after a name, or from the first on if that is empty.
	Groups(ctx context.Context, name, after string, limit int) ([]GroupInfo, error)
	Drop(ctx context.Context, name string) error
}

// StreamOptions are given when a stream is made.
type StreamOptions struct {
	Keyed      bool `json:"keyed"`
	Partitions int  `json:"partitions,omitempty"`
}

// StreamInfo describes a stream in a list of them.
type StreamInfo struct {
	Name  string `json:"stream"`
	Keyed bool   `json:"keyed"`
	// Partitions are streams of their own: name/0 and so on.
	Partitions int       `json:"partitions,omitempty"`
	Created    time.Time `json:"created"`
}

// StreamDetails is what is told of one stream.
type StreamDetails struct {
	StreamInfo
	Head int64 `json:"head"` // position of the last message
}

// GroupInfo describes a group of a stream.
type GroupInfo struct {
	Name   string `json:"group"`
	Offset int64  `json:"offset"`
	Lag    int64  `json:"lag"` // positions up to the head
}

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

// QueueStore is behind enqueue and consume. A ctx bounds the call, and nothing
// beyond.
type QueueStore interface {
	// Enqueue is StreamStore's Publish, for no producer.
	Enqueue(ctx context.Context, queue string, messages []Message, opts EnqueueOptions, done func(first Place, err error)) error
	// EnqueueUnique is Enqueue of a message unless one with that key was stored in
	// this period: then done is told that one's place, which is a Duplicate. What one
	// caller enqueues like that one after the other is looked at in that order.
	EnqueueUnique(ctx context.Context, queue string, m Message, opts EnqueueOptions, unique Unique, done func(place Place, err error)) error
	// Consume begins to take part in a queue.
	Consume(ctx context.Context, queue string) (Consumption, error)
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

// Lease is a QueueStore's own name of a delivery; the gateway only keeps it.
type Lease any

// LeaseStore settles deliveries, of one queue at a call. Methods that return
// errors wait for the commit; what they return is nil if all went well, or
// has an error or nil for each lease, in their order.
type LeaseStore interface {
	Ack(ctx context.Context, leases []Lease) []error
	// AckLater is Ack without a promise, and does not wait.
	AckLater(leases []Lease)
	// Nack gives back, to be delivered again after a delay.
	Nack(ctx context.Context, leases []Lease, delay time.Duration, reason string) []error
	// Extend has leases end at that time from now.
	Extend(ctx context.Context, leases []Lease, lease time.Duration) []error
}

// QueueAdmin makes, describes and drops queues.
type QueueAdmin interface {
	// Create makes a queue unless there is one. One with other options is ErrExists,
	// unless opts is nil: then it is made with the store's defaults, or may have any.
	Create(ctx context.Context, name string, opts *QueueOptions) error
	List(ctx context.Context) ([]string, error)
	Stats(ctx context.Context, name string) (QueueStats, error)
	Drop(ctx context.Context, name string) error
}

// QueueOptions are given when a queue is made; zero is the store's default.
type QueueOptions struct {
	MaxAttempts        int           // then it is a dead letter
	RetryMin, RetryMax time.Duration // pause behind the first refusal, and the longest
	Priorities         int           // 0: none
	Lanes              int           // that keep the order of keys; 0: there is none
}

// QueueStats is what is told of a queue.
type QueueStats struct {
	Name    string `json:"queue"`
	Ready   int64  `json:"ready"`   // to be delivered now
	Leased  int64  `json:"leased"`  // delivered and not settled
	Delayed int64  `json:"delayed"` // to be delivered later
	Dead    int64  `json:"dead"`    // given up after too many attempts
	Head    int64  `json:"head"`    // messages ever enqueued, about: what rates come from
	Oldest  int64  `json:"oldest_ms"`
	Nodes   int    `json:"nodes"`
	Paused  bool   `json:"paused"`
}

// StreamsConfig is what the streams are served from. What is nil is not served.
type StreamsConfig struct {
	Store  StreamStore
	Reader StreamReader
	Admin  StreamAdmin
	// MaxPartitions is the most partitions of a stream that clients make: each is
	// a stream of its own. Defaults to 64.
	MaxPartitions int
}

// QueuesConfig is what the queues are served from. Store and Leases go together;
// what is nil is not served.
type QueuesConfig struct {
	Store  QueueStore
	Leases LeaseStore
	Admin  QueueAdmin
}
