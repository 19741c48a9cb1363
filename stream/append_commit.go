package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tidewire/tidewire/internal/pg"
)

// commit writes the batch and queues its calls to be answered.
func (a *Appender) commit(ctx context.Context, s *solo, b *appendBatch) {
	a.awaitRounds(ctx)
	a.doHanded()
	calls := b.calls
	b.calls = nil
	select {
	case b.calls = <-s.spare:
	default:
	}
	page := a.writePage(ctx, &b.rows, calls)
	b.rows.Reset(2 * a.cfg.MaxBatchBytes)
	a.callBack(answer{calls, page})
}

// writePage writes the rows of the calls, and returns the stored messages for the
// subscribers.
func (a *Appender) writePage(ctx context.Context, rows *rowBatch, calls []call) (p tailPage) {
	if a.write(ctx, rows, calls) {
		p = a.page(rows)
	}
	if a.writer.took >= slowAlone {
		c := a.committer.Load()
		c.do(func(*round) { c.noteSlow(a) })
	}
	return p
}

// page returns the messages of a stored batch for the Hub. It is empty if the stream has
// no subscribers, or if a message has headers: PostgreSQL may normalise their JSON, so
// they have to be read back.
func (a *Appender) page(rows *rowBatch) (p tailPage) {
	if a.cfg.Hub == nil || rows.at.IsZero() || !a.cfg.Hub.subscribed(a.stream.id) {
		return p
	}
	p.messages = rows.messages()
	for i := range p.messages {
		p.bytes += p.messages[i].held()
	}
	return p
}

// write stores the rows of the calls and notes the outcome in each call. If
// PostgreSQL rejects the batch because of its content, write bisects it until only
// the invalid calls are rejected: one caller's bad data must not fail the
// independent callers in its batch. It reports whether all rows are stored, at
// consecutive positions.
func (a *Appender) write(ctx context.Context, rows *rowBatch, calls []call) (whole bool) {
	rows.requests = requestsOf(rows.requests[:0], calls)
	err := a.writer.Write(ctx, rows)
	if repeated(err) {
		a.writeRest(ctx, rows, calls)
		return false
	}
	if err == nil && len(rows.requests) > 0 {
		a.noteRequests()
	}
	if err != nil && len(calls) > 1 && blamesRows(err) {
		half, n := len(calls)/2, 0
		for _, c := range calls[:half] {
			n += c.rows
		}
		head, tail := rows.split(n)
		a.write(ctx, head, calls[:half])
		a.write(ctx, tail, calls[half:])
		return false
	}
	if err != nil {
		err = a.explain(ctx, err)
		what := "messages rejected"
		if errors.Is(err, ErrOutcomeUnknown) {
			what = "messages abandoned, outcome unknown"
		}
		a.cfg.Writer.Log.Error(what, "stream", a.stream.name, "messages", rows.Len(), "error", err)
	}
	a.settle(calls, rows.First, err)
	return err == nil
}

// settle notes the outcome of calls whose rows are at consecutive positions.
func (a *Appender) settle(calls []call, first int64, err error) {
	for i := range calls {
		if calls[i].err = err; err == nil {
			calls[i].first = first
			first += int64(calls[i].rows)
		}
	}
}

// blamesRows reports whether err may be due to some rows of a batch: data
// exceptions, constraints, limits, and what triggers raise.
// https://www.postgresql.org/docs/current/errcodes-appendix.html
func blamesRows(err error) bool {
	code := pg.Code(err)
	return !errors.Is(err, ErrOutcomeUnknown) && len(code) == 5 && slices.Contains([]string{"22", "23", "54", "P0"}, code[:2])
}

// explain turns the error of a batch into the error for its callers.
func (a *Appender) explain(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	abandoned := errors.Is(err, ErrOutcomeUnknown)
	switch dropped := a.dropped(ctx); {
	case dropped && abandoned: // it may have been stored before
		return fmt.Errorf("append to stream %q: %w: %w", a.stream.name, ErrNotFound, err)
	case dropped:
		err = ErrNotFound
	case abandoned:
		return err
	}
	return a.stream.explain("append to", err)
}

// dropped asks PostgreSQL whether the stream is gone. A write to a table that is
// being dropped fails with an internal error of PostgreSQL that does not say so.
func (a *Appender) dropped(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Writer.Timeout)
	defer cancel()
	if err := a.writer.on.Hold(ctx); err != nil {
		return false
	}
	defer a.writer.on.Release()
	s := a.writer.on.Session()
	if err := s.Connect(ctx); err != nil {
		return false
	}
	var exists bool
	err := s.Conn().QueryRow(ctx, existsStreamSQL, a.stream.id).Scan(&exists)
	s.CloseIfLost()
	return err == nil && !exists
}
