package stream_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/stream"
)

// TestSegments_OldSnapshot uses a transaction whose snapshot is older than segments
// created and dropped since: it can append, and reads nothing wrong.
func TestSegments_OldSnapshot(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			db, s := ensure(t)
			old := begin(t, db.Pool, level)
			exec(t, old, `SELECT count(*) FROM tidewire.segment`)
			a := run(t, db.Pool, s, stream.AppenderConfig{})
			mustAppend(t, a, kilobytes(500)...)
			mustAppend(t, a, kilobytes(20000)...)
			alter(t, db.Pool, s, stream.Retention{MaxBytes: 1 << 20})
			keep(t, db.Pool)
			waitInfo(t, s, "not dropped", func(i stream.Info) bool { return i.Oldest > 16384 })
			if err := s.AppendTx(t.Context(), old, kilobytes(30000)...); err != nil {
				t.Fatal(err)
			}
			commitTx(t, old)
			info := inspect(t, s)
			if info.Head < 50500 {
				t.Errorf("%+v: want 50,500 messages", info)
			}
		})
	}
}

// TestSegments_OneBatchLargerThanASegment by both methods.
func TestSegments_OneBatchLargerThanASegment(t *testing.T) {
	t.Parallel()
	for name, method := range bothMethods {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, s := ensure(t)
			a := run(t, db.Pool, s, stream.AppenderConfig{Writer: stream.WriterConfig{Method: method}})
			mustAppend(t, a, stream.Message{})
			if first := mustAppend(t, a, make([]stream.Message, 45_000)...); first != 2 {
				t.Errorf("the batch is at %d, want 2", first)
			}
			mustAppend(t, a, stream.Message{})
			all := everything(t, s)
			if len(all) != 45_002 || all[len(all)-1].Position != 45_002 {
				t.Errorf("%d messages up to %d, want 45,002", len(all), all[len(all)-1].Position)
			}
			if info := inspect(t, s); info.Segments != 3 {
				t.Errorf("%+v: want three segments", info)
			}
		})
	}
}

// TestSegments_SpareOneCanWait: a lock that prevents attaching a segment delays no
// writer before the end of the last segment.
func TestSegments_SpareOneCanWait(t *testing.T) {
	t.Parallel()
	db, s := ensureOwn(t)
	holder := begin(t, db.Pool, pgx.ReadCommitted)
	exec(t, holder, `LOCK TABLE ONLY tidewire.stream_1000 IN SHARE UPDATE EXCLUSIVE MODE`)
	a := run(t, db.Pool, s, stream.AppenderConfig{Writer: stream.WriterConfig{LockTimeout: time.Minute}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // only a writer that waits for the lock's holder takes as long
	defer cancel()
	for _, n := range []int{16_000, 384} {
		if _, err := a.Append(ctx, make([]stream.Message, n)...); err != nil {
			t.Fatalf("append %d: %v", n, err)
		}
	}
	if info := inspect(t, s); info.Segments != 1 || info.Head != 16_384 {
		t.Errorf("%+v: want one full segment", info)
	}
	stored := make(chan int64)
	go func() {
		first, err := firstOf(a.Append(t.Context(), stream.Message{}))
		if err != nil {
			t.Error(err)
		}
		stored <- first
	}()
	select {
	case first := <-stored:
		t.Errorf("stored at %d without a segment", first)
		return
	case <-time.After(50 * time.Millisecond):
	}
	rollBack(t, holder)
	if first := <-stored; first < 16_385 {
		t.Errorf("stored at %d, want after the first segment", first)
	}
}

// TestDrop_ManySegments in several transactions, each with few locks.
func TestDrop_ManySegments(t *testing.T) {
	t.Parallel()
	db, s := ensureOwn(t)
	exec(t, db.Pool, `
SELECT tidewire.add_segment(1000, 16285 + 100 * n, 16384 + 100 * n) FROM generate_series(1, 170) AS n;
SELECT tidewire.take_positions(1000, 'tidewire.stream_1000_position_seq', 33000, 1, 1);
INSERT INTO tidewire.stream_1000 (position, payload) SELECT n, '' FROM generate_series(1, 33000) n`)
	if all := everything(t, s); len(all) != 33000 {
		t.Errorf("%d messages, want 33,000", len(all))
	}
	pool, steps := countingPool(t, db.URL, "tidewire.drop_segments")
	if err := stream.Drop(t.Context(), pool, s.Name()); err != nil {
		t.Fatal(err)
	}
	if n := steps.count.Load(); n != 3 {
		t.Errorf("%d transactions dropped the oldest of 171 segments, want 3", n)
	}
	if _, err := s.Head(t.Context()); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("Head: %v, want ErrNotFound", err)
	}
}
