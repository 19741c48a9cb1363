package eventstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
)

// codeOtherHistory is the SQLSTATE that a store's append function raises if a basis that it got is not
// part of the history.
const codeOtherHistory = "TW020"

// writer is the committer of a Store: one goroutine. For each batch it borrows one of
// the sessions that all writers of the pool share.
type writer struct {
	store *Store
	on    pg.Borrower

	id     int64 // random; with number the unique name of a batch
	number int64
	// doubted means that an attempt since the id was chosen got no answer: see nextNumber.
	doubted bool
	tail    tail
	params  params
	marks   batchGC
	used    time.Time           // time of PostgreSQL's last answer; zero after a lost connection
	usedOn  *pgx.Conn           // the connection of the last batch
	ids     map[string]struct{} // event ids in the batch that assemble builds
	asked   map[RequestID]struct{}
}

// batch is what one transaction writes and checks.
type batch struct {
	calls   []*call // with their events; they come first in the calls of the transaction
	checked []*call // conditions only: each waits for the outcome of one of the calls
	segment *segment
}

func newWriter(s *Store) *writer {
	return &writer{
		store: s, on: pg.NewBorrower(s.pool), id: rand.Int64(), ids: make(map[string]struct{}), asked: make(map[RequestID]struct{}),
		tail: tail{maxEvents: s.cfg.TailEvents, epoch: 1},
	}
}

// run commits batches until the channel is closed.
func (w *writer) run() {
	defer w.on.Close()
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
			w.tail.drop()
			w.store.tailStart.Store(0)
		}
	}
}

