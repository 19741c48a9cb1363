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

// Bounds of what the Appenders of a pool hold in memory for their next round; beyond
// them Submit waits.
const (
	openRows  = 50_000
	openBytes = 8 << 20
)

// Bounds of one transaction of a round. They limit how long its streams wait for each
// other, how much is sent again if one of them is rejected, and the locks, of which
// PostgreSQL has room for 6,400 by default: one for a shared stream, some ten for a
// stream with its own tables, and 27 there with the first request of a client.
const (
	togetherLocks = 1000
	ownLocks      = 10
	togetherRows  = 4096
	togetherBytes = 1 << 20
)

// togetherTimeout bounds one attempt to commit. After it, each Appender writes its
// batch alone, which gives large batches more time.
const togetherTimeout = 10 * time.Second

// committer commits the open batches of the Appenders of a pool in one transaction:
// group commit across many streams. It tries once. If a stream's lock is taken, or a
// batch is rejected, the batch goes back to its Appender, which writes it alone,
// retries, and delays no other stream.
//
// Appenders with large batches, and an Appender that is the only one with anything
// to write, also write alone: COPY and prepared statements are faster.
type committer struct {
	pool *pgxpool.Pool
	on   pg.Borrower
	log  *slog.Logger // the log of an Appender in the round

	// Rounds are transactions of one writer, as batches are.
	id, number int64
	marks      batchGC
	params     togetherParams

	keeper  requestKeeper // rotates the request records of streams that share tables
	helpers sync.WaitGroup

	group *pg.Group[round]
	life  context.Context // ends when the last Appender has left
	end   context.CancelFunc
	ended chan struct{}

	// Guarded by the group's lock, like the Appenders' fields that name this lock.
	alone   int  // number of Appenders that write alone, except solitary ones
	writing bool // a round is being written

	slowUntil [maxSlow]time.Time // ring buffer: until when each of the last slow streams counts as slow
	slows     int                // where the next goes

	withdrawnRows, withdrawnBytes int // from the open round, by one call of do
}

// round is the open batch of several Appenders. It fills until the previous round is
// committed.
type round struct {
	entries []*entry
}

// entry is the part of a round that belongs to one Appender.
type entry struct {
	of    *Appender
	in    *round
	rows  rowBatch
	calls []call
	bytes int  // as counted by the group
	order int  // order of arrival within its transaction
	taken bool // its Appender has taken the calls back
}

// entryMemory is a pool of entries for the next rounds. An entry's row buffer is kept if
// it has at most keepEntry bytes.
var entryMemory = sync.Pool{New: func() any { return new(entry) }}

const keepEntry = 4 << 10

var committers pg.PerPool[*committer]

// joinCommitter returns the committer of the pool. The caller has to call leave when
// it is done.
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

// leave ends an Appender's use of c. No round may hold an entry of the Appender.
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

// do calls a function under the lock that guards the state shared by c and its
// Appenders.
func (c *committer) do(do func(open *round)) {
	c.group.Do(func(open *round) (rows, bytes int) {
		c.withdrawnRows, c.withdrawnBytes = 0, 0
		do(open)
		return c.withdrawnRows, c.withdrawnBytes
	})
}

// add adds the messages of a call to the next round. It returns false if the Appender
// has to write them alone.
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

// quiet reports whether no other Appender has anything to write.
func (c *committer) quiet(open *round) bool {
	return len(open.entries) == 0 && !c.writing && c.alone == 0
}

// setAlone switches the Appender to writing alone. The caller holds the lock.
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

// fits reports whether the batch stays small with another call, and contains no
// request twice.
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
		// In the order of IDs, in which move_outbox takes locks. No one waits for a
		// lock here.
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

// write stores the batches of the entries in one transaction, or hands them back to
// their Appenders. While PostgreSQL is unavailable it retries, until the Appenders
// have taken back all entries.
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
			return // the Appenders have taken all entries back
		case how == refused && pg.Code(err) != pg.CodeQueryCanceled && len(entries) > 1:
			half := len(entries) / 2 // bisect: independent streams must not fail with the bad one
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

// remaining returns the entries that their Appenders have not taken back.
func (c *committer) remaining(entries []*entry) (left []*entry) {
	c.do(func(*round) {
		left = slices.DeleteFunc(slices.Clone(entries), func(e *entry) bool { return e.taken })
	})
	return left
}

// settle finds the outcome of a transaction whose answer was lost: committed, with these
// first positions, or lost permanently. If PostgreSQL rejects the query, the outcome is
// unknown.
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
			c.log.Error("outcome of a lost transaction not looked up", "streams", len(entries), "error", err)
			return got, unknown
		}
		c.log.Warn("outcome of a lost transaction not looked up, trying again", "streams", len(entries), "attempt", failed+1, "error", err)
		if pg.Code(err) == pg.CodeLockNotAvailable {
			c.freeLocks(ctx, entries)
		}
		if pg.Backoff(ctx, failed) != nil {
			return got, unknown
		}
	}
}

// settleWait bounds one wait for a transaction that is still under way.
const settleWait = time.Second

// freeLocks terminates the PostgreSQL sessions that hold the locks of the streams, if
// their clients have silently disappeared.
func (c *committer) freeLocks(ctx context.Context, entries []*entry) {
	for _, e := range entries {
		cfg := e.of.cfg.Writer
		freeLock(ctx, c.pool, e.of.stream.id, cfg.LockTimeout, cfg.Log)
	}
}

// forget deletes old batch marks, once a round, in the borrowed session.
func (c *committer) forget(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, togetherTimeout)
	defer cancel()
	if err := c.marks.forget(ctx, c.on.Session(), c.id, c.number); err != nil {
		c.log.Warn("old batch marks not deleted", "error", err)
	}
}
