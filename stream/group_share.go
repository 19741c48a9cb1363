package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
)

// ErrNotOwner: what was to be done is for the owner of a partition alone, and
// this one is not, or not any more.
var ErrNotOwner = errors.New("stream: not the owner any more")

// maxShareName is the longest name of a share in bytes.
const maxShareName = 1024

// CoordinatorConfig configures a Coordinator.
type CoordinatorConfig struct {
	// Name of what is shared out, 1 to 1,024 bytes of valid UTF-8 without NUL. All
	// members give the same one, and the same Numbers.
	Name string
	// Numbers is how many things there are: 0 to Numbers - 1. At least 1.
	Numbers int
	// Member is what this one is called, for whoever looks. Defaults to a random
	// name.
	Member string
	// Lease is for how long a member that says nothing keeps what it owns, by
	// PostgreSQL's clock. Itself it stops after four fifths of it. Defaults to
	// 15 s.
	Lease time.Duration
	// Heartbeat is how often a member says that it lives, in one query, give or
	// take a tenth, and hears of changes; a quarter of it while some are under
	// way. At most a quarter of the Lease. Defaults to 3 s.
	Heartbeat time.Duration
	// Own is called for each number that this member comes to own, in a goroutine
	// of its own, until it returns: then the number is given back. It is to return
	// soon after Assignment.Asked is closed. ctx ends, with ErrNotOwner as its
	// cause, when the lease is lost: from then on nothing may be done any more, and
	// only when all have returned the member joins anew.
	Own func(ctx context.Context, o *Assignment)
	// Log receives a line when the lease is lost, or a heartbeat fails. Defaults
	// to none.
	Log *slog.Logger
	// Stream, if not nil, is what the share goes with: it is dropped with that, and Run
	// returns ErrNotFound.
	Stream *Stream
}

func (c CoordinatorConfig) withDefaults() CoordinatorConfig {
	if c.Member == "" {
		c.Member = fmt.Sprintf("%016x", rand.Uint64())
	}
	if c.Lease <= 0 {
		c.Lease = 15 * time.Second
	}
	if c.Heartbeat <= 0 {
		c.Heartbeat = 3 * time.Second
	}
	c.Heartbeat = min(c.Heartbeat, c.Lease/4)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Coordinator is a member of those that share out numbers: each number has one owner
// at a time, and members own equally many, give or take one. When one joins,
// the others finish with what it is to get, and give it back; what a member
// owned that died is free when its lease has run out.
//
// The last member that leaves takes the share's rows along. If it was killed
// they stay until somebody joins that name again, or until CoordinatorConfig.Stream
// is dropped.
//
// It takes a connection of the pool for each heartbeat, and writes one row: a
// pool that has none for longer than the lease costs the lease.
type Coordinator struct {
	cfg  CoordinatorConfig
	pool *pgxpool.Pool

	returned chan *Assignment // whose Own has returned
}

// Assignment is one number for as long as this member owns it.
type Assignment struct {
	// Number is what is owned.
	Number int
	// Token names this ownership, and no other ever. Rows that are written with
	// tidewire.hold_ownerships(tokens) in the same transaction, in READ COMMITTED,
	// are written while the tokens that it returns are those of owners.
	Token int64

	lease  *lease
	asked  chan struct{}
	wanted bool // back: asked is closed; of the loop of Run alone
}

// Revoked is closed when the number is to be given back: finish, and return.
func (o *Assignment) Revoked() <-chan struct{} { return o.asked }

// Valid reports whether the number is still owned. A process that was stopped
// for a while finds out by it sooner than by its ctx. It goes by the clock that
// stands still while the whole machine is suspended, or a virtual machine is
// paused: after that it may be true until the next heartbeat, and only what is
// written under the Token is refused.
func (o *Assignment) Valid() bool { return o.lease.lasts() }

// NewShare returns a member that does nothing until Run. Errors: ErrInvalid.
func NewCoordinator(pool *pgxpool.Pool, cfg CoordinatorConfig) (*Coordinator, error) {
	switch {
	case cfg.Name == "" || len(cfg.Name) > maxShareName || !isText(cfg.Name) || !isText(cfg.Member):
		return nil, fmt.Errorf("%w share name: want 1 to %d bytes of UTF-8 without NUL", ErrInvalid, maxShareName)
	case cfg.Numbers < 1 || cfg.Own == nil:
		return nil, fmt.Errorf("%w share: want at least one number, and Own", ErrInvalid)
	}
	return &Coordinator{cfg: cfg.withDefaults(), pool: pool, returned: make(chan *Assignment)}, nil
}

// Run joins, and calls Own, until ctx ends. Then it asks for all numbers, waits
// until Own has returned for each, and leaves. While PostgreSQL is away it goes
// on as long as the lease lasts, and then joins anew. Call it once.
//
// Errors: ErrExists if the other members share another number of things;
// ErrNotFound for a stream that was dropped; PostgreSQL's that will not go away.
func (s *Coordinator) Run(ctx context.Context) error {
	for failed := 0; ctx.Err() == nil; failed++ {
		l, err := s.join(ctx)
		if err == nil {
			failed = 0
			err = s.keep(ctx, l)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrNotOwner):
			s.cfg.Log.Warn("lease lost, joining anew", "share", s.cfg.Name, "member", s.cfg.Member)
			continue
		case !pg.Retryable(err):
			return fmt.Errorf("share %q: %w", s.cfg.Name, explainShare(err))
		}
		s.cfg.Log.Warn("share not joined, trying again", "share", s.cfg.Name, "attempt", failed+1, "error", err)
		if pg.Backoff(ctx, failed) != nil {
			return nil
		}
	}
	return nil
}

func explainShare(err error) error {
	switch pg.Code(err) {
	case codeOptions:
		return fmt.Errorf("%w: %w", ErrExists, err)
	case codeForeignKey:
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}
