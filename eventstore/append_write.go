package eventstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidewire/tidewire/internal/pg"
)

// write stores the batch and answers its calls. It retries while PostgreSQL is
// unavailable. The batch's number is an idempotency key: the batch is stored once,
// whatever the number of attempts.
func (w *writer) write(ctx context.Context, b batch) {
	defer w.on.Release()
	w.nextNumber()
	unknown, late := false, 0 // an attempt may have been committed; number of attempts that took too long
	lock := pg.LockWait{Bound: w.store.cfg.LockTimeout}
	for failed := 0; ; {
		if err := lock.Hold(ctx, &w.on); err != nil {
			w.fail(b, fmt.Errorf("%w: %w", errAbandoned, err))
			return
		}
		r, sent, err := w.attempt(ctx, &b, lock.Next(), unknown)
		unknown = unknown || sent && !definite(err)
		w.doubted = w.doubted || unknown && err != nil
		switch {
		case err == nil:
			w.answer(b, r)
			w.forget()
			return
		case pg.Code(err) == codeOtherHistory:
			w.store.cfg.Log.Warn("connected to a different or restored database: cached state discarded", "store", w.store.name)
			w.distrust(b)
			continue
		case ctx.Err() != nil:
			w.fail(b, fmt.Errorf("%w: %w", errAbandoned, ctx.Err()))
			return
		case pg.Code(err) == pg.CodeUniqueViolation || !pg.Retryable(err):
			w.blame(ctx, b, err, unknown)
			return
		case sent && overdue(err):
			if late++; w.divide(ctx, b, late) {
				return
			}
		}
		w.on.Release()
		if lock.GoesOn(err) {
			continue
		}
		w.store.cfg.Log.Warn("writing a batch of events failed, retrying", "store", w.store.name, "attempt", failed+1, "error", err)
		if pg.Code(err) == pg.CodeLockNotAvailable {
			w.freeLock(ctx)
		}
		if err := pg.Backoff(ctx, failed); err != nil {
			w.fail(b, fmt.Errorf("%w: %w", errAbandoned, err))
			return
		}
		failed++
	}
}

// distrust discards all results from a history that PostgreSQL does not have any more.
func (w *writer) distrust(b batch) {
	w.tail.drop()
	for _, c := range append(slices.Clip(b.calls), b.checked...) {
		c.slowBasis = basis{}
	}
}

// definite reports whether an attempt that ended with err was certainly not
// committed: PostgreSQL reported an error, and neither the server nor the connection
// ended with it.
func definite(err error) bool {
	code := pg.Code(err)
	return code != "" && !strings.HasPrefix(code, "57P") && !strings.HasPrefix(code, "08") && code != "40003"
}

// overdue reports whether err is a time-out.
func overdue(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || pgconn.Timeout(err) || pg.Code(err) == pg.CodeQueryCanceled
}

// maxLate is the number of time-outs after which a single append fails.
const maxLate = 3

// divide handles a batch that took too long. It writes the calls in two halves; a
// single call fails after maxLate attempts. divide reports whether it did so. First it
// settles the batch, so that no attempt can commit any more. If PostgreSQL does not
// answer then, the size of the batch was not the cause, and divide does nothing.
func (w *writer) divide(ctx context.Context, b batch, late int) bool {
	if len(b.calls) == 1 && late < maxLate {
		return false
	}
	r, err := w.settle(ctx)
	switch {
	case err != nil:
		return false
	case r.again:
		w.answer(b, r)
	case len(b.calls) == 1:
		w.fail(b, w.store.explain("append to", fmt.Errorf("%w: %d attempts of %v", ErrTooSlow, late, w.store.cfg.Timeout)))
	default:
		w.store.cfg.Log.Warn("writing a batch of events timed out, retrying with half of its calls", "store", w.store.name, "calls", len(b.calls))
		w.halve(ctx, b)
	}
	return true
}

func (w *writer) halve(ctx context.Context, b batch) {
	half := len(b.calls) / 2
	w.rewrite(ctx, b.calls[:half])
	w.rewrite(ctx, b.calls[half:])
}

