package eventstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/standby"
)

const (
	// DefaultName is the name of the store that an empty name refers to.
	DefaultName = "default"
	// MaxName is the longest name of a store in bytes.
	MaxName = 128
)

// Config configures a Client and all its Stores. The zero value is right for most programs.
type Config struct {
	// MaxBatch is the number of events in a batch from which further appends wait
	// for the next batch. Defaults to 2,000.
	MaxBatch int
	// MaxBatchBytes is the same limit in bytes of memory. Three batches may exist:
	// one that gathers, one that is checked and one that is committed. Defaults to 8
	// MiB.
	MaxBatchBytes int
	// TailEvents is how many of the last events that this Store has written are kept
	// in memory, to check conditions without PostgreSQL. It keeps types and tags only,
	// at most 16 MiB. Defaults to 10,000.
	TailEvents int
	// Timeout bounds one attempt to write a batch, and one read. Defaults to 30 s.
	Timeout time.Duration
	// CheckTimeout bounds the check of an expensive condition, which runs without the
	// store's lock. If the check takes longer, the append fails with ErrTooExpensive.
	// Defaults to 2 s.
	CheckTimeout time.Duration
	// LockTimeout bounds the wait for the store's lock. After it, the holder is
	// disconnected if it is a Tidewire writer that waits for its frozen client.
	// Defaults to 10 s, and is at most a minute and half of Timeout, so that a wait
	// for the lock does not use up Timeout.
	LockTimeout time.Duration
	// IdleTimeout is how long a Store without appends keeps its last events in
	// memory. Defaults to 30 s.
	IdleTimeout time.Duration
	// MaxConcurrentProjections limits how many Project and ProjectStream run at the
	// same time. More get ErrTooManyProjections; Decide waits. Defaults to 64.
	MaxConcurrentProjections int
	// MaxDecisions is the maximum number of attempts of Decide after conflicts.
	// Defaults to 10.
	MaxDecisions int
	// Poll is the interval at which PostgreSQL is polled for events of other
	// processes whose NOTIFY was missed, plus or minus a quarter. Only Stores with
	// subscriptions or Watch calls poll. Defaults to 1 s.
	Poll time.Duration
	// NoAnnounce switches off the NOTIFY to other processes, which is sent in a separate transaction after
	// a commit. Their subscriptions then find the events when they poll. Defaults to false.
	NoAnnounce bool
	// AnnounceEvery is the minimum time between two such NOTIFYs: PostgreSQL lets
	// only one transaction with a NOTIFY commit at a time. Defaults to 5 ms.
	AnnounceEvery time.Duration
	// NoListen switches off LISTEN, for poolers that do not support it. Defaults to
	// false.
	NoListen bool
	// Standby serves the reads of queries, projections and subscriptions, if it has everything that the primary had when the
	// read began. Conditions are never checked there. Defaults to none.
	Standby *standby.Reader
	// Log receives a line for each failed attempt, and warnings. Defaults to none.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.MaxBatch <= 0 {
		c.MaxBatch = 2000
	}
	if c.MaxBatchBytes <= 0 {
		c.MaxBatchBytes = 8 << 20
	}
	if c.TailEvents <= 0 {
		c.TailEvents = 10_000
	}
	if c.Timeout <= 0 {
		c.Timeout = 30 * time.Second
	}
	if c.CheckTimeout <= 0 {
		c.CheckTimeout = 2 * time.Second
	}
	if c.LockTimeout <= 0 {
		c.LockTimeout = 10 * time.Second
	}
	c.LockTimeout = min(c.LockTimeout, maxLockTimeout, c.Timeout/2)
	if c.IdleTimeout <= 0 {
		c.IdleTimeout = 30 * time.Second
	}
	if c.MaxConcurrentProjections <= 0 {
		c.MaxConcurrentProjections = 64
	}
	if c.MaxDecisions <= 0 {
		c.MaxDecisions = 10
	}
	if c.Poll <= 0 {
		c.Poll = time.Second
	}
	if c.AnnounceEvery <= 0 {
		c.AnnounceEvery = 5 * time.Millisecond
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Store is an open event store of a database. Any number of Stores, in any number of processes, can
// use the same event store at the same time: the guarantees hold across all of them.
//
// A Store uses connections of the pool: for each batch of appends one of the sessions
// that all writers of the pool share, one more to check conditions ahead, up to a
// quarter of the pool for expensive conditions, up to half of it for queries and
// projections, and up to half for subscriptions. More reads wait for a connection. One
// connection outside the pool listens for all Stores and stream.Hubs of the pool, while
// anybody subscribes to them. Safe for concurrent use.
type Store struct {
	cfg       Config
	pool      *pgxpool.Pool
	id        int32
	name      string
	createdAt time.Time
	sql       storeSQL
	// spareConns means that the pool is large enough to check ahead without taking
	// the connection that the committer needs.
	spareConns bool

	group *pg.Group[gathering]
	batch chan work // to the committer
	spare chan []*call

	life    context.Context // of subscriptions and background work: ends with Close
	end     context.CancelFunc
	work    context.Context // of accepted appends: ends when Close gives up waiting
	abandon context.CancelFunc
	running sync.WaitGroup

	closed    atomic.Bool
	appending atomic.Int64  // number of calls between enter and leave
	gaveUp    atomic.Bool   // an accepted append was abandoned
	idle      chan struct{} // closed when the last of these calls has left a closed Store
	idleOnce  sync.Once

	committing atomic.Bool  // the committer is busy
	tailStart  atomic.Int64 // the tail in memory begins after this position

	projections  chan struct{} // semaphore: a slot for each running projection
	slowChecks   chan struct{} // semaphore for checks of one expensive condition
	reads        chan struct{} // semaphore for reads of a page
	follows      chan struct{} // semaphore for reads of subscriptions and Watch
	sweeper      sweeper
	counts       counts
	moved        atomic.Bool // the physical locations in the tag index are wrong: read by position
	frequency    tagFrequency
	searching    searching
	hub          hub
	primary      lastEnds
	last         lastStored
	lossReported atomic.Int64 // the last position that was reported as lost
	forget       func()       // removes the Store from its Client
}

// gathering is the open batch.
type gathering struct{ calls []*call }

// ensure finds the store, and creates it if it does not exist.
func (s *Store) ensure(ctx context.Context) error {
	err := inReadCommitted(ctx, s.sendBatch, s.cfg.LockTimeout, func(b *pgx.Batch) {
		b.Queue(ensureStoreSQL, s.name).QueryRow(s.scan)
		b.Queue(waitIfUnwrittenSQL)
	})
	if err != nil {
		return fmt.Errorf("ensure event store %q: %w", s.name, err)
	}
	return nil
}

// lookup finds the store.
func (s *Store) lookup(ctx context.Context) error {
	err := s.scan(s.pool.QueryRow(ctx, openStoreSQL, s.name))
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("look up event store %q: %w", s.name, err)
	}
	return nil
}