// commit answers all calls of the batch. A call whose condition depends on an earlier
// call waits for the next transaction, which also includes calls that have arrived
// meanwhile.
func (w *writer) commit(ctx context.Context, next work) {
	defer w.on.Release()
	pending := w.receive(nil, next)
	for len(pending) > 0 {
		b, waiting := w.assemble(ctx, pending)
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

// receive adds a batch, with the checker's results, to the pending calls.
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

// assemble answers the calls that conflict with events in memory, and builds the next
// transaction. A call that may conflict with an earlier call of the transaction
// waits until that call's events are committed or not. The first call never waits.
func (w *writer) assemble(ctx context.Context, pending []*call) (b batch, waiting []*call) {
	b.segment = w.tail.segment()
	clear(w.ids)
	clear(w.asked)
	bytes, lookups := 0, 0
	for _, c := range pending {
		if c.left() {
			continue
		}
		if c.outcome != nil {
			c.answer(answer{err: c.outcome})
			continue
		}
		if c.conditional {
			if conflict := w.tail.check(c); conflict != nil && w.current(ctx) {
				w.store.counts.decidedInMemory.Add(1)
				w.store.counts.conflicts.Add(1)
				c.answer(answer{err: conflict})
				continue
			}
		}
		cost := w.lookups(c)
		switch {
		case cost > maxLookups && w.store.checksApart(c):
			c.answer(answer{err: w.store.refusal(0, "")})
			continue
		case cost > 0 && lookups > 0 && lookups+cost > maxLookups:
			waiting = append(waiting, c)
			continue
		case c.conditional && b.segment.facts.find(&c.query, 0) >= 0:
			b.checked = append(b.checked, c)
			waiting = append(waiting, c)
		case bytes > 0 && bytes+c.bytes > MaxAppend, w.sharesID(c), w.sharesRequest(c):
			waiting = append(waiting, c)
		default:
			bytes += c.bytes
			b.calls = append(b.calls, c)
			b.segment.facts.join(&c.facts)
			for _, id := range c.eventID {
				w.ids[id] = struct{}{}
			}
			if c.request.Client != "" {
				w.asked[c.request] = struct{}{}
			}
		}
		lookups += cost
	}
	return b, waiting
}

// lookups is how many index lookups PostgreSQL makes for the condition of the call, unless other processes write.
func (w *writer) lookups(c *call) int {
	if !c.conditional || w.tail.end.position > 0 && c.from(w.tail.epoch) >= w.tail.end.position {
		return 0
	}
	return c.probes.lookups()
}

// sharesID reports whether an event of the batch has one of the call's ids.
func (w *writer) sharesID(c *call) bool {
	return slices.ContainsFunc(c.eventID, func(id string) bool { _, ok := w.ids[id]; return ok })
}

// sharesRequest reports whether the batch has the call's request.
func (w *writer) sharesRequest(c *call) bool {
	_, ok := w.asked[c.request]
	return ok
}

// trusted is how long after PostgreSQL's last answer the tail is used without a check.
const trusted = time.Second

// current reports whether the tail is still part of PostgreSQL's history. After a
// while without an answer the server may not be the primary any more, or not exist: a
// rejection from memory would not notice that.
func (w *writer) current(ctx context.Context) bool {
	if time.Since(w.used) < trusted {
		return true
	}
	if w.on.Hold(ctx) != nil || w.connect(ctx) != nil {
		return false
	}
	if w.goesOn(ctx) {
		w.used = time.Now()
		return true
	}
	w.lost()
	return false
}

func (w *writer) goesOn(ctx context.Context) (there bool) {
	ctx, cancel := context.WithTimeout(ctx, w.store.cfg.CheckTimeout)
	defer cancel()
	on := w.tail.end
	err := w.on.Session().Conn().QueryRow(ctx, w.store.sql.basis, on.position, on.writer, on.number).Scan(&there)
	return err == nil && there
}

// answer sends each call its result, and adds the batch to the tail.
func (w *writer) answer(b batch, r result) {
	refused := make(map[int32]int, len(r.calls))
	for i, n := range r.calls {
		refused[n] = i
	}
	events, stored, last := 0, 0, 0
	for n, c := range b.calls {
		first := events
		events += c.events
		if i, ok := refused[int32(n)]; ok {
			for e := range c.events {
				b.segment.facts.events[first+e].eventType = "" // a gap
			}
			c.answer(answer{err: w.store.refusal(r.positions[i], r.types[i])})
			continue
		}
		if stored == 0 {
			w.store.counts.batches.Add(1)
		}
		stored, last = stored+c.events, events
		for _, k := range c.facts.keys {
			w.store.frequency.of(k.hash).Add(1)
		}
		w.store.counts.events.Add(int64(c.events)) // before the answer: a caller sees its own append in Stats
		c.answer(answer{first: r.head + int64(first) + 1})
	}
	for i, c := range b.checked {
		if found, ok := refused[int32(len(b.calls)+i)]; ok {
			c.outcome = w.store.refusal(r.positions[found], r.types[found])
		} else {
			c.hold(r.head, w.tail.epoch)
		}
	}
	if stored == 0 {
		w.tail.recycle(b.segment)
		return
	}
	w.tail.extend(b.segment, r.head, basis{r.head + int64(events), w.id, w.number})
	w.store.last.stored(r.head+int64(last), last)
	w.store.hub.committed()
}

// lost closes the connection of the borrowed session, and drops the tail: the next
// connection may lead to another history.
func (w *writer) lost() {
	w.on.Session().Close()
	w.forgetTail()
}

func (w *writer) forgetTail() {
	w.tail.drop()
	w.used = time.Time{}
}

// connect opens the connection of the borrowed session, and prepares the store's
// statements on it. A transaction that an earlier connection has left behind can only
// commit before this one gets the lock, and then this one finds its batch row.
func (w *writer) connect(ctx context.Context) error {
	s := w.on.Session()
	if err := s.Connect(ctx); err != nil {
		return err
	}
	if conn := s.Conn(); conn != w.usedOn {
		// The new connection may lead to another server, so held positions from before
		// are invalid: they name no batch that PostgreSQL could verify. The tail does,
		// and each batch has it verified.
		w.tail.epoch++
		w.usedOn = conn
	}
	sql := &w.store.sql
	err := s.Prepare(ctx, w.store.lock(), map[string]string{sql.stmtAppend: sql.append, sql.stmtSettle: sql.settle})
	if err != nil {
		w.lost()
		return fmt.Errorf("prepare writer: %w", err)
	}
	return nil
}

// recover brings the connection back to idle, or drops it, after an attempt
// that ended with err.
func (w *writer) recover(ctx context.Context, err error) error {
	err = w.on.Session().Recover(ctx, err)
	if w.on.Session().Conn() == nil {
		w.forgetTail()
	}
	return err
}

// freeLock ends a session of Tidewire that holds the store's lock and waits for a frozen client. Another session that holds it is
// named in the log: a transaction of the application may have appended in it, and hold the lock for any time.
func (w *writer) freeLock(ctx context.Context) {
	ended, err := pg.FreeLock(ctx, w.store.pool, w.store.lock(), w.store.cfg.LockTimeout)
	if err != nil || ended {
		w.store.cfg.Log.Warn("the event store's lock was held too long", "store", w.store.name, "ended", ended, "error", err)
	}
}
