package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/stream"
)

var (
	// ErrNotFound: there is no queue of that name, or it was dropped.
	ErrNotFound = errors.New("queue: not found")
	// ErrExists: a queue of that name exists with other options.
	ErrExists = errors.New("queue: exists with other options")
	// ErrStreamInUse: a stream of that name has messages, groups or a retention policy. A queue would take
	// it away from its users.
	ErrStreamInUse = errors.New("queue: a stream of that name is in use")
	// ErrInvalid: an argument is outside of its documented limits.
	ErrInvalid = errors.New("queue: invalid")
	// ErrNotRunning: no Enqueuer or Node runs for this Queue. Get the Queue from a Client, or start the
	// Enqueuer.
	ErrNotRunning = errors.New("queue: not running: get the queue from a Client, or start the Enqueuer")
	// ErrClosed: the Node, Consumer or Enqueuer has been stopped or closed.
	ErrClosed = errors.New("queue: closed")
	// ErrLeaseLost: the delivery is void, because its time ran out, its Consumer
	// was closed, or the Node lost its lease. The message is, or will be,
	// delivered again. Or the queue was dropped, and the message with it.
	ErrLeaseLost = errors.New("queue: lease lost")
	// ErrSettled: the delivery was already acknowledged or nacked.
	ErrSettled = errors.New("queue: delivery settled before")
	// ErrJournalLost: the database does not know what was delivered and
	// acknowledged, because it was restored from a backup without the queue's
	// journal. Earlier versions could make such backups. The error's text tells how
	// to go on. Until then no message is delivered.
	ErrJournalLost = errors.New("queue: journal lost")
	// ErrOutcomeUnknown: the Node or the Enqueuer was abandoned while PostgreSQL was away or returned errors. It
	// is unknown whether the acknowledgement is recorded, or the message stored.
	ErrOutcomeUnknown = errors.New("queue: stopped without an answer of PostgreSQL")
)

const (
	// codeNotFound is what the functions raise where there is no such queue.
	codeNotFound = "TW003"
	// codeStreamInUse is what they raise if a stream that has messages or groups is
	// to become a queue, and codeRetention if it has a retention policy.
	codeStreamInUse = "TW009"
	codeRetention   = "TW008"
	// codeJournalLost is what they raise where a journal has no row.
	codeJournalLost = "TW030"
)

// Queue is a named queue: a stream of messages plus the journal of claims and
// acknowledgements. With priorities or partitions it has several of both,
// called shards. Safe for concurrent use.
type Queue struct {
	pool    *pgxpool.Pool
	name    string
	opts    Options                 // as they were when the Queue was looked up; Priorities and Partitions never change
	altered atomic.Pointer[Options] // as they are now, if they have changed
	members []*shard                // by priority or partition; an ordinary queue has one
	client  *Client                 // nil: no Enqueuer or Node runs for this Queue

	mu    sync.Mutex
	nodes map[*Node]struct{} // of this process; they are notified of what it enqueues
}

// Ensure returns the queue of that name, and makes it, and its streams, if there is
// none. It may be called by any number of processes at once. If the queue exists with
// other options, or another queue or stream has its name or the name of a shard, the
// error is ErrExists. A stream that has messages or groups never becomes a queue; the
// error is ErrStreamInUse. While others write to such a stream, Ensure waits, for
// seconds at most; then it fails, and can be tried again.
//
// The rules for the name are those for a stream, or the error is ErrInvalid; with
// priorities or partitions its maximum length is two bytes less, or three from the
// eleventh partition on. An empty stream with the name of a shard becomes that shard. A stream with
// partitions, or with a retention policy, cannot become a queue. The Queue reads
// through the pool.
func Ensure(ctx context.Context, pool *pgxpool.Pool, name string, opts Options) (*Queue, error) {
	opts = opts.withDefaults()
	err := opts.validate()
	if err == nil {
		err = stream.ValidName(name)
	}
	var q *Queue
	if err == nil && opts.family() {
		q, err = ensureFamily(ctx, pool, name, opts)
	} else if err == nil {
		q, err = ensureOne(ctx, pool, name, opts)
	}
	if err == nil {
		err = q.opts.differ(opts)
	}
	if err != nil {
		return nil, fmt.Errorf("ensure queue %q: %w", name, ownError(err))
	}
	return q, nil
}

