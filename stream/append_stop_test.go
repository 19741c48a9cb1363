package stream_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

func TestAppender_StopAnswersWhatItAccepted(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	a, stop := start(t, db.Pool, s, stream.AppenderConfig{MaxBatch: 10})
	var accepted, answered atomic.Int64
	var calling sync.WaitGroup
	for range 10 {
		calling.Go(func() {
			for {
				err := a.Submit(t.Context(), []stream.Message{{Payload: []byte("x")}}, func(_ stream.Appended, err error) {
					if err != nil {
						t.Error(err)
					}
					answered.Add(1)
				})
				if errors.Is(err, stream.ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				accepted.Add(1)
			}
		})
	}
	time.Sleep(100 * time.Millisecond)
	stop()
	atReturn := answered.Load()
	calling.Wait()
	if accepted.Load() == 0 || accepted.Load() != atReturn {
		t.Errorf("%d accepted, %d answered when Run returned", accepted.Load(), atReturn)
	}
	if n := len(everything(t, s)); int64(n) != atReturn {
		t.Errorf("%d stored, want %d", n, atReturn)
	}
	if _, err := a.Append(t.Context(), stream.Message{}); !errors.Is(err, stream.ErrClosed) {
		t.Errorf("Append after the stop: %v, want ErrClosed", err)
	}
	if conns := db.Pool.Stat().AcquiredConns(); conns != 0 {
		t.Errorf("%d connections kept", conns)
	}
}

// block locks the stream's table until the end of the transaction.
func block(t *testing.T, db pgtest.DB) pgx.Tx {
	t.Helper()
	lock := begin(t, db.Pool, "")
	t.Cleanup(func() { lock.Rollback(context.Background()) })
	exec(t, lock, `LOCK TABLE tidewire.stream_1000 IN ACCESS EXCLUSIVE MODE`)
	return lock
}

func TestAppender_FullWaitsAndObeysContext(t *testing.T) {
	t.Parallel()
	db, s := ensureOwn(t)
	lock := block(t, db)
	var stored atomic.Int64
	a, stop := start(t, db.Pool, s, stream.AppenderConfig{MaxBatchBytes: 1 << 20})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	accepted, most := 0, 2*16+1
	var err error
	for msgs := []stream.Message{{Payload: make([]byte, 64<<10)}}; err == nil && accepted <= most; accepted++ {
		err = a.Submit(ctx, msgs, func(_ stream.Appended, err error) {
			if err != nil {
				t.Error(err)
			}
			stored.Add(1)
		})
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%d calls of 64 KiB into two batches of 1 MiB: %v, want the context's error", accepted, err)
	}
	accepted-- // the last one was not accepted
	rollBack(t, lock)
	stop()
	if int(stored.Load()) != accepted {
		t.Errorf("%d stored, %d accepted", stored.Load(), accepted)
	}
}

func TestAppender_AbandonAnswersEverybody(t *testing.T) {
	t.Parallel()
	db, s := ensureOwn(t)
	block(t, db)
	a, stop := start(t, db.Pool, s, stream.AppenderConfig{MaxBatch: 2})
	var calling sync.WaitGroup
	for range 8 { // two full batches, and callers that wait for room
		calling.Go(func() {
			_, err := a.Append(t.Context(), stream.Message{}, stream.Message{})
			if !errors.Is(err, stream.ErrOutcomeUnknown) && !errors.Is(err, stream.ErrClosed) {
				t.Errorf("Append: %v, want ErrOutcomeUnknown, or ErrClosed if it came late", err)
			}
		})
	}
	time.Sleep(50 * time.Millisecond)
	a.Abandon()
	calling.Wait()
	if _, err := a.Append(t.Context(), stream.Message{}); !errors.Is(err, stream.ErrClosed) {
		t.Errorf("Append later: %v, want ErrClosed", err)
	}
	stop()
}
