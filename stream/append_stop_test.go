package stream_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/stream"
)

// progress counts answers, so that something can happen after a number of them.
type progress struct {
	n    atomic.Int64
	more chan struct{}
}

func newProgress() *progress { return &progress{more: make(chan struct{}, 1)} }

func (p *progress) add() {
	p.n.Add(1)
	pg.Signal(p.more)
}

// wait returns after so many more answers.
func (p *progress) wait(t *testing.T, n int) {
	t.Helper()
	ctx := soon(t)
	for until := p.n.Load() + int64(n); p.n.Load() < until; {
		select {
		case <-p.more:
		case <-ctx.Done():
			t.Errorf("no answer for a minute, want %d more", until-p.n.Load())
			return
		}
	}
}

func TestAppender_StopAnswersWhatItAccepted(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	a, stop := start(t, db.Pool, s, stream.AppenderConfig{MaxBatch: 10})
	var accepted atomic.Int64
	answered := newProgress()
	var calling sync.WaitGroup
	for range 10 {
		calling.Go(func() {
			for {
				err := a.Submit(t.Context(), messages("x"), func(_ stream.Appended, err error) {
					if err != nil {
						t.Error(err)
					}
					answered.add()
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
	answered.wait(t, 100)
	stop()
	atReturn := answered.n.Load()
	calling.Wait()
	if accepted.Load() != atReturn {
		t.Errorf("%d accepted, %d answered when Stop returned", accepted.Load(), atReturn)
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
	exec(t, lock, `LOCK TABLE tidewire.stream_1000 IN ACCESS EXCLUSIVE MODE`)
	return lock
}

func TestAppender_FullWaitsAndObeysContext(t *testing.T) {
	t.Parallel()
	db, s := ensureOwn(t)
	lock := block(t, db)
	var stored atomic.Int64
	a, stop := start(t, db.Pool, s, stream.AppenderConfig{MaxBatchBytes: 1 << 20})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
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
	awaitLockWaiters(t, db, 1)
	a.Abandon()
	calling.Wait()
	if _, err := a.Append(t.Context(), stream.Message{}); !errors.Is(err, stream.ErrClosed) {
		t.Errorf("Append later: %v, want ErrClosed", err)
	}
	stop()
}

// benchPool is a pool on a migrated PostgreSQL with fsync.
func benchPool(b *testing.B) *pgxpool.Pool {
	b.Helper()
	server := pgtest.Start(b)
	pool, err := pg.Open(b.Context(), pg.PoolConfig{URL: server.URL()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	if _, err := migrate.Up(b.Context(), pool); err != nil {
		b.Fatal(err)
	}
	return pool
}

// BenchmarkIdleAppenders measures the heap and stack memory of a stream that is open and
// idle since its last append.
func BenchmarkIdleAppenders(b *testing.B) {
	pool := benchPool(b)
	const streams = 2000
	names := make([]string, streams)
	for i := range names {
		names[i] = fmt.Sprint("stream-", i)
		if _, err := stream.Ensure(b.Context(), pool, names[i], stream.Options{}); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		before := memory()
		found, err := stream.LookupAll(b.Context(), pool, names)
		if err != nil {
			b.Fatal(err)
		}
		appenders := make([]*stream.PartitionedAppender, streams)
		var appending sync.WaitGroup
		for i, name := range names {
			a := stream.NewPartitionedAppender(pool, found[name], stream.PartitionedConfig{})
			a.Start()
			appenders[i] = a
			appending.Go(func() {
				if _, err := a.Append(b.Context(), stream.Message{Payload: make([]byte, 256)}); err != nil {
					b.Error(err)
				}
			})
		}
		appending.Wait()
		testkit.Eventually(b, "their goroutines end", func() bool { return runtime.NumGoroutine() < streams })
		after := memory()
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/streams, "heap-B/stream")
		b.ReportMetric(float64(after.StackInuse)/streams-float64(before.StackInuse)/streams, "stack-B/stream")
		for _, a := range appenders {
			a.Stop()
		}
	}
}

// memory returns the memory in use after garbage collection.
func memory() (m runtime.MemStats) {
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m
}
