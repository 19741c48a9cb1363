package eventstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
)

// codeOtherHistory is what a store's append raises when the basis it was given
// is not how the history went.
const codeOtherHistory = "TW020"

// writer is the committer of a Store: one goroutine, with one connection.
type writer struct {
	store  *Store
	conn   *pgxpool.Conn
	id     int64 // with number, names each batch once and for all
	number int64
	tail   tail
	params params
	marks  marks
	ids    map[string]struct{} // of the batch that is put together
}

// batch is what one transaction writes and checks.
type batch struct {
	calls   []*call // with events; the first of what a transaction knows as calls
	checked []*call // only looked at: each waits for the end of one of the calls
	segment *segment
}

func newWriter(s *Store) *writer {
	return &writer{
		store: s, id: rand.Int64(), ids: make(map[string]struct{}),
		tail: tail{maxEvents: s.cfg.TailEvents, epoch: 1},
	}
}

// run commits what arrives until there will be no more.
func (w *writer) run() {
	defer w.close()
	idle := time.NewTimer(w.store.cfg.IdleTimeout)
	defer idle.Stop()
	for {
		select {
		case next, ok := <-w.store.batch:
			if !ok {
				return
			}
			w.store.committing.Store(true)
			w.commit(w.store.work, next)
			w.store.committing.Store(false)
			idle.Reset(w.store.cfg.IdleTimeout)
		case <-idle.C:
			w.close()
		}
	}
}

// commit answers all calls of the batch. A call that an earlier one may decide
// waits for the next transaction, which also takes what arrived meanwhile.
func (w *writer) commit(ctx context.Context, next work) {
	pending := w.receive(nil, next)
	for len(pending) > 0 {
		b, waiting := w.assemble(pending)
		if len(b.calls) > 0 {
			w.write(ctx, b)
		} else {
			w.tail.recycle(b.segment)
		}
		w.store.tailStart.Store(w.tail.start)
		clear(pending)
		pending = append(pending[:0], waiting...)
		if len(pending) > 0 && len(pending) < w.store.cfg.MaxBatch/2 {
			select {
			case more, ok := <-w.store.batch:
				if ok {
					pending = w.receive(pending, more)
				}
			default:
			}
		}
	}
	select {
	case w.store.spare <- pending[:0]:
	default:
	}
}

// receive takes a batch with what the checker has found out about it.
func (w *writer) receive(pending []*call, next work) []*call {
	if w.tail.adopt(next.checked) {
		for _, c := range next.calls {
			if c.held > 0 && c.epoch == 0 {
				c.hold(c.held, w.tail.epoch)
			}
		}
	}
	if pending == nil {
		return next.calls
	}
	return append(pending, next.calls...)
}

// assemble refuses what memory can refuse, and puts the next transaction
// together. Whatever might conflict with an earlier call of it has to wait: so
// does the answer to it, until that call's events are committed or not. The
// first call never waits.
func (w *writer) assemble(pending []*call) (b batch, waiting []*call) {
	b.segment = w.tail.segment()
	clear(w.ids)
	bytes := 0
	for _, c := range pending {
		if c.conflict != nil {
			w.refuse(c, c.conflict)
			continue
		}
		if c.conditional {
			if conflict := w.tail.check(c); conflict != nil {
				w.store.counts.decidedInMemory.Add(1)
				w.refuse(c, conflict)
				continue
			}
		}
		switch {
		case c.conditional && b.segment.facts.find(&c.query, 0) >= 0:
			b.checked = append(b.checked, c)
			waiting = append(waiting, c)
		case bytes > 0 && bytes+c.bytes > MaxAppend, w.sharesID(c):
			waiting = append(waiting, c)
		default:
			bytes += c.bytes
			b.calls = append(b.calls, c)
			b.segment.facts.join(&c.facts)
			for _, id := range c.eventID {
				w.ids[id] = struct{}{}
			}
		}
	}
	return b, waiting
}

