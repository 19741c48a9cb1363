package stream_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/stream"
)

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

// BenchmarkWriter writes batches of 100-byte rows with both methods, on a
// PostgreSQL with fsync: the batch size at which they cost the same is the default
// of WriterConfig.CopyRows.
func BenchmarkWriter(b *testing.B) {
	pool := benchPool(b)
	payload := bytes.Repeat([]byte("x"), 100)
	for _, rows := range []int{1, 10, 100, 200, 400, 1000, 5000, 50_000} {
		for name, method := range map[string]stream.Method{"array": stream.Array, "copy": stream.Copy} {
			b.Run(fmt.Sprintf("%s/%d", name, rows), func(b *testing.B) {
				w := stream.NewWriter(pool, stream.WriterConfig{Method: method})
				defer w.Close()
				var batch stream.Batch
				for range rows {
					batch.Append(payload)
				}
				for b.Loop() {
					if err := w.Write(b.Context(), &batch); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
			})
		}
	}
}

// BenchmarkAppender is a closed loop: callers that each wait for their answer.
func BenchmarkAppender(b *testing.B) {
	pool := benchPool(b)
	msg := stream.Message{Key: "a key", Payload: bytes.Repeat([]byte("x"), 100)}
	for _, keyed := range []bool{false, true} {
		for _, callers := range []int{1, 100, 1000} {
			name := fmt.Sprintf("keyed=%t/callers=%d", keyed, callers)
			b.Run(name, func(b *testing.B) {
				s, err := stream.Ensure(b.Context(), pool, name, stream.Options{Keyed: keyed})
				if err != nil {
					b.Fatal(err)
				}
				a := stream.NewAppender(pool, s, stream.AppenderConfig{})
				running, stop := context.WithCancel(context.Background())
				var background, calling sync.WaitGroup
				a.Start()
				background.Go(func() { <-running.Done(); a.Stop() })
				b.ResetTimer()
				var next atomic.Int64
				for range callers {
					calling.Go(func() {
						for next.Add(1) <= int64(b.N) {
							if _, err := a.Append(b.Context(), msg); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				calling.Wait()
				b.StopTimer()
				stop()
				background.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
			})
		}
	}
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
		time.Sleep(2 * time.Second)
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

// BenchmarkRead reads pages of a stream of 200,000 messages of 100 bytes.
func BenchmarkRead(b *testing.B) {
	pool := benchPool(b)
	s, err := stream.Ensure(b.Context(), pool, "read", stream.Options{Keyed: true, OwnTables: true})
	if err != nil {
		b.Fatal(err)
	}
	_, err = pool.Exec(b.Context(), `
SELECT tidewire.take_positions(1000, 'tidewire.stream_1000_position_seq', 200000, 1, 1);
INSERT INTO tidewire.stream_1000 (position, key, payload)
SELECT n, 'k' || n % 10, convert_to(repeat('x', 100), 'UTF8') FROM generate_series(1, 200000) n`)
	if err != nil {
		b.Fatal(err)
	}
	for _, limit := range []int{1, 100, 1000} {
		for name, read := range map[string]func() ([]stream.Message, error){
			"position": func() ([]stream.Message, error) { return s.Read(b.Context(), 50_000, limit) },
			"key":      func() ([]stream.Message, error) { return s.ReadKey(b.Context(), "k7", 50_000, math.MaxInt64, limit) },
			"last":     func() ([]stream.Message, error) { return s.LastKey(b.Context(), "k7", math.MaxInt64, limit) },
			"end":      func() ([]stream.Message, error) { return s.Read(b.Context(), 200_000, limit) },
		} {
			b.Run(fmt.Sprintf("%s/%d", name, limit), func(b *testing.B) {
				b.ReportAllocs()
				want := limit
				if name == "end" {
					want = 0
				}
				for b.Loop() {
					if msgs, err := read(); err != nil || len(msgs) != want {
						b.Fatal(len(msgs), err)
					}
				}
			})
		}
	}
}