// ownError makes the stream's ErrInvalid match the queue's ErrInvalid too.
func ownError(err error) error {
	if errors.Is(err, stream.ErrInvalid) {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return err
}

// ensureOne makes an ordinary queue. If its stream is dropped meanwhile, it starts again.
func ensureOne(ctx context.Context, pool *pgxpool.Pool, name string, opts Options) (*Queue, error) {
	for failed := 0; ; failed++ {
		q, err := makeOne(ctx, pool, name, opts)
		if code := pg.Code(err); code != codeForeignKey && code != pg.CodeUndefinedTable || pg.Backoff(ctx, failed) != nil {
			return q, err
		}
	}
}

func makeOne(ctx context.Context, pool *pgxpool.Pool, name string, opts Options) (*Queue, error) {
	if q, err := lookupFamily(ctx, pool, name); err == nil || !errors.Is(err, ErrNotFound) {
		return q, err
	}
	s, err := ensureStream(ctx, pool, name)
	if err != nil {
		return nil, err
	}
	q := newQueue(pool, name, newShard(pool, s, 0))
	args := []any{s.ID(), opts.MaxAttempts, opts.RetryMin, opts.RetryMax}
	err = inWriter(ctx, pool, ensureQueueSQL, args, q.scan)
	if err != nil {
		return nil, explainEnsure(err)
	}
	return q, nil
}

// ensurePatience bounds each wait of Ensure for other users of the stream.
const ensurePatience = 5 * time.Second

// inWriter runs a query that makes or finds one row. The values that scan got are valid only if
// the error is nil.
func inWriter(ctx context.Context, pool *pgxpool.Pool, sql string, args []any, scan func(pgx.Row) error) error {
	return inReadCommitted(ctx, pool, ensurePatience, func(b *pgx.Batch) {
		b.Queue(sql, args...).QueryRow(scan)
		b.Queue(waitIfUnwrittenSQL)
	})
}

// explainEnsure says why a queue cannot be made.
func explainEnsure(err error) error {
	switch pg.Code(err) {
	case codeOptions:
		return fmt.Errorf("%w: %w", ErrExists, err)
	case codeStreamInUse, codeRetention:
		return fmt.Errorf("%w: %w", ErrStreamInUse, err)
	case pg.CodeLockNotAvailable:
		return fmt.Errorf("others use the stream at this moment, try again: %w", err)
	}
	return err
}

// ensureStream returns the stream of that name, which it makes if there is none.
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
	q, err := lookupOne(ctx, pool, name)
	if errors.Is(err, ErrNotFound) {
		q, err = lookupFamily(ctx, pool, name)
	}
	if err != nil {
		return nil, fmt.Errorf("look up queue %q: %w", name, ownError(err))
	}
	return q, nil
}

func lookupOne(ctx context.Context, pool *pgxpool.Pool, name string) (*Queue, error) {
	s, err := stream.Lookup(ctx, pool, name)
	if errors.Is(err, stream.ErrNotFound) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	q := newQueue(pool, name, newShard(pool, s, 0))
	err = q.scan(pool.QueryRow(ctx, lookupQueueSQL, s.ID()))
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return nil, err
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

// OwnsStream reports whether the stream of that name holds the messages of a queue, or
// of one of its priorities or partitions. Programs should not write to such a stream:
// package stream does not prevent it, and the server does.
// It makes one short query: a server calls it when it opens a stream, not for each
// message. OwnedStreams checks many names again. For a name that no stream has it
// returns false.
func OwnsStream(ctx context.Context, pool *pgxpool.Pool, name string) (bool, error) {
	var owns bool
	if err := pool.QueryRow(ctx, ownsStreamSQL, name).Scan(&owns); err != nil {
		return false, fmt.Errorf("look for the queue of stream %q: %w", name, err)
	}
	return owns, nil
}

// OwnedStreams returns the names for which OwnsStream is true, in any order, with
// one query.
func OwnedStreams(ctx context.Context, pool *pgxpool.Pool, names []string) ([]string, error) {
	rows, err := pool.Query(ctx, ownedStreamsSQL, names)
	if err != nil {
		return nil, fmt.Errorf("look for the queues of %d streams: %w", len(names), err)
	}
	owned, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for the queues of %d streams: %w", len(names), err)
	}
	return owned, nil
}

