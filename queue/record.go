package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// holdSQL takes the queue's lock as hold_queue does.
	holdSQL = `SELECT pg_advisory_xact_lock(1953064037, -$1::int)`

	// recordFmt, of a queue's id, does what queue_write does with the rows of one
	// lease that depend on nobody else, if nobody else has written since row $1 and
	// the lease lasts until later; else nothing. It is run after the lock was taken,
	// as a statement of its own: under READ COMMITTED that sees all that was
	// committed before. Positions of a claim, of kind 4, count from the top.
	recordFmt = `
WITH head AS MATERIALIZED (
	SELECT sequence, top, base, clock_timestamp() AS at
	FROM tidewire.queue_%[1]d_journal ORDER BY sequence DESC LIMIT 1
), recorded AS (
	INSERT INTO tidewire.queue_%[1]d_journal (sequence, kind, token, lo, hi, body, top, base)
	SELECT h.sequence + e.n, e.kind, $3::bigint, e.lo + above.top, e.hi + above.top, e.body, h.top + $4::bigint, h.base
	FROM head AS h, unnest($5::smallint[], $6::bigint[], $7::bigint[], $8::bytea[]) WITH ORDINALITY AS e (kind, lo, hi, body, n),
		LATERAL (SELECT CASE e.kind WHEN 4 THEN h.top ELSE 0 END AS top) AS above
	WHERE h.sequence = $1::bigint AND h.at < $2::timestamptz
)
SELECT sequence = $1::bigint AND at < $2::timestamptz, top, at FROM head`

	// recordEdition is how many rows of the journal lie between two preparations
	// of the statement: PostgreSQL may keep a plan that was best while the journal
	// was nearly empty.
	recordEdition = 1 << 10
)

// plain reports whether the request is one of those that record can make: what
// happens every time, of a lease that others know.
func (r *request) plain() bool {
	if r.own == 0 || r.validUntil == nil || r.side != nil || len(r.entries) == 0 && r.claim == 0 {
		return false
	}
	for _, e := range r.entries {
		if e.token != r.own || e.kind != kindDone && e.kind != kindFree && e.kind != kindNote && e.kind != kindTried {
			return false
		}
	}
	return true
}

// record makes a plain request at a fraction of what queue_write costs, which has to
// plan statements whose tables it is told by name. The answer is nil if nothing was
// written: then queue_write knows why.
func (q *member) record(ctx context.Context, by line, r request) (*answer, error) {
	entries := r.recorded()
	kinds, los, his, bodies := make([]int16, len(entries)), make([]int64, len(entries)), make([]int64, len(entries)), make([][]byte, len(entries))
	for i, e := range entries {
		kinds[i], los[i], his[i], bodies[i] = int16(e.kind), e.lo, e.hi, e.body
	}
	sql := fmt.Sprintf(recordFmt+" -- %[2]d", q.id, r.seen/recordEdition)
	batch := &pgx.Batch{}
	before := by.begin(batch)
	batch.Queue(holdSQL, q.id)
	batch.Queue(sql, r.seen, *r.validUntil, r.own, r.claim, kinds, los, his, bodies)
	batch.Queue(commitSQL)
	q.sent()
	results := by.db.SendBatch(ctx, batch)
	a, err := q.readRecorded(results, before, r, entries)
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, err
	}
	return a, nil
}

// readRecorded reads the results of record, so many statements of which begin the
// transaction.
func (q *member) readRecorded(results pgx.BatchResults, before int, r request, entries []entry) (*answer, error) {
	for range before + 1 {
		if _, err := results.Exec(); err != nil {
			return nil, err
		}
	}
	var (
		free bool
		top  int64
		at   time.Time
	)
	if err := results.QueryRow().Scan(&free, &top, &at); err != nil {
		if errors.Is(err, pgx.ErrNoRows) {
			err = nil // there is no journal
		}
		return nil, err
	}
	if _, err := results.Exec(); err != nil || !free {
		return nil, err
	}
	return r.wasRecorded(entries, top, at), nil
}

// recorded returns the rows that a plain request writes.
func (r *request) recorded() []entry {
	if r.claim == 0 {
		return r.entries
	}
	return append(r.entries[:len(r.entries):len(r.entries)], entry{kind: kindNext, token: r.own, lo: 1, hi: r.claim})
}

// wasRecorded is the answer to a plain request that has written its rows, at that time
// and when the top stood there.
func (r *request) wasRecorded(entries []entry, top int64, at time.Time) *answer {
	a := &answer{outcome: written, now: at, news: make([]entry, len(entries))}
	for i, e := range entries {
		if e.sequence = r.seen + 1 + int64(i); e.kind == kindNext {
			e.lo, e.hi = e.lo+top, e.hi+top
		}
		a.news[i] = e
	}
	return a
}
