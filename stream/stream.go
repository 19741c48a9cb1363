package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
)

// maxDropSegments is how many segments are dropped with their stream, in one
// transaction.
const maxDropSegments = 100

// MaxName is the longest name of a stream or group in bytes.
const MaxName = 128

var (
	// ErrNotFound: there is no stream or group of that name, or it was dropped.
	ErrNotFound = errors.New("stream: not found")
	// ErrExists: a stream of that name exists with other options.
	ErrExists = errors.New("stream: exists with other options")
	// ErrPartitioned: the operation has to be called on one of the stream's
	// Partitions.
	ErrPartitioned = errors.New("stream: has partitions")
	// ErrPartition: the operation has to be called on the whole stream, whose name
	// is the part before the last slash.
	ErrPartition = errors.New("stream: is a partition")
	// ErrNotKeyed: the stream has no index on keys, so it cannot be read by key.
	ErrNotKeyed = errors.New("stream: not keyed")
)

// Options of a stream, chosen when it is created.
type Options struct {
	// Keyed streams can be read by key. Other streams store keys too, but without
	// the index, which costs more than the rest of an append: 3 us a message.
	Keyed bool
	// Partitions is the number of partitions, up to MaxPartitions: separate logs,
	// which are written in parallel, each with its own order. They are Streams as
	// well, named <name>/0 to <name>/<n-1>: these names must not be used by other
	// streams, and <name> has five bytes less than MaxName at most. Messages with the same key go to the same
	// partition. The number cannot be changed. 0 is a stream without partitions,
	// whose name may contain any slashes. Defaults to 0.
	Partitions int
	// OwnTables gives a new stream, and each of its partitions, its own tables from the
	// beginning. Other streams share a table while they have few messages, and get their
	// own tables with the first batch that needs them: creating them takes some 5 ms. It
	// has no effect on an existing stream. Defaults to false.
	OwnTables bool
}

// Stream is an append-only log: messages in PostgreSQL, with a lock that orders
// them. Streams with few messages share a table, others have their own. A stream
// with partitions consists of one stream for each, and can be read by key only:
// other reads return ErrPartitioned. Safe for concurrent use.
type Stream struct {
	pool      *pgxpool.Pool
	id        int32
	name      string
	keyed     bool
	createdAt time.Time
	phase     string    // making, ready or dropping
	parts     []*Stream // the partitions, if it has any
	count     int       // number of partitions
	table     *table
	storage   *storage
	read      *readSQL
	standby   *onStandby // nil without
	largest   int        // see WithMaxMessage; 0 is no bound
	client    *Client    // nil without: then it cannot append or subscribe
}

// Ensure returns the stream of that name, and creates it if it does not exist. Any
// number of processes may call it concurrently. The name has 1 to MaxName bytes,
// valid UTF-8 without NUL; else the error is ErrInvalid. If the stream exists with
// other options, the error is ErrExists.
//
// The Stream reads through the pool.
func Ensure(ctx context.Context, pool *pgxpool.Pool, name string, opts Options) (*Stream, error) {
	if err := validName("stream", name); err != nil {
		return nil, err
	}
	if opts.Partitions != 0 {
		return ensurePartitioned(ctx, pool, name, opts)
	}
	s := &Stream{pool: pool}
	err := inReadCommitted(ctx, pool, ensureStreamSQL, []any{name, opts.Keyed, opts.OwnTables}, s.collect)
	if err == nil {
		err = s.checkOptions(opts)
	}
	if err != nil {
		return nil, fmt.Errorf("ensure stream %q: %w", name, err)
	}
	return s, nil
}

func (s *Stream) checkOptions(opts Options) error {
	switch {
	case s.keyed != opts.Keyed:
		return fmt.Errorf("%w: keyed is %t, not %t", ErrExists, s.keyed, opts.Keyed)
	case s.count != opts.Partitions:
		return fmt.Errorf("%w: %d partitions, not %d", ErrExists, s.count, opts.Partitions)
	}
	return nil
}

// Lookup returns the stream of that name, or ErrNotFound. The Stream reads
// through the pool.
func Lookup(ctx context.Context, pool *pgxpool.Pool, name string) (*Stream, error) {
	if err := validName("stream", name); err != nil {
		return nil, err
	}
	s := &Stream{pool: pool}
	err := s.scan(pool.QueryRow(ctx, lookupStreamSQL, name))
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	if err == nil {
		err = s.loadPartitions(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("look up stream %q: %w", name, err)
	}
	return s, nil
}

// ValidName returns ErrInvalid for a name that no stream can have.
func ValidName(name string) error { return validName("stream", name) }

// LookupAll returns the existing ones of the named streams, by name. It takes one query, and
// one more for each stream with partitions. The names must be valid; a name may be given
// twice. The Streams read through the pool.
func LookupAll(ctx context.Context, pool *pgxpool.Pool, names []string) (map[string]*Stream, error) {
	rows, err := pool.Query(ctx, lookupStreamsSQL, names)
	if err != nil {
		return nil, fmt.Errorf("look up streams: %w", err)
	}
	all, err := collectStreams(ctx, pool, rows)
	if err != nil {
		return nil, fmt.Errorf("look up streams: %w", err)
	}
	found := make(map[string]*Stream, len(all))
	for _, s := range all {
		found[s.name] = s
	}
	return found, nil
}

// List returns the names of all streams, ordered by their bytes. Partitions are not
// listed; they are part of their streams.
func List(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	all, err := LookupEvery(ctx, pool)
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.name
	}
	return names, err
}

