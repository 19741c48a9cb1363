package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/stream"
)

var (
	// ErrNotFound: there is no queue of that name, or it was dropped.
	ErrNotFound = errors.New("queue: not found")
	// ErrOptions: a queue of that name exists with other options.
	ErrOptions = errors.New("queue: exists with other options")
	// ErrInvalid: an argument is outside of its documented limits.
	ErrInvalid = errors.New("queue: invalid")
	// ErrClosed: the Node, Consumer or Producer has been stopped or closed.
	ErrClosed = errors.New("queue: closed")
	// ErrLeaseLost: the delivery is void, for its time ran out, its Consumer was
	// closed, or the Node lost its lease. The message is, or will be, delivered
	// again.
	ErrLeaseLost = errors.New("queue: lease lost")
	// ErrSettled: the delivery was acknowledged or refused before.
	ErrSettled = errors.New("queue: delivery settled before")
	// ErrUnknown: the Node stopped while PostgreSQL was away. Whether the
	// acknowledgement is recorded is unknown.
	ErrUnknown = errors.New("queue: stopped without an answer of PostgreSQL")
)

// codeNotFound is what the functions raise where there is no such queue.
const codeNotFound = "TW003"

// Options of a queue, chosen when it is made.
type Options struct {
	// MaxAttempts is how often a message is handed out before it becomes a dead
	// letter. Defaults to 10.
	MaxAttempts int
	// RetryMin is the pause behind the first refusal; it doubles with each, and
	// a random half is taken off. Defaults to 1 s.
	RetryMin time.Duration
	// RetryMax bounds that pause. Defaults to 5 min.
	RetryMax time.Duration
}

func (o Options) withDefaults() Options {
	if o.MaxAttempts <= 0 {
		o.MaxAttempts = 10
	}
	if o.RetryMin <= 0 {
		o.RetryMin = time.Second
	}
	if o.RetryMax <= 0 {
		o.RetryMax = 5 * time.Minute
	}
	// What PostgreSQL keeps of an interval, so that options compare as equal.
	o.RetryMin = o.RetryMin.Round(time.Microsecond)
	o.RetryMax = max(o.RetryMax.Round(time.Microsecond), o.RetryMin)
	return o
}

// Queue is a named queue: a stream of that name, and who has done what of it.
// Safe for concurrent use.
type Queue struct {
	pool   *pgxpool.Pool
	db     batcher // the pool: what queue_write is sent through
	stream *stream.Stream
	id     int32
	opts   Options

	mu    sync.Mutex
	nodes map[*Node]struct{} // of this process, to be told of what it enqueues
}

// Ensure returns the queue of that name, and makes it, and its stream, if there
// is none. A stream that exists becomes a queue with all its messages. It may
// be called by any number of processes at once. If the queue exists with other
// options, the error is ErrOptions.
//
// The name is as that of a stream, or the error is stream.ErrInvalid. The Queue
// reads through the pool.
func Ensure(ctx context.Context, pool *pgxpool.Pool, name string, opts Options) (*Queue, error) {
	opts = opts.withDefaults()
	s, err := ensureStream(ctx, pool, name)
	if err != nil {
		return nil, err
	}
	q := newQueue(pool, s)
	err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		return q.scan(tx.QueryRow(ctx, ensureQueueSQL, s.ID(), opts.MaxAttempts, opts.RetryMin, opts.RetryMax))
	})
	if err != nil {
		return nil, fmt.Errorf("ensure queue %q: %w", name, err)
	}
	if q.opts != opts {
		return nil, fmt.Errorf("ensure queue %q: %w: %+v, not %+v", name, ErrOptions, q.opts, opts)
	}
	return q, nil
}

// ensureStream takes a stream that exists as it is.
func ensureStream(ctx context.Context, pool *pgxpool.Pool, name string) (*stream.Stream, error) {
	s, err := stream.Lookup(ctx, pool, name)
	if errors.Is(err, stream.ErrNotFound) {
		s, err = stream.Ensure(ctx, pool, name, stream.Options{})
	}
	return s, err
}

// Lookup returns the queue of that name, or ErrNotFound. The Queue reads
// through the pool.
func Lookup(ctx context.Context, pool *pgxpool.Pool, name string) (*Queue, error) {
	s, err := stream.Lookup(ctx, pool, name)
	if errors.Is(err, stream.ErrNotFound) {
		return nil, fmt.Errorf("look up queue %q: %w", name, ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	q := newQueue(pool, s)
	err = q.scan(pool.QueryRow(ctx, lookupQueueSQL, s.ID()))
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("look up queue %q: %w", name, err)
	}
	return q, nil
}

// List returns the names of all queues, in the order of their bytes.
func List(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	rows, err := pool.Query(ctx, listQueuesSQL)
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	return names, nil
}

// Drop removes the queue of that name and its stream with all messages, or
// returns ErrNotFound. Nodes and Producers of it fail with ErrNotFound from
// then on. It waits for reads and writes under way, until ctx ends.
func Drop(ctx context.Context, pool *pgxpool.Pool, name string) error {
	for failed := 0; ; failed++ {
		var dropped bool
		err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, dropQueueSQL, name).Scan(&dropped)
		})
		if err == nil && !dropped {
			err = ErrNotFound
		}
		if err == nil {
			return nil
		}
		if pg.Code(err) == pg.CodeLockNotAvailable && pg.Backoff(ctx, failed) == nil {
			continue
		}
		return fmt.Errorf("drop queue %q: %w", name, err)
	}
}

func newQueue(pool *pgxpool.Pool, s *stream.Stream) *Queue {
	return &Queue{pool: pool, db: pool, stream: s, nodes: make(map[*Node]struct{})}
}

func (q *Queue) scan(row pgx.Row) error {
	return row.Scan(&q.id, &q.opts.MaxAttempts, &q.opts.RetryMin, &q.opts.RetryMax)
}

// Name returns the name of the queue and of its stream.
func (q *Queue) Name() string { return q.stream.Name() }

// Stream returns the stream that holds the messages.
func (q *Queue) Stream() *stream.Stream { return q.stream }

// Options returns the options the queue was made with.
func (q *Queue) Options() Options { return q.opts }

// explain says what was done to which queue, and that it is gone if it is.
func (q *Queue) explain(what string, err error) error {
	if pg.Code(err) == codeNotFound || pg.Code(err) == pg.CodeUndefinedTable || errors.Is(err, stream.ErrNotFound) {
		err = ErrNotFound
	}
	return fmt.Errorf("%s queue %q: %w", what, q.Name(), err)
}

// attach has the Node told of what this process enqueues.
func (q *Queue) attach(n *Node) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.nodes[n] = struct{}{}
}

func (q *Queue) detach(n *Node) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.nodes, n)
}

// committed tells the Nodes of this process that the stream reaches to last.
func (q *Queue) committed(last int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for n := range q.nodes {
		n.sawHead(last)
	}
}
