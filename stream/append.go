package stream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

var (
	// ErrClosed: the object has been stopped or closed, and the call had no effect.
	ErrClosed = errors.New("stream: closed")
	// ErrNotRunning: no Appender is running for the stream, or no Hub. Get the Stream from a Client, or
	// start the Appender.
	ErrNotRunning = errors.New("stream: not running: get the stream from a Client, or start the Appender")
	// ErrOutcomeUnknown: the Appender was abandoned, or PostgreSQL did not answer one
	// attempt and rejected a later one. Whether the messages are stored is unknown.
	ErrOutcomeUnknown = errors.New("stream: abandoned without an answer from PostgreSQL")
)

// AppenderConfig configures an Appender.
type AppenderConfig struct {
	// MaxBatch is the number of messages from which Submit waits for the next
	// batch. Defaults to 50,000.
	MaxBatch int
	// MaxBatchBytes is the same in bytes. There are two batches, so memory stays
	// below twice this value plus the largest Append; in addition, the callbacks of
	// two more batches may not have returned yet. Defaults to 8 MiB.
	MaxBatchBytes int
	// Linger is how long a batch waits for more messages before it is written, also
	// after the Appender was idle: for fewer and larger commits at low rates.
	// Defaults to none.
	Linger time.Duration
	// OnCommit, if not nil, is called after the callbacks of a batch, from the
	// same goroutine, with the position of the last message stored.
	OnCommit func(last int64)
	// Hub, if not nil, is notified of each commit, before OnCommit, as by Notify.
	// Subscribers at the end of the stream get small batches without headers from
	// memory, without a read from PostgreSQL.
	Hub *Hub
	// Writer says how batches are written, and where to log what goes wrong.
	Writer WriterConfig
}

func (c AppenderConfig) withDefaults() AppenderConfig {
	if c.MaxBatch <= 0 {
		c.MaxBatch = 50_000
	}
	if c.MaxBatchBytes <= 0 {
		c.MaxBatchBytes = 8 << 20
	}
	if c.OnCommit == nil {
		c.OnCommit = func(int64) {}
	}
	c.Writer = c.Writer.withDefaults()
	return c
}

// Appender appends to one stream for many callers, with group commit: while one batch is
// being committed the next one fills, so that callers share the cost of commits. Right
// after a commit it may wait, for at most a millisecond, for as many callers as the
// previous batch had. After a millisecond without messages it writes the next one at once,
// unless there is a Linger.
//
// There may be any number of Appenders for a stream, in any number of processes. Appenders
// that write through one pool commit small batches together, one transaction for all of
// their streams. A batch of at least CopyRows or CopyBytes, and the batch of the only
// stream with anything to write, has a separate transaction. Connections are shared: all
// Appenders of one pool use a quarter of its connections, but at least two and at most
// eight, and borrow one for each transaction, in turn. A stream whose lock is held by
// another session, or whose message is rejected, delays only itself.
//
// Safe for concurrent use.
type Appender struct {
	cfg    AppenderConfig
	pool   *pgxpool.Pool
	stream *Stream

	answers answers
	helpers sync.WaitGroup

	work    context.Context // for writing accepted messages; ends with Abandon
	abandon context.CancelFunc

	starting, stopping sync.Once

	closed     atomic.Bool
	closing    sync.Once     // makes idle before closed is true
	idle       chan struct{} // one slot: the last call of Submit has left a closed Appender
	submitting atomic.Int64  // calls of Submit that may still add

	// How messages are written: by the committer, which writes small batches of many
	// streams in one transaction, or alone, by a goroutine of this Appender.
	committer atomic.Pointer[committer] // from Start on
	alone     atomic.Bool               // changes under the committer's lock; to false under the group's lock as well
	solo      atomic.Pointer[solo]      // while alone, and as long as its goroutine lives
	slowUntil atomic.Int64              // in nanoseconds since 1970: until then it is written to alone

	// Guarded by the committer's lock.
	entries []*entry // this Appender's entries in rounds, the oldest first
	handed  []handed
	settled chan struct{} // closed when there are no entries any more; nil while nobody waits
	ending  bool          // Stop writes what is left to write alone

	writer   *batchWriter  // of the goroutine of solo, or of Stop; nil before the first of them
	keeper   requestKeeper // rotates the request records, if the stream has its own tables
	rotating chan struct{} // semaphore with one slot, shared by all Appenders of a PartitionedAppender: held while records are rotated; nil if there is only one Appender
}

// appendBatch is one open batch, with the calls whose rows it holds.
type appendBatch struct {
	rows  rowBatch
	calls []call
}

