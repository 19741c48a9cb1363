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

// ErrNotOwner: only the owner of a partition may do this, and the caller is not, or
// no longer, its owner.
var ErrNotOwner = errors.New("stream: no longer the owner")

// maxShareName is the longest name of a share in bytes.
const maxShareName = 1024

// CoordinatorConfig configures a Coordinator.
type CoordinatorConfig struct {
	// Name of the share, 1 to 1,024 bytes of valid UTF-8 without NUL. All members
	// use the same Name and the same Numbers.
	Name string
	// Numbers is the number of things to assign: 0 to Numbers - 1. At least 1.
	Numbers int
	// Member is the name of this member, for display. Defaults to a random name.
	Member string
	// Lease is how long a member without heartbeats keeps its numbers, by
	// PostgreSQL's clock. The member itself stops after four fifths of this time.
	// Defaults to 15 s.
	Lease time.Duration
	// Heartbeat is the interval of a member's heartbeats, plus or minus a tenth. A
	// heartbeat is one query, which also returns changes of the assignment. While
	// changes are under way the interval is a quarter of this. At most a quarter of
	// the Lease. Defaults to 3 s.
	Heartbeat time.Duration
	// Own is called for each number that this member comes to own, in a separate
	// goroutine. When it returns, the number is released. It should return soon
	// after Assignment.Revoked is closed. ctx ends, with ErrNotOwner as its cause,
	// when the lease is lost: from then on Own must not act for the number any
	// more. The member joins again only when all calls have returned.
	Own func(ctx context.Context, o *Assignment)
	// Log receives a line when the lease is lost, or a heartbeat fails. Defaults
	// to none.
	Log *slog.Logger
	// Stream, if not nil, is the stream to which the share belongs: when it is dropped,
	// the share is dropped too, and Run returns ErrNotFound.
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

// Coordinator is one member of a group that divides the numbers 0 to Numbers - 1
// among its members, with leases and fencing tokens. Each number has one owner at a
// time, and the members own equally many, plus or minus one. When a member joins,
// the others finish their work on some of their numbers and release them. The
// numbers of a dead member are free when its lease has expired.
//
// The last member that leaves deletes the share's rows. If it was killed, they stay
// until a member joins that name again, or until CoordinatorConfig.Stream is
// dropped.
//
// Each heartbeat takes a connection of the pool and writes one row: if the pool has
// no free connection for longer than the lease, the lease is lost.
type Coordinator struct {
	cfg  CoordinatorConfig
	pool *pgxpool.Pool

	returned chan *Assignment // assignments whose Own has returned
}

// Assignment is the ownership of one number by this member.
type Assignment struct {
	// Number is the number that is owned.
	Number int
	// Token is the fencing token of this ownership; it is never reused. A READ
	// COMMITTED transaction that calls tidewire.hold_ownerships(tokens) writes its
	// rows while the tokens returned by that function belong to owners.
	Token int64

	lease  *lease
	asked  chan struct{}
	wanted bool // the number is wanted back: asked is closed; used only by the loop of Run
}

// Revoked returns a channel that is closed when the number has to be released:
// finish the work, and return from Own.
func (o *Assignment) Revoked() <-chan struct{} { return o.asked }

// Valid reports whether the number is still owned. In a process that was stopped
// for a while, it notices the loss before ctx ends. It uses the monotonic clock,
// which stands still while the machine is suspended or a virtual machine is paused:
// after that it may return true until the next heartbeat, and only writes under the
// Token are rejected.
func (o *Assignment) Valid() bool { return o.lease.lasts() }

// NewCoordinator returns a member that does nothing until Run. Errors: ErrInvalid.
func NewCoordinator(pool *pgxpool.Pool, cfg CoordinatorConfig) (*Coordinator, error) {
	switch {
	case cfg.Name == "" || len(cfg.Name) > maxShareName || !isText(cfg.Name) || !isText(cfg.Member):
		return nil, fmt.Errorf("%w share name: want 1 to %d bytes of UTF-8 without NUL", ErrInvalid, maxShareName)
	case cfg.Numbers < 1 || cfg.Own == nil:
		return nil, fmt.Errorf("%w share: want at least one number, and Own", ErrInvalid)
	}
	return &Coordinator{cfg: cfg.withDefaults(), pool: pool, returned: make(chan *Assignment)}, nil
}

// Run joins, and calls Own for its numbers, until ctx ends. Then it revokes all
// numbers, waits until Own has returned for each, and leaves. While PostgreSQL is
// unavailable it continues until the lease ends, and then joins again. Call it
// once.
//
// Errors: ErrExists if the other members use a different Numbers; ErrNotFound for a
// stream that was dropped; permanent errors of PostgreSQL.
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
			s.cfg.Log.Warn("lease lost, joining again", "share", s.cfg.Name, "member", s.cfg.Member)
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
