package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/ingestlog"
	"github.com/tidewire/tidewire/internal/pg"
)

// Mode names a strategy.
type Mode string

// The strategies, from the simplest to the default.
const (
	Naive    Mode = "naive"
	Buffered Mode = "buffered"
	Bulk     Mode = "bulk"
	Copy     Mode = "copy"
	Auto     Mode = "auto"
)

// Modes lists all strategies in the order in which they are compared.
func Modes() []Mode { return []Mode{Naive, Buffered, Bulk, Copy, Auto} }

var (
	// ErrMode is the error for an unknown mode.
	ErrMode = errors.New("ingest: unknown mode")
	// ErrAbandoned: Abandon was called. It is not known whether the messages
	// are stored.
	ErrAbandoned = errors.New("ingest: given up without an answer of PostgreSQL; messages may be stored")
)

// ParseMode returns the mode of that name.
func ParseMode(name string) (Mode, error) {
	if m := Mode(name); slices.Contains(Modes(), m) {
		return m, nil
	}
	return "", fmt.Errorf("%w %q: want one of %v", ErrMode, name, Modes())
}

// Describe describes the mode in a few words.
func (m Mode) Describe(cfg Config) string {
	cfg = cfg.withDefaults()
	switch m {
	case Naive:
		return "one INSERT per message, awaited"
	case Buffered:
		return fmt.Sprintf("%d workers, one INSERT per message", cfg.Workers)
	case Bulk:
		return fmt.Sprintf("%d workers, INSERT of %d rows or %v", cfg.Workers, cfg.Batch, cfg.Flush)
	case Copy:
		return "group commit by COPY"
	default:
		return "group commit by array INSERT or COPY"
	}
}

// Config configures an Ingester.
type Config struct {
	// Mode is the strategy. Defaults to Auto.
	Mode Mode
	// Table is where messages are stored, perhaps with its schema before a dot:
	// lower-case letters, digits and underscores, at most 50 bytes. migrate.Ingest
	// makes it. Defaults to messages, in the schema public.
	Table string
	// Workers is the number of connections that buffered and bulk write on.
	// Defaults to 4.
	Workers int
	// Batch is the largest number of rows of one write, in the modes bulk, copy
	// and auto. Defaults to 5,000 in bulk and 50,000 in the others.
	Batch int
	// Flush is how long bulk lets a batch gather, and an upper bound that copy
	// and auto never wait for. Defaults to 300 ms.
	Flush time.Duration
	// MaxInflightBytes bounds the memory of messages accepted and not yet
	// committed; above it Submit waits. Defaults to 64 MiB.
	MaxInflightBytes int
	// Log receives errors and, when traffic pauses, a summary of the traffic.
	// Defaults to none.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Mode = cmp.Or(c.Mode, Auto)
	c.Table = cmp.Or(c.Table, pg.DefaultTable)
	c.Workers = cmp.Or(c.Workers, 4)
	c.Flush = cmp.Or(c.Flush, 300*time.Millisecond)
	c.MaxInflightBytes = cmp.Or(c.MaxInflightBytes, 64<<20)
	if c.Batch == 0 {
		c.Batch = 50_000
		if c.Mode == Bulk {
			c.Batch = 5000
		}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	if _, err := ParseMode(string(c.Mode)); err != nil {
		return err
	}
	switch {
	case c.Workers < 1:
		return fmt.Errorf("ingest: workers is %d: want at least 1", c.Workers)
	case c.Batch < 1:
		return fmt.Errorf("ingest: batch is %d: want at least 1", c.Batch)
	case c.Mode == Bulk && c.Batch > ingestlog.MaxRows:
		return fmt.Errorf("ingest: batch is %d: one INSERT takes at most %d rows", c.Batch, ingestlog.MaxRows)
	case c.Flush < 0:
		return fmt.Errorf("ingest: flush is %v: want 0 or more", c.Flush)
	case c.MaxInflightBytes < 1<<20:
		return fmt.Errorf("ingest: max-inflight-bytes is %d: want at least 1 MiB", c.MaxInflightBytes)
	}
	return nil
}

// strategy stores the messages of a mode. In the end it calls src.committed or
// src.failed for each accepted message.
type strategy interface {
	// submit accepts payloads, whose indexes within src begin at first. It does
	// not use the payloads after it returns. It waits while the in-flight limit
	// is reached. With ctx's error, accepted is how many messages it accepted
	// before; it answers those as usual.
	submit(ctx context.Context, src *Source, first uint64, payloads [][]byte) (accepted int, err error)
	// run runs until ctx ends and everything accepted is answered. It writes
	// with the context work, which ends later or never.
	run(ctx, work context.Context)
}

// Ingester stores the messages of its Sources with one strategy.
type Ingester struct {
	cfg        Config
	strategy   strategy
	stats      *stats
	maintainer *ingestlog.Maintainer

	work    context.Context // context of all writes; ended by Abandon
	abandon context.CancelFunc
}

// New returns an Ingester that writes to the table through pool. It
// does nothing until Run.
func New(pool *pgxpool.Pool, cfg Config) (*Ingester, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if conns := int(pool.Config().MaxConns); (cfg.Mode == Buffered || cfg.Mode == Bulk) && conns < cfg.Workers+poolReserve {
		return nil, fmt.Errorf("ingest: the pool has %d connections: %d workers and upkeep want %d", conns, cfg.Workers, cfg.Workers+poolReserve)
	}
	maintainer, err := ingestlog.NewMaintainer(pool, cfg.Table, cfg.Log)
	if err != nil {
		return nil, fmt.Errorf("ingest: %w", err)
	}
	i := &Ingester{cfg: cfg, stats: newStats(), maintainer: maintainer}
	i.work, i.abandon = context.WithCancel(context.Background())
	switch cfg.Mode {
	case Naive:
		i.strategy = newNaive(pool, cfg, i.wrote)
	case Buffered, Bulk:
		i.strategy = newQueued(pool, cfg, i.wrote)
	default:
		i.strategy = newGrouped(pool, cfg, i.wrote)
	}
	return i, nil
}

// Run writes until ctx ends and everything accepted by then is committed or has
// failed, which may take as long as PostgreSQL is away: see Abandon. End ctx
// only after the last Submit has returned.
func (i *Ingester) Run(ctx context.Context) {
	defer i.abandon()
	done := make(chan struct{})
	var background sync.WaitGroup
	background.Go(func() { i.maintainer.Run(i.work) })
	background.Go(func() { i.stats.report(done, i.cfg.Log) })
	i.strategy.run(ctx, i.work)
	close(done)
	i.abandon()
	background.Wait()
}

// Abandon gives up accepted messages that are not committed: their Sources fail
// with ErrAbandoned.
func (i *Ingester) Abandon() { i.abandon() }

// Stats returns the counts since the start.
func (i *Ingester) Stats() Stats { return i.stats.snapshot() }

func (i *Ingester) wrote(rows int) {
	i.stats.committed(rows)
	i.maintainer.Wrote(rows)
}

// explain logs why messages were not committed, and returns the error for their
// sources. If a context has ended, it is not known whether they were committed.
func explain(log *slog.Logger, rows int, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		log.Error("messages given up: they may be stored", "rows", rows, "error", err)
		return fmt.Errorf("%w: %w", ErrAbandoned, err)
	}
	log.Error("messages not stored: PostgreSQL rejected them", "rows", rows, "error", err)
	return err
}
