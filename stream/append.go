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
	// ErrClosed: what was called has been stopped or closed, and accepted
	// nothing.
	ErrClosed = errors.New("stream: closed")
	// ErrNotRunning: nothing writes what is to be appended, or follows the stream. Have the Stream from a
	// Client, or start the Appender.
	ErrNotRunning = errors.New("stream: not running: have the stream from a Client, or start the Appender")
	// ErrOutcomeUnknown: the Appender was told to give up, or PostgreSQL did not answer
	// and then refused it. Whether the messages are stored is unknown.
	ErrOutcomeUnknown = errors.New("stream: abandoned without an answer of PostgreSQL")
)

// AppenderConfig configures an Appender.
type AppenderConfig struct {
	// MaxBatch is the number of messages from which Submit waits for the next
	// batch. Defaults to 50,000.
	MaxBatch int
	// MaxBatchBytes is the same in bytes. Two batches exist, so that memory
	// stays below twice this and the largest Append; besides, the callbacks of
	// two more batches may not have returned yet. Defaults to 8 MiB.
	MaxBatchBytes int
	// Linger is for how long a batch waits for company before it is written, also
	// that of an Appender that was idle: for fewer and larger commits at low rates.
	// Defaults to none.
	Linger time.Duration
	// OnCommit, if not nil, is called after the callbacks of a batch, from the
	// same goroutine, with the position of the last message stored.
	OnCommit func(last int64)
	// Hub, if not nil, is told of what is committed, before OnCommit, as by Notify.
	// Those who follow the stream at its end get small batches without headers from
	// memory, and need not read them.
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

// Appender appends to one stream for many callers: while one batch is
// committed the next gathers, so that callers share the cost of commits. Right
// after a commit it may wait, for a millisecond at most, for as many callers as
// the batch before had. One that has been idle for a millisecond writes at once,
// unless there is a Linger.
//
// There may be any number of Appenders for a stream, in any number of
// processes. Those that write through one pool commit small batches together, one
// transaction for all of their streams. A batch from CopyRows or CopyBytes on, and that of
// a stream which is the only one with anything to write, has a transaction of its own.
// Connections are shared: all that write through one pool have a quarter of its
// connections, but two at least and eight at most, and borrow one for each transaction,
// in turn. A stream whose lock somebody keeps, or whose message is refused, holds up none
// but itself.
//
// Safe for concurrent use.
type Appender struct {
	cfg    AppenderConfig
	pool   *pgxpool.Pool
	stream *Stream

	answers answers
	helpers sync.WaitGroup

	work    context.Context // of what was accepted; ends with Abandon
	abandon context.CancelFunc

	starting, stopping sync.Once

	closed     atomic.Bool
	closing    sync.Once     // makes idle before closed is true
	idle       chan struct{} // one slot: the last call of Submit has left a closed Appender
	submitting atomic.Int64  // calls of Submit that may still add

	// How what comes is written: by the committer, which writes small batches of many
	// streams in one transaction, or alone, by a goroutine of this Appender.
	committer atomic.Pointer[committer] // from Start on
	alone     atomic.Bool               // changes under the committer's lock, to false under that of the group as well
	solo      atomic.Pointer[solo]      // while alone, and as long as its goroutine lives
	slowUntil atomic.Int64              // in nanoseconds since 1970: until then it is written to alone

	// Guarded by the committer's lock.
	entries []*entry // in rounds, the oldest first
	handed  []handed
	settled chan struct{} // closed when there are no entries any more; nil while nobody waits
	ending  bool          // what is to be written alone is Stop's

	writer   *batchWriter  // of the goroutine of solo, or of Stop; nil before the first of them
	keeper   requestKeeper // of the records, while the stream has tables of its own
	rotating chan struct{} // one slot, of all Appenders of a PartitionedAppender: their records are rotated; nil if there is but one
}

// appendBatch is one batch that gathers, with the calls whose rows it holds.
type appendBatch struct {
	rows  rowBatch
	calls []call
}

// call is one Submit: how many rows, and what became of them.
type call struct {
	rows     int       // as stored, once it is known that an earlier call did so
	request  RequestID // without ID if it carried none
	done     func(Appended, error)
	first    int64
	err      error
	repeated bool // stored by an earlier call
}

// callOverhead is what a call takes beside its rows and the ID of its client,
// in bytes.
const callOverhead = 128

// NewAppender returns an Appender to the stream, which writes through pool. It
// writes nothing before Start. To a stream with partitions a PartitionedAppender
// appends.
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
	// Partition is the one that they are in; 0 in a stream without partitions.
	Partition int
	// First and Last are the positions of the first and the last message. Of a request that was
	// recorded before Tidewire noted how many messages it had, Last is that of the repetition.
	First, Last int64
	// Duplicate says that an earlier call with the same RequestID stored them, and this one nothing.
	Duplicate bool
}

// Count is how many messages there are.
func (a Appended) Count() int { return int(a.Last - a.First + 1) }

// Append stores the messages, in this order and at consecutive positions, all
// or none of them, and returns their positions once they are
// committed. While PostgreSQL is away it waits.
//
// Errors: ErrNotRunning before Start, ErrInvalid, ErrClosed and PostgreSQL's own mean that nothing was
// stored, as does ErrNotFound, for the stream was dropped. If ctx ends first,
// or with ErrOutcomeUnknown, the messages may be stored or not. An error that is ErrNotFound and
// ErrOutcomeUnknown means that they may have been stored before the stream was dropped.
func (a *Appender) Append(ctx context.Context, msgs ...Message) (Appended, error) {
	if err := a.runs(); err != nil {
		return Appended{}, err
	}
	return await(ctx, func(done func(Appended, error)) error { return a.Submit(ctx, msgs, done) })
}

// runs returns ErrNotRunning before Start: a caller would wait for ever.
func (a *Appender) runs() error {
	if a.committer.Load() == nil && !a.closed.Load() {
		return ErrNotRunning
	}
	return nil
}

// await has submit call back with what is returned, unless ctx ends before.
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

// Submit is Append that does not wait for the commit: it returns once the
// messages are accepted, and has copied them. It waits while the gathering
// batch is full. Messages that are accepted before Start are written from then on.
//
// If it returns nil, done is called once, with Append's result or its
// error; otherwise done is not called. All calls of
// an Appender come from one goroutine, in the order of positions: what is done
// there delays the next batch, so done must be brief, and must not wait for
// this Appender.
func (a *Appender) Submit(ctx context.Context, msgs []Message, done func(Appended, error)) error {
	return a.submit(ctx, msgs, call{done: done})
}

// submit accepts the messages of a call, which says whom to answer.
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
	return a.add(ctx, msgs, bytes+len(c.request.Client), c)
}

// validAppend returns what the messages of one call take in a batch.
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
