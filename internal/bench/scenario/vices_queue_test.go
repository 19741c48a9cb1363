package scenario

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/bench/internal/faulty"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// The strategies with vices are Tidewire's own, but readers see something else
// than what is stored. The worker processes must know them too.
func init() {
	for _, vice := range faulty.Vices {
		strategies["queue"][vice.String()] = vicious(lease, vice)
		strategies["pubsub"][vice.String()] = vicious(pubsubLog, vice)
	}
}

func vicious(s sides, vice faulty.Vice) sides {
	open := s.reader
	s.reader = func(ctx context.Context, pool *pgxpool.Pool, load QueueLoad) (readSide, error) {
		honest, err := open(ctx, pool, load)
		return viciousReader{honest, vice}, err
	}
	if stored := s.stored; stored != nil {
		s.stored = func(ctx context.Context, pool *pgxpool.Pool, load QueueLoad) (storedSide, error) {
			honest, err := stored(ctx, pool, load)
			return viciousStored{honest, vice}, err
		}
	}
	return s
}

// viciousStored returns other messages than those stored; the positions are right.
type viciousStored struct {
	storedSide
	vice faulty.Vice
}

func (s viciousStored) read(ctx context.Context, n int, each func(position int64, payload []byte)) (storedEnd, error) {
	out, position := faulty.Outlet{Vice: s.vice}, int64(0)
	return s.storedSide.read(ctx, n, func(_ int64, payload []byte) {
		out.Pass(payload, func(p []byte) {
			position++
			each(position, p)
		})
	})
}

type viciousReader struct {
	readSide
	vice faulty.Vice
}

func (r viciousReader) open(ctx context.Context, number int) (source, error) {
	honest, err := r.readSide.open(ctx, number)
	return &viciousSource{source: honest, out: faulty.Outlet{Vice: r.vice}}, err
}

type viciousSource struct {
	source
	out faulty.Outlet
}

func (s *viciousSource) receive(ctx context.Context) (told [][]byte, err error) {
	payloads, err := s.source.receive(ctx)
	switch s.out.Vice {
	case faulty.Slow:
		time.Sleep(faulty.Delay)
	case faulty.Reordering: // within what was written together: nothing is held when the run ends
		told = slices.Clone(payloads)
		slices.Reverse(told)
		return told, err
	}
	for _, p := range payloads {
		s.out.Pass(p, func(p []byte) { told = append(told, p) })
	}
	return told, err
}

// TestVices_Queue and of pubsub: a queue promises no order.
func TestVices_Queue(t *testing.T) {
	t.Parallel()
	for mode, noticed := range map[string][]faulty.Vice{"queue": spoiling[:2], "pubsub": spoiling} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			eachVice(t, func(t *testing.T, vice faulty.Vice) {
				db := pgtest.Open(t)
				result := bench.NewResult(mode, nil)
				err := Queue(t.Context(), QueueConfig{
					QueueLoad: QueueLoad{
						Mode: mode, Writers: 1, InFlight: 10, Batch: 4, Payload: 64, Rate: 200, Readers: 2, ReadBatch: 50, Groups: 1,
						Partitions: 1, Linger: time.Millisecond,
					},
					Strategies: []string{vice.String()}, Repeat: 1, WarmUp: 200 * time.Millisecond, Duration: time.Second,
					Report: time.Second, Pool: db.Pool, Database: db.URL, Part: testWorker, Progress: t.Logf,
				}, result)
				if err != nil {
					t.Fatal(err)
				}
				// A machine without free CPU time sends late, which also makes a run invalid.
				withoutTime(result)
				judged(t, result, vice.String(), "end_to_end_", vice, noticed...)
				if m := result.Row(vice.String()).Metrics; mode == "pubsub" && m["reordered"] > 0 != (vice == faulty.Reordering) {
					t.Errorf("%v reordered", m["reordered"])
				}
			})
		})
	}
}

// TestVices_PublishOnly: without readers, the stored messages are checked.
func TestVices_PublishOnly(t *testing.T) {
	t.Parallel()
	eachVice(t, func(t *testing.T, vice faulty.Vice) {
		if vice == faulty.Slow {
			return // to read back takes no part in what is measured
		}
		db := pgtest.Open(t)
		result := bench.NewResult("pubsub", nil)
		err := Queue(t.Context(), QueueConfig{
			QueueLoad: QueueLoad{
				Mode: "pubsub", Writers: 1, InFlight: 10, Batch: 4, Payload: 64, Rate: 200, Partitions: 1, Linger: time.Millisecond,
			},
			Strategies: []string{vice.String()}, Repeat: 1, WarmUp: 200 * time.Millisecond, Duration: time.Second,
			Report: time.Second, Pool: db.Pool, Database: db.URL, Part: testWorker, Progress: t.Logf,
		}, result)
		if err != nil {
			t.Fatal(err)
		}
		withoutTime(result)
		judged(t, result, vice.String(), "write_", vice, spoiling...)
		m := result.Row(vice.String()).Metrics
		if got := []bool{m["lost"] > 0, m["duplicated"] > 0, m["reordered"] > 0}; m["rows_verified"] == 0 ||
			!slices.Equal(got, []bool{vice == faulty.Lossy, vice == faulty.Duplicating, vice == faulty.Reordering}) {
			t.Errorf("lost, duplicated, reordered: %v; %v", got, m)
		}
	})
}

// stalled is a side that answers at once, except for one moment in which it
// answers nothing.
type stalled struct {
	from, to time.Time
}

func (s stalled) send(_ context.Context, _, _ int, _ [][]byte, done func(error)) error {
	if now := time.Now(); now.After(s.from) && now.Before(s.to) {
		time.Sleep(s.to.Sub(now))
	}
	done(nil)
	return nil
}

func (stalled) close() {}

// TestStall_Writers: the latency of messages due during a stall includes the
// wait, even if they were sent later.
func TestStall_Writers(t *testing.T) {
	t.Parallel()
	const run, stall = 3 * time.Second, 300 * time.Millisecond
	load := QueueLoad{Writers: 4, InFlight: 1, Batch: 1, Payload: 64, Rate: 1000}
	middle := time.Now().Add(run / 2)
	w := &writers{
		load: load, side: stalled{middle, middle.Add(stall)}, all: newMeters(load.Writers), sent: make([]int, load.Writers),
	}
	w.all.enter(measured)
	ctx, cancel := context.WithTimeout(t.Context(), run)
	defer cancel()
	if err := w.run(ctx); err != nil {
		t.Fatal(err)
	}
	latency := w.all.sum()[measured].Latency
	if p95, worst := latency.Quantile(0.95), latency.Quantile(1); p95 < stall/4 || worst < stall*9/10 {
		t.Errorf("p95 %v, the worst %v of %d: nothing went on for %v of %v", p95, worst, latency.Count(), stall, run)
	}
}
