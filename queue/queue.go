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
	// ErrExists: a queue of that name exists with other options.
	ErrExists = errors.New("queue: exists with other options")
	// ErrStreamInUse: a stream of that name has messages, groups or a retention policy. A queue would take
	// it from those who use it.
	ErrStreamInUse = errors.New("queue: a stream of that name is in use")
	// ErrInvalid: an argument is outside of its documented limits.
	ErrInvalid = errors.New("queue: invalid")
	// ErrNotRunning: nothing writes what is to be enqueued, or takes part in the queue. Have the Queue from a
	// Client, or start the Enqueuer.
	ErrNotRunning = errors.New("queue: not running: have the queue from a Client, or start the Enqueuer")
	// ErrClosed: the Node, Consumer or Enqueuer has been stopped or closed.
	ErrClosed = errors.New("queue: closed")
	// ErrLeaseLost: the delivery is void, for its time ran out, its Consumer was
	// closed, or the Node lost its lease. The message is, or will be, delivered
	// again. Or the queue was dropped, and the message with it.
	ErrLeaseLost = errors.New("queue: lease lost")
	// ErrSettled: the delivery was acknowledged or refused before.
	ErrSettled = errors.New("queue: delivery settled before")
	// ErrJournalLost: the database does not say what was delivered and acknowledged,
	// for it was restored from a backup without the queue's journal, as earlier
	// versions could make. The error's text tells how to go on. No message is
	// delivered before.
	ErrJournalLost = errors.New("queue: journal lost")
	// ErrOutcomeUnknown: the Node or the Enqueuer was told to give up while PostgreSQL was away, or that refused
	// it then. Whether the acknowledgement is recorded, or the message stored, is unknown.
	ErrOutcomeUnknown = errors.New("queue: stopped without an answer of PostgreSQL")
)

const (
	// codeNotFound is what the functions raise where there is no such queue.
	codeNotFound = "TW003"
	// codeStreamInUse is what they raise where a stream is to become a queue that has
	// messages or groups, and codeRetention where it has a retention policy.
	codeStreamInUse = "TW009"
	codeRetention   = "TW008"
	// codeJournalLost is what they raise where a journal has no row.
	codeJournalLost = "TW030"
)

// Queue is a named queue: a stream of that name, and who has done what of it;
// or several, for priorities or partitions. Safe for concurrent use.
type Queue struct {
	pool    *pgxpool.Pool
	name    string
	opts    Options
	members []*shard // by priority or partition; one of an ordinary queue
	client  *Client  // nil without: then nothing takes part in the queue

	mu    sync.Mutex
	nodes map[*Node]struct{} // of this process, to be told of what it enqueues
}

// Ensure returns the queue of that name, and makes it, and its streams, if there
// is none. It may be called by any number of processes at once. If the queue exists
// with other options, or a queue or stream stands in the way of its name or parts,
// the error is ErrExists; a stream that has messages or groups is never made a
// queue's, and the error is ErrStreamInUse. While others write to such a stream, Ensure
// waits, for seconds at most; then it fails, and can be tried again.
//
// The name is as that of a stream, or the error is ErrInvalid; with
// priorities or partitions it is three bytes shorter at most. A stream with partitions,
// or with a retention policy, cannot become a queue. The Queue reads through the pool.
func Ensure(ctx context.Context, pool *pgxpool.Pool, name string, opts Options) (*Queue, error) {
	opts = opts.withDefaults()
	err := opts.validate()
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

// ownError has the stream's ErrInvalid be the queue's, too.
func ownError(err error) error {
	if errors.Is(err, stream.ErrInvalid) {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return err
}

// ensureOne makes an ordinary queue. If its stream is dropped meanwhile, it begins anew.
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

// ensurePatience bounds each wait of Ensure for others that use the stream.
const ensurePatience = 5 * time.Second

// inWriter runs a query that makes one row, or finds it. The row that scan got holds only if the
// error is nil.
func inWriter(ctx context.Context, pool *pgxpool.Pool, sql string, args []any, scan func(pgx.Row) error) error {
	return inReadCommitted(ctx, pool, ensurePatience, func(b *pgx.Batch) {
		b.Queue(sql, args...).QueryRow(scan)
		b.Queue(waitIfUnwrittenSQL)
	})
}

// explainEnsure says what stands in the way of a queue.
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

// OwnsStream reports whether the stream of that name holds the messages of a
// queue, or of one of its priorities or partitions. Only the queue may write to such a
// stream. It is one short query: a server asks when it opens a stream, not for each
// message; OwnedStreams asks again. A name that no stream has is nobody's.
func OwnsStream(ctx context.Context, pool *pgxpool.Pool, name string) (bool, error) {
	var owns bool
	if err := pool.QueryRow(ctx, ownsStreamSQL, name).Scan(&owns); err != nil {
		return false, fmt.Errorf("look for the queue of stream %q: %w", name, err)
	}
	return owns, nil
}

// OwnedStreams returns those of the names of which OwnsStream is true, in any order,
// with one query.
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
// returns ErrNotFound. Nodes and Enqueuers of it fail with ErrNotFound from
// then on. It waits for reads and writes under way, until ctx ends; of a queue
// with priorities or partitions some may be gone then, and the name is not found:
// Drop or Ensure again.
func Drop(ctx context.Context, pool *pgxpool.Pool, name string) error {
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

// dropOne drops one queue that is a member of the family, or of none. Another one of
// its name, made meanwhile, is left alone.
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
		// Somebody else may be dropping it: then it is there no more, or made anew.
		if (pg.Code(err) == pg.CodeLockNotAvailable || pg.Code(err) == pg.CodeUndefinedTable) && pg.Backoff(ctx, failed) == nil {
			continue
		}
		return err
	}
}

func newQueue(pool *pgxpool.Pool, name string, members ...*shard) *Queue {
	return &Queue{pool: pool, name: name, members: members, nodes: make(map[*Node]struct{})}
}

// scan reads the options of one queue, which must not be a part of another.
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

// Options returns the options the queue was made with.
func (q *Queue) Options() Options { return q.opts }

// explain says what was done to the queue, and that it is gone if it is.
func (q *Queue) explain(what string, err error) error { return explain(what, q.name, err) }

// ordered reports whether the queue keeps the order of keys.
func (q *Queue) ordered() bool { return q.opts.Partitions > 0 }

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

// committed tells the Nodes of this process that the stream of that member
// reaches to last.
func (q *Queue) committed(index int, last int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for n := range q.nodes {
		n.parts[index].sawHead(last)
	}
}
