package scenario

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/bench"
)

// tallyEvents counts what callers did in the measured phase.
type tallyEvents struct {
	mu      sync.Mutex
	latency *bench.Histogram
	calls   int
	refused int              // with ErrTooManyProjections
	wrong   int              // unexpected answers
	errs    []error          // the first errors of wrong answers
	recent  *bench.Histogram // latencies since counters was last called
}

func newTallyEvents() *tallyEvents {
	return &tallyEvents{latency: bench.NewHistogram(), recent: bench.NewHistogram()}
}

// counters returns how far the row is. Messages counts calls.
func (t *tallyEvents) counters() bench.Counters {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := bench.Counters{Phase: bench.PhaseMeasured, Messages: int64(t.calls), Errors: int64(t.wrong), Latency: t.recent}
	t.recent = bench.NewHistogram()
	return c
}

func (t *tallyEvents) add(took time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls++
	switch {
	case err == nil:
		t.latency.Record(took)
		t.recent.Record(took)
	case errors.Is(err, eventstore.ErrTooManyProjections):
		t.refused++
	default:
		if t.wrong++; len(t.errs) < 3 {
			t.errs = append(t.errs, err)
		}
	}
}

// eventsReading has the values of counters at one moment.
type eventsReading struct {
	at              time.Time
	mallocs, malloc uint64 // of this process
	wal             float64
}

func (s *eventsSide) reading(ctx context.Context) (r eventsReading, err error) {
	if err := s.pool.QueryRow(ctx, `SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8`).Scan(&r.wal); err != nil {
		return r, fmt.Errorf("read WAL position: %w", err)
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	r.at, r.mallocs, r.malloc = time.Now(), mem.Mallocs, mem.TotalAlloc
	return r, nil
}

func (r eventsReading) metrics(before eventsReading, t *tallyEvents, batch int, writes, limited bool) map[string]float64 {
	seconds := r.at.Sub(before.at).Seconds()
	calls := float64(max(t.calls, 1))
	m := map[string]float64{
		"seconds": seconds, "calls_per_second": float64(t.calls) / seconds,
		"bytes_per_call": float64(r.malloc-before.malloc) / calls, "allocs_per_call": float64(r.mallocs-before.mallocs) / calls,
		"errors": float64(t.wrong),
	}
	if limited {
		m["success_rate"], m["limit_exceeded_rate"] = float64(t.calls-t.refused)/calls, float64(t.refused)/calls
	}
	if writes {
		m["events_per_second"] = float64(t.calls*batch) / seconds
		m["wal_bytes_per_event"] = (r.wal - before.wal) / calls / float64(batch)
	}
	t.latency.Metrics(m, "")
	return m
}

// prefix returns the prefix of the side's metric names.
func (s *eventsSide) prefix() string {
	if s.compared {
		return "compare_"
	}
	return ""
}

// pulse records each second of the first side. It returns nil for the second
// side, since the row belongs to the first.
func (s *eventsSide) pulse(ctx context.Context, c cell, sampler *bench.Sampler, t *tallyEvents) *bench.Ticker {
	if s.compared {
		return nil
	}
	return s.result.Recording.StartPulse(ctx, s.rowOf(c), s.trial, sampler, withCheckpoints(ctx, s.pool, t.counters))
}

// usage adds the CPU time of each role, and its share of the machine.
func (s *eventsSide) usage(m map[string]float64, usage map[bench.Role]bench.Usage, node bool) {
	for role, part := range map[bench.Role]struct {
		name string
		runs bool
	}{bench.Generator: {"generator", true}, bench.Server: {"server", node}, bench.Postgres: {"postgres", s.postmaster != 0}} {
		if part.runs {
			m[part.name+"_cpu_seconds"] = usage[role].CPUSeconds
			m[part.name+"_cpu_share"] = usage[role].CPUSeconds / m["seconds"] / float64(cores())
		}
	}
}
