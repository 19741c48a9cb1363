package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
)

// lockPatience is how long a write waits for the queue's lock at a time.
const lockPatience = 2 * time.Second

// request is one call of queue_write.
type request struct {
	seen       int64
	own        int64      // token, or 0
	validUntil *time.Time // nil with the first row of a lease
	lease      time.Duration
	entries    []entry
	claim      int64 // positions after the top
	side       *sideRequest
	// doubt says that the request may be written already: then the answer comes only when the
	// standbys have it.
	doubt bool
}

// sideRequest is what a request does to deferred messages.
type sideRequest struct {
	Done  []int64   `json:"done,omitempty"`
	Put   []sidePut `json:"put,omitempty"`
	Tried []sideTry `json:"tried,omitempty"`
	Want  int       `json:"want"`
	Known []int64   `json:"known,omitempty"`
}

// sidePut defers a message: one from the log if it is fresh, else one that was
// deferred before.
type sidePut struct {
	Position int64      `json:"position"`
	Due      *time.Time `json:"due"`   // if nil, Delay counts
	Delay    int64      `json:"delay"` // in microseconds from now
	Attempts int        `json:"attempts"`
	Unbegun  int        `json:"unbegun"`
	Dead     bool       `json:"dead"`
	Reason   string     `json:"reason"`
	Fresh    bool       `json:"fresh"`
}

// sideTry says how often a deferred message that the node keeps was delivered.
type sideTry struct {
	Position int64 `json:"position"`
	Attempts int   `json:"attempts"`
	Unbegun  int   `json:"unbegun"`
}

// outcome says how much of a request was written.
type outcome int16

const (
	written     outcome = iota // all of it
	conflicting                // all but the rows that conflict with rows of others
	leaseOver                  // nothing: the lease is over
	stale                      // nothing: the node has to read the new rows first
	lost                       // nothing: a failover has lost rows that were read; the answer has the whole journal
)

// answer is what queue_write returned.
type answer struct {
	outcome outcome
	now     time.Time // PostgreSQL's clock
	news    []entry   // rows after request.seen, including those written
	side    []sideRow
	due     *time.Time // of the next deferred message
	looked  bool       // whether side and due were requested
}

// sideRow is a deferred message that belongs to the lease and was not in the request's Known.
type sideRow struct {
	position int64
	tally
	suspect bool
}

// write calls queue_write, in one round trip. If it fails, the request may have
// been written or not, or may still be written later.
func (q *shard) write(ctx context.Context, by line, r request) (*answer, error) {
	args, err := r.args(q.id)
	if err != nil {
		return nil, err
	}
	var a *answer
	batch := by.begin()
	batch.Queue(writeSQL, args...).Query(func(rows pgx.Rows) (err error) {
		a, err = scanAnswer(rows)
		return err
	})
	if r.doubt {
		batch.Queue(waitIfUnwrittenSQL)
	}
	batch.Queue(commitSQL)
	q.sent()
	if err := by.send(ctx, batch); err != nil {
		return nil, err
	}
	a.looked = r.side != nil && a.outcome <= conflicting
	return a, nil
}

// line is how a request is sent to PostgreSQL.
type line struct {
	send     func(ctx context.Context, b *pgx.Batch) error // also reads the results
	settings string                                        // the statement that comes after BEGIN
}

// byPool is for occasional writes.
func (q *shard) byPool() line {
	return line{func(ctx context.Context, b *pgx.Batch) error { return pg.SendBatch(ctx, q.pool, b) }, pg.WriterSettings(lockPatience)}
}

// byReader is for requests that only read.
func (q *shard) byReader() line {
	return line{func(ctx context.Context, b *pgx.Batch) error { return q.pool.SendBatch(ctx, b).Close() }, pg.WriterSettings(lockPatience)}
}

// bySession is for a borrowed connection; wait bounds the wait for a lock.
func bySession(s *pg.Session, wait time.Duration) line {
	return line{func(ctx context.Context, b *pgx.Batch) error { return s.Replicated(s.Conn().SendBatch(ctx, b).Close()) }, s.Settings(wait)}
}

// begin returns a batch with the statements that begin a transaction.
func (l line) begin() *pgx.Batch {
	b := &pgx.Batch{}
	b.Queue(beginSQL)
	b.Queue(l.settings)
	return b
}

func (r *request) args(id int32) ([]any, error) {
	n := len(r.entries)
	kinds, tokens, los, his := make([]int16, n), make([]int64, n), make([]int64, n), make([]int64, n)
	untils, bodies := make([]*time.Time, n), make([][]byte, n)
	for i, e := range r.entries {
		kinds[i], tokens[i], los[i], his[i], bodies[i] = int16(e.kind), e.token, e.lo, e.hi, e.body
		if !e.until.IsZero() {
			untils[i] = &r.entries[i].until
		}
	}
	var side *string
	if r.side != nil {
		text, err := json.Marshal(r.side)
		if err != nil {
			return nil, err
		}
		side = new(string(text))
	}
	return []any{id, r.seen, r.own, r.validUntil, r.lease, kinds, tokens, los, his, untils, bodies, r.claim, side}, nil
}

func scanAnswer(rows pgx.Rows) (*answer, error) {
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e entry, err error) {
		var until *time.Time
		err = row.Scan(&e.sequence, &e.kind, &e.token, &e.lo, &e.hi, &until, &e.body)
		if until != nil {
			e.until = *until
		}
		return e, err
	})
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("queue_write: no rows")
	}
	a := &answer{outcome: outcome(all[0].kind), now: all[0].until}
	for _, e := range all[1:] {
		switch {
		case e.kind == kindDue && !e.until.IsZero():
			a.due = &e.until
		case e.kind == kindSide:
			a.side = append(a.side, sideRow{position: e.sequence, tally: tally{int(e.token), int(e.hi)}, suspect: e.lo == 1})
		case e.kind < kindDue:
			a.news = append(a.news, e)
		}
	}
	return a, nil
}

// load reads the whole journal.
func (q *shard) load(ctx context.Context) (*state, *answer, error) {
	s := &state{}
	a, err := q.write(ctx, q.byReader(), request{})
	if err != nil {
		return nil, nil, q.explain("read", err)
	}
	for _, e := range a.news {
		if err := s.apply(e); err != nil {
			return nil, nil, q.explain("read", err)
		}
	}
	return s, a, nil
}
