package scenario

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/bench/skiplocked"
)

// skipLocked is the textbook queue whose readers take batch messages at a time;
// 0 means the number in the load.
func skipLocked(describe string, batch int) sides {
	return sides{
		describe: describe,
		prepare: func(ctx context.Context, pool *pgxpool.Pool, _ QueueLoad) error {
			return skiplocked.New(pool).Recreate(ctx)
		},
		writer: func(_ context.Context, pool *pgxpool.Pool, _ QueueLoad) (writeSide, error) {
			return &textbookWriter{queue: skiplocked.New(pool)}, nil
		},
		reader: func(_ context.Context, pool *pgxpool.Pool, load QueueLoad) (readSide, error) {
			if batch == 0 {
				batch = load.ReadBatch
			}
			return &textbookReader{skiplocked.New(pool), batch}, nil
		},
	}
}

type textbookWriter struct {
	queue *skiplocked.Queue
	calls sync.WaitGroup
}

func (w *textbookWriter) send(ctx context.Context, _, _ int, payloads [][]byte, done func(error)) error {
	w.calls.Go(func() { done(w.queue.Enqueue(ctx, payloads...)) })
	return nil
}

func (w *textbookWriter) close() { w.calls.Wait() }

type textbookReader struct {
	queue *skiplocked.Queue
	batch int
}

func (r *textbookReader) open(context.Context, int) (source, error) {
	return &textbookSource{reader: r}, nil
}

func (r *textbookReader) close() {}

type textbookSource struct {
	reader *textbookReader
	claim  *skiplocked.Claim
}

func (s *textbookSource) receive(ctx context.Context) (_ [][]byte, err error) {
	for {
		if s.claim, err = s.reader.queue.Claim(ctx, s.reader.batch); err != nil {
			return nil, err
		}
		if s.claim != nil {
			return s.claim.Payloads, nil
		}
		select {
		case <-time.After(emptyPause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *textbookSource) ack(ctx context.Context) error { return s.claim.Done(ctx) }

func (s *textbookSource) close() {}
