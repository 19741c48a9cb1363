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

// errUndecided is the answer to a call whose condition is too expensive to check
// under the lock, or together with the conditions of other calls.
var errUndecided = errors.New("eventstore: undecided")

// checksApart reports whether a call with very many index lookups is to be checked alone first. A small pool may have no
// connection for that.
func (s *Store) checksApart(c *call) bool { return c.slowBasis.position == 0 && s.spareConns }

// checkSlow checks the condition of one call alone, without the lock and in the
// caller's goroutine. It returns the conflict. If there is none, it records in the
// call up to which position it has looked.
func (s *Store) checkSlow(ctx context.Context, c *call) error {
	if err := pg.Acquire(ctx, s.slowChecks); err != nil {
		return err
	}
	defer func() { <-s.slowChecks }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(ErrClosed) })()
	for failed := 0; ; failed++ {
		found, err := s.checkAlone(ctx, s.pool, c)
		switch {
		case err == nil && len(found.calls) > 0 && c.after > 0:
			if lost := s.continues(ctx, c.after, found.positions[0]); lost != nil {
				return s.explain("append to", lost)
			}
			return c.decided(found)
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

// decided records the result of a check of the call alone, or returns the conflict.
func (c *call) decided(found conflicts) error {
	if len(found.calls) > 0 {
		return &ConflictError{Position: found.positions[0], Type: found.types[0]}
	}
	c.slowBasis = found.basis
	return nil
}

// checkAlone looks for events that conflict with one call. It runs in a transaction
// or savepoint that is rolled back, with statement_timeout set to CheckTimeout.
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
	p.probes([]*call{c}, func(c *call) int64 { return max(c.after, c.slowBasis.position) })
	values := append(p.values(), nil) // no budget
	found, err = readConflicts(tx.Conn().PgConn().ExecPrepared(ctx, statement.Name, values, binaryFormat, binaryFormat))
	if pg.Code(err) == pg.CodeQueryCanceled {
		err = fmt.Errorf("%w: the check of a condition took longer than %v: %w", ErrTooExpensive, s.cfg.CheckTimeout, err)
	}
	return found, err
}

// aheadWait bounds the wait for a connection to check ahead: without one, the committer checks.
const aheadWait = time.Millisecond
