package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tidewire/tidewire/internal/pg"
)

// commit writes the batch and hands its calls over to be answered.
func (a *Appender) commit(ctx context.Context, b *appendBatch) {
	a.awaitRounds(ctx)
	a.doHanded()
	calls := b.calls
	b.calls = nil
	select {
	case b.calls = <-a.spare:
	default:
	}
	page := a.writePage(ctx, &b.rows, calls)
	b.rows.Reset(2 * a.cfg.MaxBatchBytes)
	a.callBack(answer{calls, page})
}

// answer is what is called back, and for the Hub.
type answer struct {
	calls []call
	page  tailPage // the messages, or none: they are to be read
}

// writePage writes the rows of the calls, and returns what was written for those who
// follow the stream.
func (a *Appender) writePage(ctx context.Context, rows *Batch, calls []call) (p tailPage) {
	if a.write(ctx, rows, calls) {
		p = a.page(rows)
	}
	if a.writer.took >= slowAlone {
		a.slow()
	}
	return p
}

// page returns the messages of a batch that is stored, if somebody subscribes to the
// stream, and they can be told without PostgreSQL, which may spell headers in another way.
func (a *Appender) page(rows *Batch) (p tailPage) {
	if a.cfg.Hub == nil || rows.at.IsZero() || !a.cfg.Hub.subscribed(a.stream.id) {
		return p
	}
	p.messages = rows.messages()
	for i := range p.messages {
		p.bytes += p.messages[i].held()
	}
	return p
}

// write stores the rows of the calls and notes in each what became of it. If
// PostgreSQL refuses them for what is in them, the calls are halved until only
// those that it will not take are refused: callers that share a batch do not
// know each other. It reports whether all rows are stored, side by side.
func (a *Appender) write(ctx context.Context, rows *Batch, calls []call) (whole bool) {
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
		what := "messages refused"
		if errors.Is(err, ErrAbandoned) {
			what = "messages given up, which may be stored"
		}
		a.cfg.Writer.Log.Error(what, "stream", a.stream.name, "messages", rows.Len(), "error", err)
	}
	a.settle(calls, rows.First, err)
	return err == nil
}

// settle notes what became of calls whose rows are side by side.
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
	return !errors.Is(err, ErrAbandoned) && len(code) == 5 && slices.Contains([]string{"22", "23", "54", "P0"}, code[:2])
}

// explain turns the error of a batch into what the callers are told.
func (a *Appender) explain(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %w", ErrAbandoned, err)
	}
	if a.dropped(ctx) {
		err = ErrNotFound
	} else if errors.Is(err, ErrAbandoned) {
		return err
	}
	return a.stream.explain("append to", err)
}

// dropped asks whether the stream is gone. A writer that comes to the table while it
// is dropped gets an internal error of PostgreSQL, which does not say so.
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

// answer calls back.
func (c *call) answer() {
	switch {
	case c.doneAs == nil:
		c.done(c.first, c.err)
	case c.err != nil:
		c.doneAs(Stored{}, c.err)
	default:
		c.doneAs(Stored{First: c.first, Count: c.rows, Duplicate: c.repeated}, nil)
	}
}

// callBack has calls called back, after those before them, and waits while the calls of
// two batches are to be called back.
func (a *Appender) callBack(one answer) {
	a.answers <- one
	a.answerSoon()
}

// tryCallBack is callBack unless that has to wait.
func (a *Appender) tryCallBack(one answer) bool {
	select {
	case a.answers <- one:
		a.answerSoon()
		return true
	default:
		return false
	}
}

// answerSoon has a worker call back, if none does: an Appender has no goroutine for that, and
// no stack, while there is nothing to answer. Call it after sending.
func (a *Appender) answerSoon() {
	if a.answering.CompareAndSwap(false, true) {
		a.helpers.Add(1)
		a.committer.Load().workers.answer(a)
	}
}

// answer calls back, batch after batch, until there is none. One that is sent while it
// ends is found by itself, or by another one that its sender starts.
func (a *Appender) answer() {
	for {
		select {
		case one := <-a.answers:
			a.answerBatch(one)
		default:
			a.answering.Store(false)
			if len(a.answers) == 0 || !a.answering.CompareAndSwap(false, true) {
				return
			}
		}
	}
}

func (a *Appender) answerBatch(one answer) {
	calls, last := one.calls, int64(0)
	for i := range calls {
		c := &calls[i]
		c.answer()
		if c.err == nil && !c.repeated {
			last = c.first + int64(c.rows) - 1
		}
	}
	if last > 0 {
		if a.cfg.Hub != nil {
			a.cfg.Hub.committed(a.stream, one.page)
		}
		a.cfg.OnCommit(last)
	}
	clear(calls) // the callbacks are not ours to keep
	select {
	case a.spare <- calls[:0]:
	default:
	}
}
