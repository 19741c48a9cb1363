package stream_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
)

// TestSegments_OldSnapshot uses a transaction whose snapshot is older than segments
// created and dropped since: it can append, and reads nothing wrong.
func TestSegments_OldSnapshot(t *testing.T) {
	t.Parallel()
	notShort(t)
	db, s := ensure(t)
	old := begin(t, db.Pool, pgx.RepeatableRead)
	exec(t, old, `SELECT count(*) FROM tidewire.segment`)
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	mustAppend(t, a, make([]stream.Message, 500)...)
	mustAppend(t, a, make([]stream.Message, 20_000)...)
	alter(t, db.Pool, s, stream.Retention{MaxAge: oldAge})
	keep(t, db.Pool)
	waitInfo(t, s, "segments are dropped", func(i stream.Info) bool { return i.Oldest > 16384 })
	must(t, s.AppendTx(t.Context(), old, make([]stream.Message, 30_000)...))
	commitTx(t, old)
	if info := inspect(t, s); info.Head < 50500 {
		t.Errorf("%+v: want 50,500 messages", info)
	}
}

// TestSegments_OneBatchLargerThanASegment by both methods.
func TestSegments_OneBatchLargerThanASegment(t *testing.T) {
	t.Parallel()
	notShort(t)
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
	ctx := soon(t) // only a writer that waits for the lock's holder takes as long
	for _, n := range []int{16_000, 384} {
		if _, err := a.Append(ctx, make([]stream.Message, n)...); err != nil {
			t.Fatalf("append %d: %v", n, err)
		}
	}
	if info := inspect(t, s); info.Segments != 1 || info.Head != 16_384 {
		t.Errorf("%+v: want one full segment", info)
	}
	next := submitAll(t, []*stream.Appender{a}, "next")
	awaitLockWaiters(t, db, 1)
	rollBack(t, holder)
	if next.Wait(); next.errs[0] != nil || next.firsts[0] < 16_385 {
		t.Errorf("stored at %d, %v, want after the first segment", next.firsts[0], next.errs[0])
	}
}

// TestDrop_ManySegments in several transactions, each with few locks.
func TestDrop_ManySegments(t *testing.T) {
	t.Parallel()
	notShort(t)
	db, s := ensureOwn(t)
	exec(t, db.Pool, `
SELECT tidewire.add_segment(1000, 16285 + 100 * n, 16384 + 100 * n) FROM generate_series(1, 110) AS n;
SELECT tidewire.take_positions(1000, 'tidewire.stream_1000_position_seq', 27400, 1, 1);
INSERT INTO tidewire.stream_1000 (position, payload) SELECT n, '' FROM generate_series(1, 27400) n`)
	if all := everything(t, s); len(all) != 27400 {
		t.Errorf("%d messages, want 27,400", len(all))
	}
	pool, steps := countingPool(t, db.URL, "tidewire.drop_segments")
	must(t, stream.Drop(t.Context(), pool, s.Name()))
	if n := steps.count.Load(); n != 1 {
		t.Errorf("%d transactions dropped the oldest of 111 segments, want 1", n)
	}
	if _, err := s.Head(t.Context()); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("Head: %v, want ErrNotFound", err)
	}
}

// TestRetentionWorker_LastSegmentAfterARollback: a transaction allocated positions after the end of the last
// segment, and was rolled back: an append that PostgreSQL cancelled, or whose lock timed out. A
// RetentionWorker's round later the stream can still be appended to.
func TestRetentionWorker_LastSegmentAfterARollback(t *testing.T) {
	t.Parallel()
	db, s := ensureOwn(t)
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	mustAppend(t, a, stream.Message{Payload: []byte("x")})
	tx := begin(t, db.Pool, "read committed")
	exec(t, tx, `SELECT tidewire.take_positions($1, $2::text::regclass, 16384, 1, 1)`, s.ID(), fmt.Sprintf("tidewire.stream_%d_position_seq", s.ID()))
	rollBack(t, tx)
	alter(t, db.Pool, s, stream.Retention{MaxAge: time.Millisecond})
	keepOnce(t, db.Pool)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := a.Append(ctx, stream.Message{Payload: []byte("y")}); err != nil {
		t.Error(err)
	}
}

// TestRetentionWorker_LastSegmentFull: the last segment was filled completely while, for example, ANALYZE
// held the lock that a new one needs. A RetentionWorker's round later the stream can still be appended to.
func TestRetentionWorker_LastSegmentFull(t *testing.T) {
	t.Parallel()
	db, s := ensureOwn(t)
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	tx := begin(t, db.Pool, "read committed")
	exec(t, tx, fmt.Sprintf(`LOCK TABLE ONLY tidewire.stream_%d IN SHARE UPDATE EXCLUSIVE MODE`, s.ID()))
	for range 16 {
		mustAppend(t, a, make([]stream.Message, 1024)...)
	}
	rollBack(t, tx)
	alter(t, db.Pool, s, stream.Retention{MaxAge: oldAge})
	keepOnce(t, db.Pool)
	if at, err := firstOf(a.Append(soon(t), messages("y")...)); err != nil || at <= 16384 {
		t.Errorf("at %d, %v", at, err)
	}
}