// sharesID reports whether an event of the batch has one of the call's ids.
func (w *writer) sharesID(c *call) bool {
	return slices.ContainsFunc(c.eventID, func(id string) bool { _, ok := w.ids[id]; return ok })
}

func (w *writer) refuse(c *call, err error) {
	w.store.counts.conflicts.Add(1)
	c.done <- answer{err: err}
}

// write stores the batch and answers its calls. It tries again while
// PostgreSQL is away; what it sends is stored once however often that takes.
func (w *writer) write(ctx context.Context, b batch) {
	w.number++
	for failed := 0; ; {
		r, err := w.attempt(ctx, &b)
		switch {
		case err == nil:
			w.answer(b, r)
			w.forget(ctx)
			return
		case pg.Code(err) == codeOtherHistory:
			w.store.cfg.Log.Warn("PostgreSQL has another history than before", "store", w.store.name)
			w.tail.drop()
			continue
		case ctx.Err() != nil:
			w.fail(b, fmt.Errorf("%w: %w", ErrAbandoned, ctx.Err()))
			return
		case pg.Code(err) == pg.CodeUniqueViolation || !pg.Retryable(err):
			w.blame(ctx, b, err)
			return
		}
		w.store.cfg.Log.Warn("events not written, trying again", "store", w.store.name, "attempt", failed+1, "error", err)
		if pg.Code(err) == pg.CodeLockNotAvailable {
			w.endFrozen(ctx)
		}
		if err := pg.Backoff(ctx, failed); err != nil {
			w.fail(b, fmt.Errorf("%w: %w", ErrAbandoned, err))
			return
		}
		failed++
	}
}

// blame handles an error that some of the calls are to blame for: those whose
// ids are stored, or else, by halves, those that PostgreSQL will not take.
// Calls that share a batch do not know each other. The parts are batches of
// their own, under numbers of their own: an attempt with all of them that is
// still under way somewhere meets the same error.
func (w *writer) blame(ctx context.Context, b batch, err error) {
	if w.store.isIDViolation(err) {
		b, err = w.withoutStored(ctx, b, err)
		if err == nil {
			w.rewrite(ctx, b.calls)
			return
		}
	}
	if len(b.calls) > 1 && blamesRows(err) {
		half := len(b.calls) / 2
		w.rewrite(ctx, b.calls[:half])
		w.rewrite(ctx, b.calls[half:])
		return
	}
	err = w.store.explain("append to", err)
	w.store.cfg.Log.Error("events refused", "store", w.store.name, "calls", len(b.calls), "error", err)
	w.fail(b, err)
}

// rewrite writes some calls of a batch again.
func (w *writer) rewrite(ctx context.Context, calls []*call) {
	for pending := calls; len(pending) > 0; {
		var b batch
		b, pending = w.assemble(pending)
		if len(b.calls) > 0 {
			w.write(ctx, b)
		}
	}
}

