package eventstore_test

import (
	"context"
	"errors"
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

// benchStore is a store on a PostgreSQL with fsync, with the events of the
// courses that benchmarks use: students enrolled in them.
func benchStore(b *testing.B, enrolments int) *eventstore.Store {
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
	s := open(b, pool, eventstore.Config{})
	var events []eventstore.Event
	for n := range enrolments {
		events = append(events, enrolment(n%10_000, n%1000))
		if len(events) == 1000 || n == enrolments-1 {
			mustAppend(b, s, events...)
			events = events[:0]
		}
	}
	return s
}

func enrolment(student, course int) eventstore.Event {
	return eventstore.Event{
		Type: "EnrollmentCompleted",
		Tags: []string{fmt.Sprint("course:", course), fmt.Sprint("student:", student)},
		Data: fmt.Appendf(nil, `{"student":"student-%d","course":"course-%d","at":"2026-01-01T00:00:00Z","grade":"A"}`, student, course),
		JSON: true,
	}
}

func closedLoop(b *testing.B, callers int, call func(n int) error) {
	b.Helper()
	b.ReportAllocs()
	b.ResetTimer()
	var next atomic.Int64
	var calling sync.WaitGroup
	waits := make([][]time.Duration, callers)
	for c := range callers {
		calling.Go(func() {
			for {
				n := next.Add(1)
				if n > int64(b.N) {
					return
				}
				begun := time.Now()
				if err := call(int(n)); err != nil {
					b.Error(err)
					return
				}
				waits[c] = append(waits[c], time.Since(begun))
			}
		})
	}
	calling.Wait()
	b.StopTimer()
	all := slices.Concat(waits...)
	slices.Sort(all)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
}

func BenchmarkAppend(b *testing.B) {
	s := benchStore(b, 50_000)
	for _, callers := range []int{1, 100, 400} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			closedLoop(b, callers, func(n int) error {
				_, err := s.Append(b.Context(), enrolment(n%10_000, n%1000))
				return err
			})
		})
	}
}

// BenchmarkAppendIf appends enrolments that must not exist yet. The conditions cover the
// whole history.
func BenchmarkAppendIf(b *testing.B) {
	s := benchStore(b, 50_000)
	var enrolled atomic.Int64
	for _, callers := range []int{1, 100} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			before := s.Stats()
			closedLoop(b, callers, func(int) error {
				n := int(enrolled.Add(1))
				e := enrolment(n%10_000, 1000+n/10_000)
				_, err := s.AppendIf(b.Context(), []eventstore.Event{e},
					eventstore.Condition{FailIfEventsMatch: eventstore.Query{Items: []eventstore.Item{{Types: []string{e.Type}, Tags: e.Tags}}}})
				return err
			})
			after := s.Stats()
			b.ReportMetric(float64(after.Events-before.Events)/float64(after.Batches-before.Batches), "events/batch")
			b.ReportMetric(float64(after.CheckedAhead-before.CheckedAhead)/float64(b.N), "ahead/call")
		})
	}
}

func BenchmarkAppendIfConflict(b *testing.B) {
	s := benchStore(b, 50_000)
	for _, callers := range []int{1, 100} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			closedLoop(b, callers, func(n int) error {
				e := enrolment(n%10_000, n%1000)
				_, err := s.AppendIf(b.Context(), []eventstore.Event{e},
					eventstore.Condition{FailIfEventsMatch: eventstore.Query{Items: []eventstore.Item{{Types: []string{e.Type}, Tags: e.Tags}}}})
				if !errors.Is(err, eventstore.ErrConflict) {
					return fmt.Errorf("%v, want a conflict", err)
				}
				return nil
			})
		})
	}
}

// BenchmarkQuery reads a hundred events of 100,000.
func BenchmarkQuery(b *testing.B) {
	s := benchStore(b, 100_000)
	for _, callers := range []int{1, 100} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			closedLoop(b, callers, func(n int) error {
				events, err := s.Query(b.Context(), eventstore.Query{Items: []eventstore.Item{
					{Types: []string{"EnrollmentCompleted"}, Tags: []string{fmt.Sprint("course:", n%1000)}}}}, eventstore.ReadOptions{})
				if err == nil && len(events) != 100 {
					err = fmt.Errorf("%d events, want 100", len(events))
				}
				return err
			})
		})
	}
}

// BenchmarkAppendBesideCostly appends single events while other callers append under conditions of a thousand items,
// each of two tags that many events have, but none both.
func BenchmarkAppendBesideCostly(b *testing.B) {
	s := benchStore(b, 0)
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
			closedLoop(b, 1, func(int) error {
				_, err := s.Append(b.Context(), event("P"))
				return err
			})
			b.ReportMetric(float64(appended.Load())/b.Elapsed().Seconds(), "costly/s")
			stop()
			calling.Wait()
		})
	}
}