// call is one Submit: its number of rows, and their outcome.
type call struct {
	rows     int       // if an earlier call stored them: how many that one stored
	request  RequestID // without a Client if it carried none
	unique   RequestID // of its unique message, or without a Client: see Unique.request
	done     func(Appended, error)
	first    int64
	err      error
	repeated bool // stored by an earlier call
}

// callOverhead is the size of a call in bytes, without its rows and its client's
// ID.
const callOverhead = 128

// NewAppender returns an Appender to the stream, which writes through pool. It
// writes nothing before Start. For a stream with partitions use a
// PartitionedAppender.
func NewAppender(pool *pgxpool.Pool, s *Stream, cfg AppenderConfig) *Appender {
	return newAppender(pool, nil, s, cfg)
}

func newAppender(pool *pgxpool.Pool, rotating chan struct{}, s *Stream, cfg AppenderConfig) *Appender {
	a := &Appender{cfg: cfg.withDefaults(), pool: pool, stream: s, rotating: rotating}
	a.work, a.abandon = context.WithCancel(context.Background())
	a.alone.Store(true)
	a.solo.Store(newSolo(a))
	return a
}

// Appended says where the messages of one append are: at consecutive positions.
type Appended struct {
	// Partition is the partition of the messages; 0 in a stream without partitions.
	Partition int
	// First and Last are the positions of the first and the last message. For a request
	// recorded by a version of Tidewire that did not record the number of messages, Last is
	// computed from the number of messages in the repetition.
	First, Last int64
	// Duplicate says that an earlier call with the same RequestID or Unique stored the messages, and this
	// call stored nothing.
	Duplicate bool
}

// Count is the number of messages.
func (a Appended) Count() int { return int(a.Last - a.First + 1) }

// Append stores the messages, in this order and at consecutive positions, all or none of them, and
// returns their positions once they are committed. While PostgreSQL is unavailable it waits.
//
// Errors: ErrNotRunning before Start, ErrInvalid, ErrClosed, ErrNotFound (the stream was dropped) and
// PostgreSQL's own errors mean that nothing was stored. If ctx ends first, or with ErrOutcomeUnknown,
// the messages may be stored or not. An error that is both ErrNotFound and ErrOutcomeUnknown means
// that they may have been stored before the stream was dropped.
func (a *Appender) Append(ctx context.Context, msgs ...Message) (Appended, error) {
	if err := a.runs(); err != nil {
		return Appended{}, err
	}
	return await(ctx, func(done func(Appended, error)) error { return a.Submit(ctx, msgs, done) })
}

// runs returns ErrNotRunning before Start, when a caller would wait forever.
func (a *Appender) runs() error {
	if a.committer.Load() == nil && !a.closed.Load() {
		return ErrNotRunning
	}
	return nil
}

// await calls submit and waits for its callback, or until ctx ends.
func await[T any](ctx context.Context, submit func(done func(T, error)) error) (got T, err error) {
	type answer struct {
		got T
		err error
	}
	answered := make(chan answer, 1)
	if err := submit(func(got T, err error) { answered <- answer{got, err} }); err != nil {
		return got, err
	}
	select {
	case a := <-answered:
		return a.got, a.err
	case <-ctx.Done():
		return got, ctx.Err()
	}
}

// Submit is Append that does not wait for the commit: it returns once the messages
// are accepted, and has copied them. It waits while the open batch is full.
// Messages that are accepted before Start are written after Start.
//
// If it returns nil, done is called once, with Append's result or its error;
// otherwise done is not called. An Appender makes all of these calls one at a time,
// in the order of positions: a slow done delays the next batch, so done must be
// brief, and must not wait for this Appender.
func (a *Appender) Submit(ctx context.Context, msgs []Message, done func(Appended, error)) error {
	return a.submit(ctx, msgs, call{done: done})
}

// submit accepts the messages of a call.
func (a *Appender) submit(ctx context.Context, msgs []Message, c call) error {
	if err := a.stream.checkSingle("append to"); err != nil {
		return err
	}
	bytes, err := validAppend(msgs)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if !a.enter() {
		return ErrClosed
	}
	defer a.leave()
	c.rows = len(msgs)
	return a.add(ctx, msgs, bytes+len(c.request.Client)+len(c.unique.Client), c)
}

// validAppend validates the messages of one call and returns their size in a batch.
func validAppend(msgs []Message) (bytes int, err error) {
	if len(msgs) == 0 {
		return 0, fmt.Errorf("%w append: no messages", ErrInvalid)
	}
	bytes = callOverhead
	for i := range msgs {
		if err := msgs[i].validate(); err != nil {
			return 0, err
		}
		bytes += msgs[i].size()
	}
	if bytes > MaxAppend {
		return 0, fmt.Errorf("%w append: %d bytes, want at most %d", ErrInvalid, bytes, MaxAppend)
	}
	return bytes, nil
}