// withoutStored answers the calls whose ids are stored, and returns the batch
// without them. If there are none it returns err.
func (w *writer) withoutStored(ctx context.Context, b batch, err error) (batch, error) {
	var ids []string
	for _, c := range b.calls {
		ids = append(ids, c.eventID...)
	}
	stored, lookErr := w.storedIDs(ctx, ids)
	if lookErr != nil {
		return b, lookErr
	}
	kept := make([]*call, 0, len(b.calls))
	for _, c := range b.calls {
		if slices.ContainsFunc(c.eventID, func(id string) bool { return stored[id] > 0 }) {
			c.done <- answer{err: errStoredID}
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

// storedIDs waits for PostgreSQL: no call has an answer yet.
func (w *writer) storedIDs(ctx context.Context, ids []string) (map[string]int64, error) {
	for failed := 0; ; failed++ {
		err := w.connect(ctx)
		if err == nil {
			var stored map[string]int64
			if stored, err = w.store.lookUp(ctx, w.conn, ids); err == nil {
				return stored, nil
			}
			w.close()
		}
		if !pg.Retryable(err) {
			return nil, err
		}
		if err := pg.Backoff(ctx, failed); err != nil {
			return nil, err
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

// fail answers the calls of a batch that was not written.
func (w *writer) fail(b batch, err error) {
	for _, c := range b.calls {
		c.done <- answer{err: err}
	}
	w.tail.recycle(b.segment)
}

// answer tells the calls what became of them, and has the tail go on with the
// batch.
func (w *writer) answer(b batch, r result) {
	refused := make(map[int32]int, len(r.calls))
	for i, n := range r.calls {
		refused[n] = i
	}
	events, stored := 0, 0
	for n, c := range b.calls {
		first := events
		events += c.events
		if i, ok := refused[int32(n)]; ok {
			for e := range c.events {
				b.segment.facts.events[first+e].eventType = "" // a gap
			}
			w.refuse(c, &ConflictError{Position: r.positions[i], Type: r.types[i]})
			continue
		}
		stored += c.events
		for _, k := range c.facts.keys {
			w.store.popular.of(k.hash).Add(1)
		}
		c.done <- answer{first: r.head + int64(first) + 1}
	}
	for i, c := range b.checked {
		if found, ok := refused[int32(len(b.calls)+i)]; ok {
			c.conflict = &ConflictError{Position: r.positions[found], Type: r.types[found]}
		} else {
			c.hold(r.head, w.tail.epoch)
		}
	}
	if stored == 0 {
		w.tail.recycle(b.segment)
		return
	}
	w.store.counts.batches.Add(1)
	w.store.counts.events.Add(int64(stored))
	w.tail.extend(b.segment, r.head, basis{r.head + int64(events), w.id, w.number})
	w.store.hub.committed()
}

// close ends the writer's connection. It does not go back to the pool: it
// carries settings and statements of ours.
func (w *writer) close() {
	if w.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	w.conn.Conn().Close(ctx)
	w.conn.Release()
	w.conn = nil
}

// connect takes a connection and prepares it. What an earlier connection may
// have left under way can only commit before this one gets the lock, and then
// its mark is found. The tail is dropped: PostgreSQL may be another one.
func (w *writer) connect(ctx context.Context) error {
	if w.conn != nil {
		return nil
	}
	conn, err := w.store.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect writer: %w", err)
	}
	w.conn = conn
	w.tail.drop()
	if err := w.prepare(ctx); err != nil {
		w.close()
		return fmt.Errorf("prepare writer: %w", err)
	}
	return nil
}

func (w *writer) prepare(ctx context.Context) error {
	c := w.conn.Conn().PgConn()
	for name, sql := range map[string]string{stmtBegin: beginSQL, stmtAppend: w.store.sql.append, stmtCommit: commitSQL} {
		if _, err := c.Prepare(ctx, name, sql, nil); err != nil {
			return err
		}
	}
	_, err := w.conn.Exec(ctx, fmt.Sprintf(lockTimeoutSQLFmt, w.store.cfg.LockTimeout.Milliseconds()))
	return err
}

// recover brings the connection back to idle, or drops it, after an attempt
// that ended with err.
func (w *writer) recover(ctx context.Context, err error) error {
	if w.conn.Conn().IsClosed() {
		w.close()
		return err
	}
	if _, rollbackErr := w.conn.Exec(ctx, `ROLLBACK`); rollbackErr != nil {
		w.close()
		return rollbackErr // what err has to say, the next attempt finds again
	}
	return err
}

func (w *writer) endFrozen(ctx context.Context) {
	ended, err := pg.EndFrozen(ctx, w.store.pool, w.store.lock(), w.store.cfg.LockTimeout)
	if err != nil || ended > 0 {
		w.store.cfg.Log.Warn("event store's lock held too long", "ended", ended, "error", err)
	}
}
