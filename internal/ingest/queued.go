package ingest

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"

	"github.com/tidewire/tidewire/internal/ingestlog"
)

const (
	// queueLength bounds the channel of buffered and bulk, in messages.
	queueLength = 10_000
	// messageOverhead is the memory of a queued message beside its payload, in
	// bytes.
	messageOverhead = 64
	// maxInsertBytes bounds the payloads of one INSERT: pgx holds all of a
	// statement's parameters in one buffer.
	maxInsertBytes = 2 << 20
	// poolReserve is how many connections of the pool are left for settling
	// lost INSERTs and for upkeep.
	poolReserve = 4
)

// queued is a bounded channel and workers that read it: the strategy of
// buffered, where a batch is one message, and of bulk.
type queued struct {
	cfg     Config
	pool    *pgxpool.Pool
	batch   int
	queue   chan message
	inBytes *semaphore.Weighted
	wrote   func(rows int)
}

type message struct {
	src     *Source
	index   uint64
	payload []byte
}

func newQueued(pool *pgxpool.Pool, cfg Config, wrote func(int)) *queued {
	q := &queued{
		cfg: cfg, pool: pool, batch: cfg.Batch,
		queue:   make(chan message, queueLength),
		inBytes: semaphore.NewWeighted(int64(cfg.MaxInflightBytes)),
		wrote:   wrote,
	}
	if cfg.Mode == Buffered {
		q.batch = 1
	}
	return q
}

func (q *queued) submit(ctx context.Context, src *Source, first uint64, payloads [][]byte) (int, error) {
	for i, p := range payloads {
		if err := q.inBytes.Acquire(ctx, q.weight(p)); err != nil {
			return i, err
		}
		select {
		case q.queue <- message{src, first + uint64(i), append([]byte{}, p...)}:
		case <-ctx.Done():
			q.inBytes.Release(q.weight(p))
			return i, ctx.Err()
		}
	}
	return len(payloads), nil
}

// weight is how many in-flight bytes a message counts, limited so that a single
// message always fits.
func (q *queued) weight(payload []byte) int64 {
	return int64(min(len(payload)+messageOverhead, q.cfg.MaxInflightBytes))
}

func (q *queued) run(ctx, work context.Context) {
	var workers sync.WaitGroup
	for n := range q.cfg.Workers {
		log := q.cfg.Log.With("worker", n+1)
		workers.Go(func() { q.serve(ctx, work, log) })
	}
	workers.Wait()
}

// worker has an inserter and the batch that it gathers.
type worker struct {
	*queued
	inserter *ingestlog.Inserter
	log      *slog.Logger
	batch    []message
	bytes    int // payload bytes of the batch
	payloads [][]byte
}

// serve gathers messages up to the batch size, in rows or bytes, or the flush
// time and inserts them, until ctx ends and the queue is empty.
func (q *queued) serve(ctx, work context.Context, log *slog.Logger) {
	w := &worker{queued: q, inserter: ingestlog.NewInserter(q.pool, ingestlog.InserterConfig{Table: q.cfg.Table, Log: log}), log: log}
	defer w.inserter.Close()
	flush := time.NewTimer(0)
	<-flush.C
	for {
		select {
		case m := <-q.queue:
			if w.add(m); len(w.batch) == 1 {
				flush.Reset(q.cfg.Flush)
			}
			if !w.full() {
				continue
			}
		case <-flush.C:
		case <-ctx.Done():
			if w.drain(); len(w.batch) == 0 {
				return
			}
		}
		flush.Stop()
		w.write(work)
	}
}

func (w *worker) add(m message) {
	w.batch = append(w.batch, m)
	w.bytes += len(m.payload)
}

func (w *worker) full() bool {
	return len(w.batch) >= w.queued.batch || w.bytes >= maxInsertBytes
}

// drain adds the queued messages until the batch is full.
func (w *worker) drain() {
	for !w.full() {
		select {
		case m := <-w.queue:
			w.add(m)
		default:
			return
		}
	}
}

func (w *worker) write(ctx context.Context) {
	w.payloads = w.payloads[:0]
	for _, m := range w.batch {
		w.payloads = append(w.payloads, m.payload)
	}
	err := w.inserter.Insert(ctx, w.payloads)
	if err != nil {
		err = explain(w.log, len(w.batch), err)
	}
	w.answer(w.batch, err)
	clear(w.batch) // for the garbage collector
	clear(w.payloads)
	w.batch, w.bytes = w.batch[:0], 0
}

// answer tells the sources the result, in one call for each run of consecutive
// messages of a source.
func (q *queued) answer(batch []message, err error) {
	if err == nil {
		q.wrote(len(batch))
	}
	var bytes int64
	for i := 0; i < len(batch); {
		src, first := batch[i].src, batch[i].index
		end := first
		for ; i < len(batch) && batch[i].src == src && batch[i].index == end; i++ {
			bytes += q.weight(batch[i].payload)
			end++
		}
		if err != nil {
			src.failed(int(end-first), fmt.Errorf("message %d: %w", first, err))
		} else {
			src.committed(first, end)
		}
	}
	q.inBytes.Release(bytes)
}
