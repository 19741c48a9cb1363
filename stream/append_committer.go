package stream

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
)

// Bounds of what the Appenders of a pool have in memory for their next round; whoever
// adds waits beyond.
const (
	openRows  = 50_000
	openBytes = 8 << 20
)

// Bounds of one transaction of a round: what its streams wait for each other, what is
// sent once more if one of them is refused, and locks, of which PostgreSQL has room for
// 6,400 by default: one for a shared stream, and some ten for one with tables of its own,
// 27 with the first request of a client to that.
const (
	togetherLocks = 1000
	ownLocks      = 10
	togetherRows  = 4096
	togetherBytes = 1 << 20
)

// togetherTimeout bounds one attempt to commit; what takes longer is written by each
// Appender itself, which gives large batches more time.
const togetherTimeout = 10 * time.Second

// committer commits what the Appenders of a pool have gathered, all in one transaction:
// group commit, for the callers of many streams as for those of one. It tries once. A
// stream whose lock is taken, or a batch that is refused, goes back to its Appender,
// which writes it alone and deals with that, and holds up nobody else.
//
// Appenders with large batches, and one that is the only one with anything to write,
// write alone as well: COPY, and statements that are prepared, are faster.
type committer struct {
	pool *pgxpool.Pool
	on   pg.Borrower
	log  *slog.Logger // of an Appender in the round

	// Rounds are transactions of one writer, as batches are.
	id, number int64
	marks      batchGC
	params     togetherParams

	keeper  requestKeeper // of the records of streams that share tables
	helpers sync.WaitGroup

	group *pg.Group[round]
	life  context.Context // ends when the last Appender has left
	end   context.CancelFunc
	ended chan struct{}

	// Guarded by the group's lock, as what its Appenders say.
	alone   int  // Appenders that have something to write alone
	writing bool // a round

	slowUntil [maxSlow]time.Time // of the streams that were slow last, as a ring
	slows     int                // where the next goes

	withdrawnRows, withdrawnBytes int // from the open round, by one call of do
}

// round is what gathers, of several Appenders, until the round before is committed.
type round struct {
	entries []*entry
}

// entry is what a round has of one Appender.
type entry struct {
	of    *Appender
	in    *round
	rows  rowBatch
	calls []call
	bytes int  // as counted by the group
	order int  // in which it came, among those of its transaction
	taken bool // its Appender has taken the calls back
}

// entryMemory are entries for the next rounds, and keepEntry is up to how many bytes the
// memory of one's rows is kept.
var entryMemory = sync.Pool{New: func() any { return new(entry) }}

const keepEntry = 4 << 10

var committers pg.PerPool[*committer]

// joinCommitter returns the committer of the pool, to be left in the end.
func joinCommitter(pool *pgxpool.Pool) *committer {
	return committers.Join(pool, func() *committer {
		c := &committer{pool: pool, on: pg.NewBorrower(pool), id: rand.Int64(), ended: make(chan struct{})}
		c.group = pg.NewGroup(&round{}, &round{}, openRows, openBytes)
		c.group.Admit(func(ctx context.Context) { c.on.Hold(ctx) }, c.on.Release) // its error is attempt's, too
		c.life, c.end = context.WithCancel(context.Background())
		go c.run()
		return c
	})
}

// leave is for an Appender of which no round has anything.
func (c *committer) leave() {
	if committers.Leave(c.pool) {
		c.end()
		<-c.ended
		c.helpers.Wait()
	}
}

func (c *committer) run() {
	defer close(c.ended)
	defer c.on.Close()
	c.group.Run(c.life, c.life, c.commit)
}

// do runs under the lock that guards what c and its Appenders know of each other.
func (c *committer) do(do func(open *round)) {
	c.group.Do(func(open *round) (rows, bytes int) {
		c.withdrawnRows, c.withdrawnBytes = 0, 0
		do(open)
		return c.withdrawnRows, c.withdrawnBytes
	})
}

// add has the messages of a call written with the next round. It returns false if the
// Appender is to write them alone.
func (c *committer) add(ctx context.Context, a *Appender, msgs []Message, bytes int, one call) (bool, error) {
	added, err := c.group.AddIf(ctx, a.work.Done(), len(msgs), bytes, func(open *round) bool {
		if a.alone.Load() {
			return false
		}
		e := a.openEntry(open)
		if c.quiet(open) || a.work.Err() != nil || a.isSlow() || a.stream.storage.outgrown() || e != nil && !e.fits(len(msgs), bytes, one.request) || !a.small(len(msgs), bytes) {
			c.setAlone(a)
			return false
		}
		if e == nil {
			e = c.newEntry(a, open)
		}
		for i := range msgs {
			e.rows.appendMessage(&msgs[i])
		}
		e.calls = append(e.calls, one)
		e.bytes += bytes
		return true
	})
	if !added && a.work.Err() != nil {
		c.do(func(*round) { c.setAlone(a) })
	}
	return added, err
}

// quiet reports whether nobody else has anything to write.
func (c *committer) quiet(open *round) bool {
	return len(open.entries) == 0 && !c.writing && c.alone == 0
}

// setAlone has the Appender write alone. The caller holds the lock.
func (c *committer) setAlone(a *Appender) {
	if a.alone.Load() {
		return
	}
	if a.solo.Load() == nil && !a.ending {
		s := newSolo(a)
		a.solo.Store(s)
		s.start()
	}
	a.alone.Store(true)
	c.alone++
}

