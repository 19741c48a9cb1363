package stream_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
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