// Drop removes the queue of that name and its streams with all messages, or
// returns ErrNotFound. Nodes and Enqueuers of it fail with ErrNotFound from then
// on. It waits for reads and writes under way, until ctx ends. Of a queue with
// priorities or partitions some shards may be gone by then, and the name is not
// found: call Drop or Ensure again.
func Drop(ctx context.Context, pool *pgxpool.Pool, name string) error {
	if err := stream.ValidName(name); err != nil {
		return fmt.Errorf("drop queue %q: %w", name, ownError(err))
	}
	err := dropFamily(ctx, pool, name)
	if errors.Is(err, ErrNotFound) {
		if _, err = lookupOne(ctx, pool, name); err == nil {
			err = dropOne(ctx, pool, name, nil)
		}
	}
	if err != nil {
		return fmt.Errorf("drop queue %q: %w", name, err)
	}
	return nil
}

// dropOne drops one queue, which must be a member of the family, or of none if
// family is nil. A new queue of the same name, made meanwhile, is left alone.
func dropOne(ctx context.Context, pool *pgxpool.Pool, name string, family *int32) error {
	for failed := 0; ; failed++ {
		var dropped bool
		err := inReadCommitted(ctx, pool, ensurePatience, func(b *pgx.Batch) {
			b.Queue(dropQueueSQL, name, family).QueryRow(func(row pgx.Row) error { return row.Scan(&dropped) })
		})
		if errors.Is(err, pgx.ErrNoRows) || err == nil && !dropped {
			err = ErrNotFound
		}
		if err == nil {
			return nil
		}
		// Another caller may be dropping it: then it is gone, or was made again.
		if (pg.Code(err) == pg.CodeLockNotAvailable || pg.Code(err) == pg.CodeUndefinedTable) && pg.Backoff(ctx, failed) == nil {
			continue
		}
		return err
	}
}

func newQueue(pool *pgxpool.Pool, name string, members ...*shard) *Queue {
	return &Queue{pool: pool, name: name, members: members, nodes: make(map[*Node]struct{})}
}

// LimitMessages bounds the payloads that are read, in bytes. A larger message is not delivered but becomes a dead letter, which is listed
// without its payload. Call it before the Queue is used. Without it there is no bound.
func (q *Queue) LimitMessages(bytes int) {
	for _, m := range q.members {
		m.stream = m.stream.WithMaxMessage(bytes)
	}
}

// scan reads the options of one queue, which must not be a member of a family.
func (q *Queue) scan(row pgx.Row) error {
	var id int32
	var family *string
	if err := row.Scan(&id, &q.opts.MaxAttempts, &q.opts.RetryMin, &q.opts.RetryMax, &family); err != nil {
		return err
	}
	if family != nil {
		return fmt.Errorf("%w: it is a part of queue %q, to be used by that name", ErrInvalid, *family)
	}
	return nil
}

// Name returns the name of the queue.
func (q *Queue) Name() string { return q.name }

// Stream returns the stream that holds the messages; of a queue with priorities
// or partitions the first of its Streams.
func (q *Queue) Stream() *stream.Stream { return q.members[0].stream }

// Streams returns all streams that hold messages, by priority or partition.
func (q *Queue) Streams() []*stream.Stream {
	var all []*stream.Stream
	for _, m := range q.members {
		all = append(all, m.stream)
	}
	return all
}

// Options returns the options of the queue: as they were when the Queue was looked up, or, while a Node of it runs,
// some seconds ago. See Alter.
func (q *Queue) Options() Options {
	if now := q.altered.Load(); now != nil {
		return *now
	}
	return q.opts
}

// explain adds what was done to which queue, and turns the error into ErrNotFound if the queue is
// gone.
func (q *Queue) explain(what string, err error) error { return explain(what, q.name, err) }

// ordered reports whether the queue keeps the order of keys.
func (q *Queue) ordered() bool { return q.opts.Partitions > 0 }

// attach registers the Node, to be notified of what this process enqueues.
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

// committed tells the Nodes of this process that last is the last committed
// position in the stream of that member.
func (q *Queue) committed(index int, last int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for n := range q.nodes {
		n.parts[index].sawHead(last)
	}
}