// LookupEvery returns all streams, ordered by the bytes of their names. Partitions are not
// listed separately; they are part of their streams.
func LookupEvery(ctx context.Context, pool *pgxpool.Pool) ([]*Stream, error) {
	rows, err := pool.Query(ctx, listStreamsSQL)
	if err != nil {
		return nil, fmt.Errorf("list streams: %w", err)
	}
	all, err := collectStreams(ctx, pool, rows)
	if err != nil {
		return nil, fmt.Errorf("list streams: %w", err)
	}
	return all, nil
}

// collectStreams returns the streams of a query with their partitions.
func collectStreams(ctx context.Context, pool *pgxpool.Pool, rows pgx.Rows) ([]*Stream, error) {
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Stream, error) {
		s := &Stream{pool: pool}
		return s, s.scan(row)
	})
	if err != nil {
		return nil, err
	}
	whole := all[:0]
	for _, s := range all {
		err := s.loadPartitions(ctx)
		if errors.Is(err, ErrNotFound) { // dropped meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		whole = append(whole, s)
	}
	return whole, nil
}

// Drop removes the stream of that name with all its messages, or returns
// ErrNotFound, or ErrPartition for a partition alone. Appends to it fail with
// ErrNotFound from then on. It waits for reads and writes under way, until ctx
// ends. If the stream has hundreds of segments, it drops the oldest first, some at
// a time: if it fails, these stay dropped, as if by retention. It drops the
// partitions of a stream one after the other: from the start of Drop the stream is
// not found, and if Drop fails, another Drop, or Ensure, continues it.
func Drop(ctx context.Context, pool *pgxpool.Pool, name string) error {
	if err := validName("stream", name); err != nil {
		return err
	}
	var partitioned *int32
	err := inReadCommitted(ctx, pool, beginDropSQL, []any{name}, scanOne(&partitioned))
	if err == nil && partitioned != nil {
		err = dropPartitions(ctx, pool, *partitioned)
	} else if err == nil {
		err = dropSingle(ctx, pool, name)
	}
	if err != nil {
		return fmt.Errorf("drop stream %q: %w", name, err)
	}
	return nil
}

// dropSingle drops a stream that has no partitions.
func dropSingle(ctx context.Context, pool *pgxpool.Pool, name string) error {
	if err := dropOldest(ctx, pool, name); err != nil {
		return err
	}
	dropped, err := drop(ctx, pool, dropStreamSQL, name)
	if err == nil && !dropped {
		err = ErrNotFound
	}
	return err
}

// drop runs a query that drops something, and retries while it is in use:
// drop_stream says why it does not wait.
func drop(ctx context.Context, pool *pgxpool.Pool, sql string, arg any) (done bool, err error) {
	for failed := 0; ; failed++ {
		err := inReadCommitted(ctx, pool, sql, []any{arg}, scanOne(&done))
		if pg.Code(err) != pg.CodeLockNotAvailable {
			return done, explainPartition(err)
		}
		if waitErr := pg.Backoff(ctx, failed); waitErr != nil {
			return false, err
		}
	}
}

// dropOldest drops segments until at most maxDropSegments are left, which one
// transaction can drop. It drops up to the head: no transaction below a committed
// position is still under way.
func dropOldest(ctx context.Context, pool *pgxpool.Pool, name string) error {
	k := NewRetentionWorker(pool, RetentionWorkerConfig{})
	for failed := 0; ; failed++ {
		var id int32
		var head int64
		err := pool.QueryRow(ctx, manySegmentsSQL, name, maxDropSegments).Scan(&id, &head)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		var dropped int
		if err == nil {
			dropped, err = k.drop(ctx, dropSegmentsSQL, id, head)
		}
		if pg.Code(err) == pg.CodeUndefinedTable {
			return nil // another process has dropped it
		}
		if err != nil && pg.Code(err) != pg.CodeLockNotAvailable {
			return err
		}
		if dropped > 0 {
			failed = 0
		} else if err := pg.Backoff(ctx, failed); err != nil {
			return err
		}
	}
}

// ID is the number of the stream in this database. IDs are never reused.
func (s *Stream) ID() int32 { return s.id }

// Name returns the name of the stream.
func (s *Stream) Name() string { return s.name }

// Keyed reports whether the stream can be read by key.
func (s *Stream) Keyed() bool { return s.keyed }

// CreatedAt is when the stream was created.
func (s *Stream) CreatedAt() time.Time { return s.createdAt }

// collect reads the one row of a query that describes the stream.
func (s *Stream) collect(rows pgx.Rows) error {
	_, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (struct{}, error) { return struct{}{}, s.scan(row) })
	return err
}

func (s *Stream) scan(row pgx.Row) error {
	var shared bool
	if err := row.Scan(&s.id, &s.name, &s.keyed, &s.createdAt, &s.count, &s.phase, &shared); err != nil {
		return err
	}
	if s.count > 0 {
		return nil
	}
	s.table = streamTable(s.id)
	s.storage = &storage{}
	s.storage.own.Store(!shared)
	s.read = &readSQL{table: s.table.name}
	return nil
}

// validName checks the name of a stream, group or client; of is that word, for the
// error.
func validName(of, name string) error {
	switch {
	case len(name) == 0:
		return fmt.Errorf("%w %s name: empty", ErrInvalid, of)
	case len(name) > MaxName:
		return fmt.Errorf("%w %s name: %d bytes, want at most %d", ErrInvalid, of, len(name), MaxName)
	case !isText(name):
		return fmt.Errorf("%w %s name %q: want UTF-8 without NUL", ErrInvalid, of, name)
	}
	return nil
}