// blame handles an error that some of the calls have caused, because the calls of a
// batch come from independent callers. It answers the calls whose ids or requests are
// stored, and finds calls that PostgreSQL does not accept by bisection. The parts are
// separate batches with new numbers. This is safe: if an attempt with the whole batch
// is still under way, it fails with the same error. unknown means that an earlier
// attempt may have been committed, for which err proves nothing.
func (w *writer) blame(ctx context.Context, b batch, err error, unknown bool) {
	without := w.withoutStored
	if w.store.isRecorded(err) {
		without = w.withoutRecorded
	}
	if w.store.isRecorded(err) || w.store.isIDViolation(err) {
		b, err = without(ctx, b, err)
		switch {
		case err == nil:
			w.rewrite(ctx, b.calls)
			return
		case ctx.Err() != nil: // it is still unknown what is stored
			w.fail(b, fmt.Errorf("%w: %w", errAbandoned, err))
			return
		}
	}
	if len(b.calls) > 1 && (blamesRows(err) || tooLarge(err)) {
		w.halve(ctx, b)
		return
	}
	if unknown && !blamesRows(err) && !tooLarge(err) {
		err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	err = w.store.explain("append to", err)
	w.store.cfg.Log.Error("PostgreSQL rejected a batch of events", "store", w.store.name, "calls", len(b.calls), "error", err)
	w.fail(b, err)
}

// rewrite writes some calls of a batch as new batches.
func (w *writer) rewrite(ctx context.Context, calls []*call) {
	for pending := calls; len(pending) > 0; {
		var b batch
		b, pending = w.assemble(ctx, pending)
		if len(b.calls) > 0 {
			w.write(ctx, b)
		}
	}
}

// withoutStored answers the calls whose ids are stored, and returns the batch
// without them. If there are no such calls it returns err.
func (w *writer) withoutStored(ctx context.Context, b batch, err error) (batch, error) {
	var ids []string
	for _, c := range b.calls {
		ids = append(ids, c.eventID...)
	}
	var stored map[string]int64
	lookErr := w.look(ctx, func() (err error) {
		stored, err = w.store.lookUp(ctx, w.on.Session().Conn(), ids)
		return err
	})
	if lookErr != nil {
		return b, lookErr
	}
	kept := make([]*call, 0, len(b.calls))
	for _, c := range b.calls {
		if slices.ContainsFunc(c.eventID, func(id string) bool { return stored[id] > 0 }) {
			c.answer(answer{err: errStoredID})
		} else {
			kept = append(kept, c)
		}
	}
	if len(kept) < len(b.calls) {
		err = nil
	}
	b.calls = kept
	return b, err
}

// look repeats a query until PostgreSQL answers, because the calls of the batch still
// wait for theirs.
func (w *writer) look(ctx context.Context, ask func() error) error {
	for failed := 0; ; failed++ {
		err := w.on.Hold(ctx)
		if err != nil {
			return err
		}
		if err = w.connect(ctx); err == nil {
			if err = ask(); err == nil {
				return nil
			}
			w.lost()
		}
		if !pg.Retryable(err) {
			return err
		}
		w.on.Release()
		if err := pg.Backoff(ctx, failed); err != nil {
			return err
		}
	}
}

func (s *Store) isIDViolation(err error) bool {
	return pg.Code(err) == pg.CodeUniqueViolation && pg.Constraint(err) == fmt.Sprintf("events_%d_id_key", s.id)
}

// blamesRows reports whether err may be due to some events of a batch: data
// exceptions, constraints, limits, and what triggers raise.
// https://www.postgresql.org/docs/current/errcodes-appendix.html
func blamesRows(err error) bool {
	code := pg.Code(err)
	return len(code) == 5 && slices.Contains([]string{"22", "23", "54", "P0"}, code[:2])
}

// tooLarge reports whether err is that of a message that is too large for PostgreSQL's
// protocol: nothing was sent. pgx has no sentinel for it.
func tooLarge(err error) bool {
	return pg.Code(err) == "" && strings.Contains(err.Error(), "message body too large")
}

// fail answers the calls of a batch that was not written.
func (w *writer) fail(b batch, err error) {
	if errors.Is(err, errAbandoned) {
		w.store.gaveUp.Store(true)
	}
	for _, c := range b.calls {
		c.answer(answer{err: err})
	}
	w.tail.recycle(b.segment)
}
