package queue

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
)

const (
	recordTogetherSQL = `SELECT number, top, at FROM tidewire.record_together($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`

	// togetherQueues bounds the number of queues in one transaction, which holds about
	// four locks for each.
	togetherQueues = 200
	// togetherTimeout bounds one attempt.
	togetherTimeout = 10 * time.Second
)

// recorder makes the plain requests of all queues of a pool in one transaction (group
// commit), as stream's committer does with messages. It tries once, and waits for no
// lock: requests that it leaves out have to be made alone. If the answer to a request
// is lost, the next request of its queue settles it, as always.
type recorder struct {
	pool  *pgxpool.Pool
	on    pg.Borrower
	group *pg.Group[recording]
	life  context.Context // ends when the last Node has left
	end   context.CancelFunc
	ended chan struct{}

	// Guarded by the group's lock.
	alone   int // queues that are being written to alone
	writing bool
}

// recording is a batch that is being filled.
type recording struct{ all []*recordCall }

// recordCall is one request that waits for its answer.
type recordCall struct {
	queue   *shard
	request request
	entries []entry
	done    chan recordAnswer
}

// recordAnswer has neither an answer nor an error if the request is to be made alone.
type recordAnswer struct {
	answer *answer
	err    error
}

var recorders pg.PerPool[*recorder]

// joinRecorder returns the recorder of the pool. The caller must call leave.
func joinRecorder(pool *pgxpool.Pool) *recorder {
	return recorders.Join(pool, func() *recorder {
		r := &recorder{pool: pool, on: pg.NewBorrower(pool), ended: make(chan struct{})}
		r.group = pg.NewGroup(&recording{}, &recording{}, math.MaxInt, math.MaxInt)
		r.group.Admit(func(ctx context.Context) { r.on.Hold(ctx) }, r.on.Release) // attempt returns the same error
		r.life, r.end = context.WithCancel(context.Background())
		go r.run()
		return r
	})
}

func (r *recorder) leave() {
	if recorders.Leave(r.pool) {
		r.end()
		<-r.ended
	}
}

func (r *recorder) run() {
	defer close(r.ended)
	defer r.on.Close()
	r.group.Run(r.life, r.life, r.commit)
}

func (r *recorder) do(do func()) {
	r.group.Do(func(*recording) (int, int) { do(); return 0, 0 })
}

// record makes a request together with those of other queues. If the request has to
// be made alone, the answer and the error are nil; the caller must then call finished
// after it has made the request.
func (r *recorder) record(ctx context.Context, m *shard, req request) (a *answer, finished func(), err error) {
	call := &recordCall{queue: m, request: req, entries: req.recorded(), done: make(chan recordAnswer, 1)}
	added, err := r.group.AddIf(ctx, nil, 1, 0, func(open *recording) bool {
		if len(open.all) == 0 && !r.writing && r.alone == 0 {
			return false // no other queue is writing
		}
		open.all = append(open.all, call)
		return true
	})
	if added {
		m.sent()
		select {
		case got := <-call.done:
			if got.answer != nil || got.err != nil {
				return got.answer, nil, got.err
			}
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	if err != nil {
		return nil, nil, err
	}
	r.do(func() { r.alone++ })
	return nil, func() { r.do(func() { r.alone-- }) }, nil
}

// commit makes all requests of the batch.
func (r *recorder) commit(ctx context.Context, open *recording) {
	defer r.on.Release()
	r.do(func() { r.writing = true })
	for rest := open.all; len(rest) > 0; {
		n := min(len(rest), togetherQueues)
		r.write(ctx, rest[:n])
		rest = rest[n:]
	}
	clear(open.all)
	open.all = open.all[:0]
	r.do(func() { r.writing = false })
}

// write makes requests in one transaction. If PostgreSQL rejects it, write splits the
// requests in halves, until the one that fails is alone.
func (r *recorder) write(ctx context.Context, calls []*recordCall) {
	answers, refused, err := r.attempt(ctx, calls)
	if refused && len(calls) > 1 {
		half := len(calls) / 2
		r.write(ctx, calls[:half])
		r.write(ctx, calls[half:])
		return
	}
	for i, c := range calls {
		switch {
		case err == nil:
			c.done <- recordAnswer{answer: answers[i]}
		case refused:
			c.done <- recordAnswer{}
		default:
			c.done <- recordAnswer{err: err}
		}
	}
}

// attempt returns the answers, nil for requests that were left out. If refused, nothing
// was written; after any other error that is unknown.
func (r *recorder) attempt(ctx context.Context, calls []*recordCall) (answers []*answer, refused bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, togetherTimeout)
	defer cancel()
	if err := r.on.Hold(ctx); err != nil {
		return nil, false, err
	}
	s := r.on.Session()
	if err := s.Connect(ctx); err != nil {
		return nil, false, err
	}
	by := bySession(s, pg.ShortWait)
	batch := by.begin()
	answers = queueTogether(batch, calls)
	batch.Queue(commitSQL)
	if err = by.send(ctx, batch); err == nil {
		return answers, false, nil
	}
	err = s.Recover(ctx, err)
	return nil, s.Conn() != nil && pg.Code(err) != "", err
}

// queueTogether adds the requests to the batch. The answers are filled in when the batch is sent; they stay
// nil for requests that were left out.
func queueTogether(batch *pgx.Batch, calls []*recordCall) []*answer {
	answers := make([]*answer, len(calls))
	batch.Queue(recordTogetherSQL, togetherArgs(calls)...).Query(func(rows pgx.Rows) error {
		var number int
		var top int64
		var at time.Time
		_, err := pgx.ForEachRow(rows, []any{&number, &top, &at}, func() error {
			if number < 1 || number > len(calls) {
				return fmt.Errorf("record_together: queue %d of %d", number, len(calls))
			}
			c := calls[number-1]
			answers[number-1] = c.request.wasRecorded(c.entries, top, at)
			return nil
		})
		return err
	})
	return answers
}

// togetherArgs returns the parameters of recordTogetherSQL.
func togetherArgs(calls []*recordCall) []any {
	n := len(calls)
	queues, seens, untils, owns := make([]int32, n), make([]int64, n), make([]time.Time, n), make([]int64, n)
	claims, sizes, leases := make([]int64, n), make([]int32, n), make([]time.Duration, n)
	var kinds []int16
	var los, his []int64
	var bodies [][]byte
	for i, c := range calls {
		r := &c.request
		queues[i], seens[i], untils[i], owns[i], claims[i], sizes[i] = c.queue.id, r.seen, *r.validUntil, r.own, r.claim, int32(len(c.entries))
		leases[i] = r.lease
		for _, e := range c.entries {
			kinds, los, his, bodies = append(kinds, int16(e.kind)), append(los, e.lo), append(his, e.hi), append(bodies, e.body)
		}
	}
	return []any{queues, seens, untils, leases, owns, claims, sizes, kinds, los, his, bodies}
}