// Drop removes the store of that name with all its events, or returns
// ErrNotFound. It needs a moment without readers and writers, and retries until it
// gets one or ctx ends. Open Stores of that name get ErrNotFound from then on.
func Drop(ctx context.Context, pool *pgxpool.Pool, name string) error {
	if name == "" {
		name = DefaultName
	}
	if err := validName(name); err != nil {
		return err
	}
	for failed := 0; ; failed++ {
		var dropped bool
		send := func(ctx context.Context, b *pgx.Batch) error { return pg.SendBatch(ctx, pool, b) }
		err := inReadCommitted(ctx, send, maxLockTimeout, func(b *pgx.Batch) {
			b.Queue(dropStoreSQL, name).QueryRow(func(row pgx.Row) error { return row.Scan(&dropped) })
		})
		if err == nil && !dropped {
			err = ErrNotFound
		}
		if err == nil {
			return nil
		}
		if pg.Code(err) != pg.CodeLockNotAvailable || pg.Backoff(ctx, failed) != nil {
			return fmt.Errorf("drop event store %q: %w", name, err)
		}
	}
}

// inTx runs a READ COMMITTED transaction on the pool. It overrides the defaults of the
// database, the role and the pool.
func inTx(ctx context.Context, pool *pgxpool.Pool, lockTimeout time.Duration, do func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, pg.WriterSettings(lockTimeout)); err != nil {
			return err
		}
		return do(tx)
	})
}

