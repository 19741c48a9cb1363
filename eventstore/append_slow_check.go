package eventstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
)

// errUndecided is what a call is answered whose condition is too expensive to
// be looked up under the lock, or together with those of others.
var errUndecided = errors.New("eventstore: undecided")

// checkApart looks apart, without the lock and in the caller's goroutine, for what
// the call must not find. It returns the conflict or, if there is none, has the
// call hold up to where it has looked.
func (s *Store) checkApart(ctx context.Context, c *call) error {
	if err := pg.Acquire(ctx, s.apart); err != nil {
		return err
	}
	defer func() { <-s.apart }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(ErrClosed) })()
	for failed := 0; ; failed++ {
		found, err := s.checkAlone(ctx, s.pool, c)
		switch {
		case err == nil:
			return c.decided(found)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, ErrTooExpensive) || !pg.Retryable(err):
			return s.explain("append to", err)
		}
		if err := pg.Backoff(ctx, failed); err != nil {
			return context.Cause(ctx)
		}
	}
}

// decided takes what was found for the call alone.
func (c *call) decided(found conflicts) error {
	if len(found.calls) > 0 {
		return &ConflictError{Position: found.positions[0], Type: found.types[0]}
	}
	c.apart = found.basis
	return nil
}

// checkAlone looks for what one call must not find, in a transaction, or a
// savepoint, that is rolled back: PostgreSQL gives up after CheckTimeout.
func (s *Store) checkAlone(ctx context.Context, db interface {
	Begin(context.Context) (pgx.Tx, error)
}, c *call) (found conflicts, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CheckTimeout+s.cfg.Timeout)
	defer cancel()
	tx, err := db.Begin(ctx)
	if err != nil {
		return found, err
	}
	defer tx.Rollback(ctx)
	bound := strconv.FormatInt(max(1, s.cfg.CheckTimeout.Milliseconds()), 10)
	if _, err := tx.Exec(ctx, statementTimeoutSQL, bound); err != nil {
		return found, err
	}
	statement, err := tx.Conn().Prepare(ctx, s.sql.conflicts, s.sql.conflicts)
	if err != nil {
		return found, err
	}
	var p params
	p.probes([]*call{c}, func(c *call) int64 { return max(c.after, c.apart.position) })
	values := append(p.values(), nil) // no budget
	found, err = readConflicts(tx.Conn().PgConn().ExecPrepared(ctx, statement.Name, values, binaryFormat, binaryFormat))
	if pg.Code(err) == pg.CodeQueryCanceled {
		err = fmt.Errorf("%w: a condition was looked for longer than %v: %w", ErrTooExpensive, s.cfg.CheckTimeout, err)
	}
	return found, err
}

// justNow bounds the wait for a connection by who can do without.
const justNow = time.Millisecond
