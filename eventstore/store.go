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
	// DefaultName is the name of the store that is meant by an empty name.
	DefaultName = "default"
	// MaxName is the longest name of a store in bytes.
	MaxName = 128
)

// Config configures a Client, and with it each of its Stores. The zero value is right for most programs.
type Config struct {
	// MaxBatch is the number of events from which appends wait for the next
	// batch. Defaults to 2,000.
	MaxBatch int
	// MaxBatchBytes is the same in bytes of memory. Three batches may exist, one
	// that gathers, one that is checked and one that is committed. Defaults to 8
	// MiB.
	MaxBatchBytes int
	// TailEvents is how many of the events that this Store has written last are
	// kept in memory, type and tags only and at most 16 MiB, to decide conditions
	// without asking PostgreSQL. Defaults to 10,000.
	TailEvents int
	// Timeout bounds one attempt to write a batch, and one read. Defaults to 30 s.
	Timeout time.Duration
	// CheckTimeout bounds the search, without the store's lock, for what an
	// expensive condition excludes; past it the append gets ErrTooExpensive.
	// Defaults to 2 s.
	CheckTimeout time.Duration
	// LockTimeout bounds the wait for the store's lock; past it, a holder that is
	// Tidewire's own and frozen is ended. Defaults to 10 s, and is at most a minute
	// and half of Timeout: who waits for the lock is not slow.
	LockTimeout time.Duration
	// IdleTimeout is for how long a Store without appends keeps its last events in
	// memory. Defaults to 30 s.
	IdleTimeout time.Duration
	// MaxConcurrentProjections is how many Project and ProjectStream may run at
	// once; more get ErrTooManyProjections, or wait, in Decide. Defaults to 64.
	MaxConcurrentProjections int
	// MaxDecisions is how often Decide decides before it gives up because of
	// conflicts. Defaults to 10.
	MaxDecisions int
	// Poll is how often PostgreSQL is asked for what was committed elsewhere and
	// not heard of, give or take a quarter, while anybody subscribes or watches.
	// Defaults to 1 s.
	Poll time.Duration
	// NoAnnounce keeps appends from telling other processes, by a NOTIFY of its own after the commit: their
	// subscriptions learn of the events when they poll. Defaults to false.
	NoAnnounce bool
	// AnnounceEvery is the least time between two such NOTIFYs: PostgreSQL lets
	// one transaction with a NOTIFY commit at a time. Defaults to 5 ms.
	AnnounceEvery time.Duration
	// NoListen keeps the Store from listening to what others announce, for
	// poolers that know no LISTEN. Defaults to false.
	NoListen bool
	// Standby is where events are read for queries, projections and subscriptions, if it has what the primary had when the
	// read began. Conditions are never checked there. Defaults to none.
	Standby *standby.Reader
	// Log receives a line for each attempt that failed. Defaults to none.
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

// Store is one event store of a database, as a Client has opened it. There may be any number of Stores
// for it, in any number of processes: they are correct together.
//
// A Store takes connections of the pool: for each batch of appends one of those that
// all who write to the pool share, one more to check conditions ahead, up to a quarter
// of the pool for expensive conditions, and up to half of it for all that reads: more
// reads wait for their turn. One beside the pool listens for all Stores and stream.Hubs
// on it, while anybody follows them. Safe for concurrent use.
type Store struct {
	cfg       Config
	pool      *pgxpool.Pool
	id        int32
	name      string
	createdAt time.Time
	sql       storeSQL
	// spareConns says that the pool is not so small that checking ahead might
	// wait for the connection of the committer.
	spareConns bool

	group *pg.Group[gathering]
	batch chan work // to the committer
	spare chan []*call

	life    context.Context // ends with Close: of subscriptions
	end     context.CancelFunc
	work    context.Context // of accepted appends: ends when Close gives up
	abandon context.CancelFunc
	running sync.WaitGroup

	closed    atomic.Bool
	appending atomic.Int64  // calls that may still add
	gaveUp    atomic.Bool   // an accepted append was abandoned
	idle      chan struct{} // closed when the last of them has left a closed Store
	idleOnce  sync.Once

	committing atomic.Bool  // the committer is busy
	tailStart  atomic.Int64 // what it decides in memory begins after it

	projections chan struct{} // a slot for each that runs
	apart       chan struct{} // the same for checks of one call
	reads       chan struct{} // and for reads of a page
	follows     chan struct{} // and for reads of those who follow the store
	sweeper     sweeper
	counts      counts
	moved       atomic.Bool // events are not where their tags' rows say
	popular     tagFrequency
	searching   searching
	hub         hub
	primary     lastEnds
	last        lastStored
	told        atomic.Int64 // the last event that was said to be lost
	forget      func()       // has the Client forget it
}

// gathering is the open batch.
type gathering struct{ calls []*call }

// ensure finds the store, and makes it if there is none.
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
// ErrNotFound. It tries until nobody reads or writes for a moment, or ctx ends.
// Stores of it that are open get ErrNotFound from then on.
func Drop(ctx context.Context, pool *pgxpool.Pool, name string) error {
	if name == "" {
		name = DefaultName
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

// inTx runs a transaction of ours in a pool of the caller, whatever the database,
// the role or the pool have as their defaults.
func inTx(ctx context.Context, pool *pgxpool.Pool, lockTimeout time.Duration, do func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, pg.WriterSettings(lockTimeout)); err != nil {
			return err
		}
		return do(tx)
	})
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

func newStore(pool *pgxpool.Pool, name string, cfg Config) (*Store, error) {
	if name == "" {
		name = DefaultName
	}
	if len(name) > MaxName {
		return nil, invalid("name", "%d bytes, want at most %d", len(name), MaxName)
	}
	if !isText(name) {
		return nil, invalid("name", notText)
	}
	cfg = cfg.withDefaults()
	s := &Store{
		cfg: cfg, pool: pool, name: name, forget: func() {}, spareConns: pool.Config().MaxConns > 2,
		group:       pg.NewGroup(&gathering{}, &gathering{}, cfg.MaxBatch, cfg.MaxBatchBytes),
		searching:   usualSearch,
		batch:       make(chan work),
		spare:       make(chan []*call, 4),
		idle:        make(chan struct{}),
		apart:       make(chan struct{}, max(1, pool.Config().MaxConns/4)),
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

// start begins what runs beside the callers, until Close.
func (s *Store) start() {
	s.hub.init(s)
	w := newWriter(s)
	s.running.Go(w.run)
	s.running.Go(func() {
		c := checker{store: s, acquire: justNow}
		s.group.Run(s.life, s.work, c.gathered)
		close(s.batch)
	})
}

// Close accepts no more appends, ends all subscriptions, and returns when what
// was accepted is committed or refused. If ctx ends first it gives up: these
// appends end with ErrOutcomeUnknown, which is then Close's error too. It may be
// called more than once.
func (s *Store) Close(ctx context.Context) error {
	s.closed.Store(true)
	defer context.AfterFunc(ctx, s.abandon)()
	if s.appending.Load() == 0 {
		s.idleOnce.Do(func() { close(s.idle) })
	}
	<-s.idle // with ctx's end the committer gives up, and there is room for all
	s.hub.close(s.end)
	s.running.Wait()
	s.abandon()
	s.forget()
	if s.gaveUp.Load() {
		return fmt.Errorf("close event store %q: %w", s.name, errAbandoned)
	}
	return nil
}

// enter lets an append add, until the Store is closed. Either it sees that, or
// Close sees it.
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

// ID is the number of the store in this database. It is never used again.
func (s *Store) ID() int32 { return s.id }

// Name returns the name of the store.
func (s *Store) Name() string { return s.name }

// CreatedAt is when the store was made.
func (s *Store) CreatedAt() time.Time { return s.createdAt }

// lock is the number of the store's lock within pg.LockClass. Streams have
// those from 1000 on, queues negative ones.
func (s *Store) lock() int32 { return 1<<30 + s.id }

// explain says of which store an error is.
func (s *Store) explain(doing string, err error) error {
	if code := pg.Code(err); code == pg.CodeUndefinedTable || code == codeUndefinedFunction {
		err = fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return fmt.Errorf("%s event store %q: %w", doing, s.name, err)
}

const codeUndefinedFunction = "42883"
