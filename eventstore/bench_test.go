package eventstore_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
)

// benchStore is a store on a PostgreSQL with fsync.
func benchStore(b *testing.B) *eventstore.Store {
	b.Helper()
	server := pgtest.Start(b)
	pool, err := pg.Open(b.Context(), pg.PoolConfig{URL: server.URL(), MaxConns: 16})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	if _, err := migrate.Up(b.Context(), pool); err != nil {
		b.Fatal(err)
	}
	return open(b, pool, eventstore.Config{})
}

// BenchmarkAppendBesideCostly appends single events while other callers append under conditions of a thousand items,
// each of two tags that many events have, but none both.
func BenchmarkAppendBesideCostly(b *testing.B) {
	s := benchStore(b)
	for _, letter := range []string{"A", "B"} {
		for range 16 {
			var events []eventstore.Event
			for n := range 1000 {
				events = append(events, eventstore.Event{Type: "T", Tags: []string{fmt.Sprint(letter, n%32)}})
			}
			mustAppend(b, s, events...)
		}
	}
	var q eventstore.Query
	for n := range eventstore.MaxItems {
		q.Items = append(q.Items, eventstore.Item{Tags: []string{fmt.Sprint("A", n%32), fmt.Sprint("B", n/32)}})
	}
	for _, costly := range []int{0, 1, 4, 40} {
		b.Run(fmt.Sprint("costly=", costly), func(b *testing.B) {
			ctx, stop := context.WithCancel(b.Context())
			defer stop()
			var calling sync.WaitGroup
			var appended atomic.Int64
			for range costly {
				calling.Go(func() {
					for ctx.Err() == nil {
						_, err := s.AppendIf(ctx, []eventstore.Event{event("C")}, eventstore.Condition{FailIfEventsMatch: q})
						if err != nil && ctx.Err() == nil {
							b.Error(err)
							return
						}
						appended.Add(1)
					}
				})
			}
			var waits []time.Duration
			for b.Loop() {
				begun := time.Now()
				mustAppend(b, s, event("P"))
				waits = append(waits, time.Since(begun))
			}
			slices.Sort(waits)
			b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(float64(appended.Load())/b.Elapsed().Seconds(), "costly/s")
			stop()
			calling.Wait()
		})
	}
}
