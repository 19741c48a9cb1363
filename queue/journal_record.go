package queue

import (
	"context"
	"time"
)

// holdSQL takes the queue's lock as hold_queue does.
const holdSQL = `SELECT pg_advisory_xact_lock(1953064037, -$1::int)`

// plain reports whether record can make the request: it has only frequent kinds
// of rows, for a lease that is in the journal.
func (r *request) plain() bool {
	if r.own == 0 || r.validUntil == nil || r.side != nil || len(r.entries) == 0 && r.claim == 0 {
		return false
	}
	for _, e := range r.entries {
		if e.token != r.own || e.kind != kindDone && e.kind != kindFree && e.kind != kindNote && e.kind != kindTried && e.kind != kindLease {
			return false
		}
	}
	return true
}

// record makes a plain request at a fraction of the cost of queue_write. It waits for the
// lock, and then does what a recorder does for many queues. The answer is nil if nothing was
// written: queue_write then returns the reason.
func (q *shard) record(ctx context.Context, by line, r request) (*answer, error) {
	calls := []*recordCall{{queue: q, request: r, entries: r.recorded()}}
	batch := by.begin()
	batch.Queue(holdSQL, q.id)
	answers := queueTogether(batch, calls)
	batch.Queue(commitSQL)
	q.sent()
	if err := by.send(ctx, batch); err != nil {
		return nil, err
	}
	return answers[0], nil
}

// recorded returns the rows that a plain request writes.
func (r *request) recorded() []entry {
	if r.claim == 0 {
		return r.entries
	}
	return append(r.entries[:len(r.entries):len(r.entries)], entry{kind: kindNext, token: r.own, lo: 1, hi: r.claim})
}

// wasRecorded returns the answer to a plain request whose rows were written at that
// time, when top was the highest claimed position.
func (r *request) wasRecorded(entries []entry, top int64, at time.Time) *answer {
	a := &answer{outcome: written, now: at, news: make([]entry, len(entries))}
	for i, e := range entries {
		e.sequence = r.seen + 1 + int64(i)
		switch e.kind {
		case kindNext:
			e.lo, e.hi = e.lo+top, e.hi+top
		case kindLease:
			e.until = at.Add(r.lease.Truncate(time.Microsecond))
		}
		a.news[i] = e
	}
	return a
}