// Create creates the store of that name if it does not exist, without opening it. Names and errors are those of
// Client.Ensure.
func Create(ctx context.Context, pool *pgxpool.Pool, name string) error {
	s, err := newStore(pool, name, Config{})
	if err == nil {
		err = s.ensure(ctx)
	}
	return err
}

// List returns the names of all stores, ordered by their bytes.
func List(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	rows, err := pool.Query(ctx, listStoresSQL)
	if err != nil {
		return nil, fmt.Errorf("list event stores: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list event stores: %w", err)
	}
	return names, nil
}

func validName(name string) error {
	if len(name) > MaxName {
		return invalid("name", "%d bytes, want at most %d", len(name), MaxName)
	}
	if !isText(name) {
		return invalid("name", notText)
	}
	return nil
}

func newStore(pool *pgxpool.Pool, name string, cfg Config) (*Store, error) {
	if name == "" {
		name = DefaultName
	}
	if err := validName(name); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	s := &Store{
		cfg: cfg, pool: pool, name: name, forget: func() {}, spareConns: pool.Config().MaxConns > 2,
		group:       pg.NewGroup(&gathering{}, &gathering{}, cfg.MaxBatch, cfg.MaxBatchBytes),
		searching:   usualSearch,
		batch:       make(chan work),
		spare:       make(chan []*call, 4),
		idle:        make(chan struct{}),
		slowChecks:  make(chan struct{}, max(1, pool.Config().MaxConns/4)),
		reads:       make(chan struct{}, max(1, pool.Config().MaxConns/2)),
		follows:     make(chan struct{}, max(1, pool.Config().MaxConns/2)),
		projections: make(chan struct{}, cfg.MaxConcurrentProjections),
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.work, s.abandon = context.WithCancel(context.Background())
	return s, nil
}

func (s *Store) scan(row pgx.Row) error {
	if err := row.Scan(&s.id, &s.name, &s.createdAt); err != nil {
		return err
	}
	s.sql = newStoreSQL(s.id)
	return nil
}

// start starts the goroutines of the Store, which run until Close.
func (s *Store) start() {
	s.hub.init(s)
	w := newWriter(s)
	s.running.Go(w.run)
	s.running.Go(func() {
		c := checker{store: s, acquire: aheadWait}
		s.group.Run(s.life, s.work, c.gathered)
		close(s.batch)
	})
}

// Close rejects further appends, ends all subscriptions, and waits until each accepted
// append is committed or rejected. If ctx ends first, Close stops waiting: the
// remaining appends fail with ErrOutcomeUnknown, which Close then returns too. It may
// be called more than once.
func (s *Store) Close(ctx context.Context) error {
	s.closed.Store(true)
	defer context.AfterFunc(ctx, s.abandon)()
	if s.appending.Load() == 0 {
		s.idleOnce.Do(func() { close(s.idle) })
	}
	<-s.idle // ends also if ctx does: then the committer abandons its batches, and the waiting calls find room
	s.hub.close(s.end)
	s.running.Wait()
	s.abandon()
	s.forget()
	if s.gaveUp.Load() {
		return fmt.Errorf("close event store %q: %w", s.name, errAbandoned)
	}
	return nil
}

// enter registers an append, unless the Store is closed. Either enter sees that the
// Store is closed, or Close sees the append.
func (s *Store) enter() bool {
	s.appending.Add(1)
	if s.closed.Load() {
		s.leave()
		return false
	}
	return true
}

func (s *Store) leave() {
	if s.appending.Add(-1) == 0 && s.closed.Load() {
		s.idleOnce.Do(func() { close(s.idle) })
	}
}

// ID is the number of the store in this database. It is never reused.
func (s *Store) ID() int32 { return s.id }

// Name returns the name of the store.
func (s *Store) Name() string { return s.name }

// CreatedAt returns when the store was created.
func (s *Store) CreatedAt() time.Time { return s.createdAt }

// lock is the number of the store's advisory lock within pg.LockClass. Streams use
// numbers from 1000 on, queues negative numbers.
func (s *Store) lock() int32 { return 1<<30 + s.id }

// explain adds the operation and the name of the store to an error.
func (s *Store) explain(doing string, err error) error {
	if code := pg.Code(err); code == pg.CodeUndefinedTable || code == codeUndefinedFunction {
		err = fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return fmt.Errorf("%s event store %q: %w", doing, s.name, err)
}

const codeUndefinedFunction = "42883"