func (c *committer) newEntry(a *Appender, open *round) *entry {
	e := entryMemory.Get().(*entry)
	e.of, e.in, e.calls = a, open, *callMemory.Get().(*[]call)
	open.entries = append(open.entries, e)
	a.entries = append(a.entries, e)
	return e
}

// fits reports whether the batch stays small with another call, and has no request
// twice.
func (e *entry) fits(rows, bytes int, p RequestID) bool {
	if p.Client != "" && slices.ContainsFunc(e.calls, func(c call) bool { return c.request == p }) {
		return false
	}
	return e.of.small(e.rows.Len()+rows, e.rows.Bytes()+bytes)
}

// commit writes one round.
func (c *committer) commit(ctx context.Context, r *round) {
	defer c.on.Release()
	c.do(func(*round) {
		c.writing = true
		for _, e := range r.entries {
			e.in = nil
			if !e.taken {
				e.rows.requests = requestsOf(e.rows.requests[:0], e.calls)
			}
		}
	})
	for rest := r.entries; len(rest) > 0; {
		n := transaction(rest)
		for i, e := range rest[:n] {
			e.order = i
		}
		// In the order of ids, as move_outbox takes locks. Nobody waits for one here.
		slices.SortFunc(rest[:n], func(a, b *entry) int { return cmp.Compare(a.of.stream.id, b.of.stream.id) })
		c.write(ctx, rest[:n])
		rest = rest[n:]
	}
	clear(r.entries)
	r.entries = r.entries[:0]
	c.do(func(*round) { c.writing = false })
}

// transaction returns how many of the entries go into one transaction.
func transaction(entries []*entry) (n int) {
	rows, bytes, locks := 0, 0, 0
	for n < len(entries) {
		rows += entries[n].rows.Len()
		bytes += entries[n].rows.Bytes()
		locks += entries[n].of.stream.storage.locks()
		if n > 0 && (rows > togetherRows || bytes > togetherBytes || locks > togetherLocks) {
			break
		}
		n++
	}
	return n
}

// write stores the batches of the entries, in one transaction, or hands them back to
// their Appenders. While PostgreSQL is away it tries again, until none is left.
func (c *committer) write(ctx context.Context, entries []*entry) {
	for failed := 0; ; failed++ {
		if entries = c.remaining(entries); len(entries) == 0 {
			return
		}
		c.log = entries[0].of.cfg.Writer.Log
		got, how, err := c.attempt(ctx, entries)
		if how == lost {
			got, how = c.settle(ctx, entries)
		}
		switch {
		case how == committed:
			c.finish(entries, got)
			return
		case ctx.Err() != nil:
			return // all were taken back
		case how == refused && pg.Code(err) != pg.CodeQueryCanceled && len(entries) > 1:
			half := len(entries) / 2 // those who share a transaction do not know each other
			c.write(ctx, entries[:half])
			c.write(ctx, entries[half:])
			return
		case how == unknown:
			c.giveUp(entries)
			return
		case how == refused, how == lost && failed > 0, how == unsent && !pg.Retryable(err):
			c.finish(entries, stored{firsts: make([]int64, len(entries))})
			return
		}
		c.log.Warn("batches not written, trying again", "streams", len(entries), "attempt", failed+1, "error", err)
		c.on.Release()
		if pg.Backoff(ctx, failed) != nil {
			return
		}
	}
}

// remaining returns the entries that were not taken back.
func (c *committer) remaining(entries []*entry) (left []*entry) {
	c.do(func(*round) {
		left = slices.DeleteFunc(slices.Clone(entries), func(e *entry) bool { return e.taken })
	})
	return left
}

// settle finds out what became of a transaction whose answer was lost: it was
// committed, with these firsts, or is lost for good. If PostgreSQL refuses to tell, that
// is unknown.
func (c *committer) settle(ctx context.Context, entries []*entry) (got stored, how outcome) {
	c.marks.doubt(c.number)
	for failed := 0; ; failed++ {
		err := step(ctx, c.pool, settleWait, &got.firsts, settleTogetherSQL, c.id, c.number)
		switch {
		case err == nil && got.firsts != nil:
			return got, committed
		case err == nil:
			return got, lost
		case !pg.Retryable(err):
			c.log.Error("lost answer not looked up", "streams", len(entries), "error", err)
			return got, unknown
		}
		c.log.Warn("lost answer not looked up, trying again", "streams", len(entries), "attempt", failed+1, "error", err)
		if pg.Code(err) == pg.CodeLockNotAvailable {
			c.endFrozen(ctx, entries)
		}
		if pg.Backoff(ctx, failed) != nil {
			return got, unknown
		}
	}
}

// settleWait bounds one wait for a transaction that is still under way.
const settleWait = time.Second

// endFrozen ends the sessions that keep the locks of the streams, if their clients have
// gone away without a word.
func (c *committer) endFrozen(ctx context.Context, entries []*entry) {
	for _, e := range entries {
		cfg := e.of.cfg.Writer
		endFrozen(ctx, c.pool, e.of.stream.id, cfg.LockTimeout, cfg.Log)
	}
}

// forget has old marks of batches deleted, once a round, in the session that is held.
func (c *committer) forget(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, togetherTimeout)
	defer cancel()
	if err := c.marks.forget(ctx, c.on.Session(), c.id, c.number); err != nil {
		c.log.Warn("old batch marks not deleted", "error", err)
	}
}