// keepWith applies retention once, and calls do between the lookup and the drop.
func keepWith(t *testing.T, db pgtest.DB, do func()) {
	t.Helper()
	called := false
	pool := poolBefore(t, db.URL, "tidewire.drop_", sync.OnceFunc(func() { called = true; do() }))
	keepOnce(t, pool)
	if !called {
		t.Fatal("nothing was dropped")
	}
}

// fillBoth stores a hundred messages older than oldAge, in a shared stream or one with its own tables.
func fillBoth(t *testing.T, db pgtest.DB, s *stream.Stream) {
	t.Helper()
	if isShared(t, db, s) {
		fill(t, db, s, 1, 100)
		return
	}
	mustAppend(t, run(t, db.Pool, s, stream.AppenderConfig{}), kilobytes(100)...)
}

const oldAge = time.Microsecond

// wantKept wants the messages after a position to be stored.
func wantKept(t *testing.T, s *stream.Stream, after int64) {
	t.Helper()
	if msgs, err := s.Read(t.Context(), after, 1000); err != nil || len(msgs) != 100-int(after) {
		t.Errorf("%d messages after %d, %v", len(msgs), after, err)
	}
}

// TestRetentionWorker_LargeMessagesAfterSmall: the oldest messages are dropped while the stream is larger
// than MaxBytes.
func TestRetentionWorker_LargeMessagesAfterSmall(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	fill(t, db, s, 1, 1000)
	alter(t, db.Pool, s, stream.Retention{MaxBytes: 128 << 10})
	keepOnce(t, db.Pool)
	exec(t, db.Pool, `INSERT INTO tidewire.shared_message (stream, position, keyed, key, payload)
		SELECT $1, n, true, 'k', (SELECT string_agg(sha256((n * 10000 + i)::text::bytea), '') FROM generate_series(1, 500) AS i)
		FROM generate_series(1001, 1100) AS n`, s.ID())
	for range 3 {
		keepOnce(t, db.Pool)
	}
	if n := value[int](t, db.Pool, `SELECT sum(pg_column_size(payload)) FROM tidewire.shared_message`); n > 256<<10 {
		t.Errorf("%d bytes are kept, of 128 KiB at most", n)
	}
}

// TestSubscribe_OldestBesideRetention: a subscription that begins with the oldest message that is
// kept gets no too_old, also if retention drops some before its first read.
func TestSubscribe_OldestBesideRetention(t *testing.T) {
	t.Parallel()
	ensureBoth(t, func(t *testing.T, db pgtest.DB, s *stream.Stream) {
		a := run(t, db.Pool, s, stream.AppenderConfig{})
		mustAppend(t, a, messages("a", "b")...)
		hub := stream.NewHub(db.Pool, stream.HubConfig{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		subs := make(map[string]*stream.Subscription)
		for name, start := range map[string]stream.Start{"oldest": {}, "since": stream.AtTime(time.Now().Add(-time.Hour)), "after": stream.After(0)} {
			sub, err := hub.Subscribe(ctx, s, start)
			if err != nil {
				t.Fatal(err)
			}
			defer sub.Close()
			subs[name] = sub
		}
		alter(t, db.Pool, s, stream.Retention{MaxAge: time.Millisecond})
		keep(t, db.Pool)
		waitInfo(t, s, "dropped", func(i stream.Info) bool { return i.Oldest == 3 })
		alter(t, db.Pool, s, stream.Retention{})
		at := mustAppend(t, a, messages("c")...)
		for _, name := range []string{"oldest", "since"} {
			if page, err := subs[name].Next(ctx); err != nil || len(page) != 1 || page[0].Position != at || string(page[0].Payload) != "c" {
				t.Errorf("%s: %v, %v, want the message at %d", name, page, err, at)
			}
		}
		_, err := subs["after"].Next(ctx)
		wantTooOld(t, "after 0", err, 3)
	})
}

// TestGroups_OldestBesideRetention: a group that is created at the oldest message
// gets no TooOldError for messages dropped while it was created.
func TestGroups_OldestBesideRetention(t *testing.T) {
	t.Parallel()
	ensureBoth(t, func(t *testing.T, db pgtest.DB, s *stream.Stream) {
		a := run(t, db.Pool, s, stream.AppenderConfig{})
		mustAppend(t, a, messages("a", "b")...)
		hold := begin(t, db.Pool, "")
		if _, err := hold.Exec(t.Context(), `SELECT pg_advisory_xact_lock(1953064037, 2)`); err != nil { // the lock of all offsets
			t.Fatal(err)
		}
		gs, _ := runGroups(t, db.Pool, stream.GroupsConfig{})
		var making sync.WaitGroup
		var g *stream.Group
		making.Go(func() {
			var err error
			if g, err = gs.Open(t.Context(), s, "new", stream.GroupOptions{}); err != nil {
				t.Error(err)
			}
		})
		testkit.Eventually(t, "the group to wait for the lock", func() bool {
			return value[bool](t, db.Pool, `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND locktype = 'advisory'
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`)
		})
		alter(t, db.Pool, s, stream.Retention{MaxAge: time.Millisecond})
		keep(t, db.Pool)
		waitInfo(t, s, "dropped", func(i stream.Info) bool { return i.Oldest == 3 })
		rollBack(t, hold)
		making.Wait()
		if offset, err := g.Offset(t.Context()); err != nil || offset != 2 {
			t.Errorf("the group is at %d, %v, want 2", offset, err)
		}
	})
}
