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
	s.out.Vice.Wait()
	if s.out.Vice == faulty.Reordering { // within what was written together: nothing is held when the run ends
		told = slices.Clone(payloads)
		slices.Reverse(told)
		return told, err
	}
	for _, p := range payloads {
		s.out.Pass(p, func(p []byte) { told = append(told, p) })
	}
	return told, err
}

// readBy is a queue run with a vice, with readers or without any.
func readBy(t *testing.T, mode string, readers int, vice faulty.Vice) *bench.Result {
	t.Helper()
	db := pgtest.Open(t)
	load := QueueLoad{Mode: mode, Writers: 1, InFlight: 10, Batch: 4, Payload: 64, Rate: 200, Partitions: 1, Linger: time.Millisecond}
	if readers > 0 {
		load.Readers, load.ReadBatch, load.Groups = readers, 50, 1
	}
	duration := 500 * time.Millisecond
	if vice == faulty.Slow {
		duration = 2 * time.Second // of a busy machine, which has to deliver something in it
	}
	result := bench.NewResult(mode, nil)
	err := Queue(t.Context(), QueueConfig{
		QueueLoad: load, Strategies: []string{vice.String()}, Repeat: 1, WarmUp: 100 * time.Millisecond, Duration: duration,
		Report: time.Second, Pool: db.Pool, Database: db.URL, Part: testWorker, Progress: t.Logf,
	}, result)
	if err != nil {
		t.Fatal(err)
	}
	withoutTime(result) // a machine without free CPU time sends late, which also makes a run invalid
	return result
}

// TestVices_PubSub: readers get everything once and in order.
func TestVices_PubSub(t *testing.T) {
	t.Parallel()
	eachVice(t, func(t *testing.T, vice faulty.Vice) {
		result := readBy(t, "pubsub", 2, vice)
		judged(t, result, vice.String(), "end_to_end_", vice, spoiling...)
		if m := result.Row(vice.String()).Metrics; m["reordered"] > 0 != (vice == faulty.Reordering) {
			t.Errorf("%v reordered", m["reordered"])
		}
	})
}

// TestVices_Queue: a queue promises no order.
func TestVices_Queue(t *testing.T) {
	t.Parallel()
	for _, vice := range spoiling {
		t.Run(vice.String(), func(t *testing.T) {
			t.Parallel()
			judged(t, readBy(t, "queue", 2, vice), vice.String(), "end_to_end_", vice, faulty.Lossy, faulty.Duplicating)
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
		result := readBy(t, "pubsub", 0, vice)
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
		time.Sleep(s.to.Sub(now)) // pace: the side answers nothing during the stall
	}
	done(nil)
	return nil
}

func (stalled) close() {}

// TestStall_Writers: the latency of messages due during a stall includes the
// wait, even if they were sent later.
func TestStall_Writers(t *testing.T) {
	t.Parallel()
	const run, stall = time.Second, 100 * time.Millisecond
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
