package stream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
)

// TestRetentionWorker_ChangedBeforeADrop: the worker has found what to drop, and a group is made or seeks back, or the policy changes: what is to
// be kept now stays.
func TestRetentionWorker_ChangedBeforeADrop(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]stream.Retention{"a group is made": {}, "a group seeks": {}, "all": {}, "unread": {Consumed: true}, "longer": {MaxAge: 48 * time.Hour}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := setup(t)
			for _, own := range []bool{false, true} {
				s := ensureNamed(t, db.Pool, fmt.Sprint("own tables ", own), own)
				fillBoth(t, db, s)
				gs, _ := runGroups(t, db.Pool, stream.GroupsConfig{})
				grouped := strings.HasPrefix(name, "a group")
				alter(t, db.Pool, s, stream.Retention{MaxAge: oldAge, Consumed: grouped})
				var g *stream.Group
				if grouped {
					g = openGroup(t, gs, s, "first")
					mustCommit(t, g, 100)
				}
				after := int64(0)
				keepWith(t, db, func() {
					var err error
					switch name {
					case "a group is made":
						g, err = gs.Open(context.Background(), s, "second", stream.GroupOptions{})
					case "a group seeks":
						after = 10
						err = g.Seek(context.Background(), after)
					default:
						err = s.SetRetention(context.Background(), policy)
						wantKept(t, s, 0)
					}
					if err != nil {
						t.Error(err)
					}
				})
				if name == "a group is made" {
					var err error
					if after, err = g.Offset(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				wantKept(t, s, after)
			}
		})
	}
}

// keep starts a RetentionWorker, which is stopped when the test ends.
func keep(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	k := stream.NewRetentionWorker(pool, stream.RetentionWorkerConfig{Every: 10 * time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { k.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
}

func alter(t *testing.T, pool *pgxpool.Pool, s *stream.Stream, r stream.Retention) {
	t.Helper()
	must(t, s.SetRetention(t.Context(), r))
}

func inspect(t *testing.T, s *stream.Stream) stream.Info {
	t.Helper()
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// waitInfo waits until the stream's Info is as wanted.
func waitInfo(t *testing.T, s *stream.Stream, what string, want func(stream.Info) bool) (info stream.Info) {
	t.Helper()
	testkit.Eventually(t, what, func() bool {
		info = inspect(t, s)
		return want(info)
	})
	return info
}

// wantTooOld wants the error to say that oldest is the oldest kept.
func wantTooOld(t *testing.T, what string, err error, oldest int64) {
	t.Helper()
	var tooOld *stream.TooOldError
	if !errors.As(err, &tooOld) || !errors.Is(err, stream.ErrTooOld) || tooOld.Oldest != oldest {
		t.Errorf("%s: %v, want a TooOldError with %d", what, err, oldest)
	}
}

// kilobytes returns n messages of a kilobyte with the key k.
func kilobytes(n int) []stream.Message {
	msgs := make([]stream.Message, n)
	for i := range msgs {
		msgs[i] = stream.Message{Key: "k", Payload: bytes.Repeat([]byte{'x'}, 1000)}
	}
	return msgs
}

func TestSetRetention_Errors(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	gone := ensureWith(t, db.Pool, "gone", stream.Options{})
	must(t, stream.Drop(t.Context(), db.Pool, "gone"))
	if err := gone.SetRetention(t.Context(), stream.Retention{}); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("no such stream: %v, want ErrNotFound", err)
	}
	for _, bad := range []stream.Retention{{MaxAge: -1}, {MaxBytes: -1}} {
		if err := s.SetRetention(t.Context(), bad); !errors.Is(err, stream.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", bad, err)
		}
	}
	for _, r := range []stream.Retention{{MaxAge: time.Hour}, {MaxAge: 3 * time.Minute, MaxBytes: 7, Consumed: true}, {Consumed: true}, {}} {
		alter(t, db.Pool, s, r)
		if got := inspect(t, s).Retention; got != r {
			t.Errorf("retention %+v, want %+v", got, r)
		}
	}
	alter(t, db.Pool, s, stream.Retention{MaxAge: time.Hour})
	must(t, stream.Drop(t.Context(), db.Pool, s.Name()))
	if _, err := s.Info(t.Context()); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("Info of a dropped stream: %v, want ErrNotFound", err)
	}
	if left := value[int](t, db.Pool, `SELECT (SELECT count(*) FROM tidewire.segment) + (SELECT count(*) FROM tidewire.retention)`); left != 0 {
		t.Errorf("%d rows of the dropped stream are left", left)
	}
}

// TestRetentionWorker_SweepsUpMarks: it deletes the marks of dead writers, without
// any Writer.
func TestRetentionWorker_SweepsUpMarks(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	exec(t, db.Pool, `INSERT INTO tidewire.batch VALUES (1, 1, 1, now() - interval '2 days'), (1, 2, 2, now())`)
	marks := func() (n int) {
		must(t, db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM tidewire.batch WHERE writer = 1`).Scan(&n))
		return n
	}
	mustAppend(t, run(t, db.Pool, s, stream.AppenderConfig{}), messages("x")...)
	if n := marks(); n != 2 {
		t.Errorf("after a batch of another writer there are %d marks, want 2", n)
	}
	keep(t, db.Pool)
	testkit.Eventually(t, "the sweep", func() bool { return marks() == 1 })
}

// TestRetentionWorker_BySize tests every way of reading with dropped messages.
func TestRetentionWorker_BySize(t *testing.T) {
	t.Parallel()
	notShort(t)
	ensureBoth(t, func(t *testing.T, db pgtest.DB, s *stream.Stream) {
		batches, maxBytes, segments := 25, int64(1<<20), 4
		shared := isShared(t, db, s)
		if shared { // with few enough to stay there
			batches, maxBytes, segments = 9, 256<<10, 0
		}
		alter(t, db.Pool, s, stream.Retention{MaxBytes: maxBytes})
		a := run(t, db.Pool, s, stream.AppenderConfig{})
		gs, _ := runGroups(t, db.Pool, stream.GroupsConfig{})
		behind := openGroup(t, gs, s, "lagging")
		pool, steps := countingPool(t, db.URL, "tidewire.retention") // a query each round
		keep(t, pool)
		for range batches {
			mustAppend(t, a, kilobytes(100)...)
			waitRounds(t, steps, 2) // a segment is sealed when it is large enough, and not long after that
		}
		info := waitInfo(t, s, "not dropped", func(i stream.Info) bool { return i.Oldest > 1 && i.Bytes <= maxBytes })
		if info.Head < int64(100*batches) || info.Segments < segments || info.Bytes < maxBytes/2 {
			t.Errorf("%+v: want about %d bytes in some segments", info, maxBytes)
		}
		if shared != isShared(t, db, s) || shared != (info.Segments == 0) {
			t.Errorf("%+v: the stream was shared: %t", info, shared)
		}
		if _, err := db.Pool.Exec(t.Context(), `DELETE FROM tidewire.retention`); err != nil { // the stream does not change from here on
			t.Fatal(err)
		}
		waitQuiet(t, db)
		info = inspect(t, s)
		head, err := s.Head(t.Context())
		if oldest, err := s.Oldest(t.Context()); oldest != info.Oldest || err != nil {
			t.Errorf("Oldest %d, %v, want %d", oldest, err, info.Oldest)
		}
		if head != info.Head || err != nil {
			t.Errorf("Head %d, %v, want %d", head, err, info.Head)
		}
		for _, after := range []int64{0, 1, info.Oldest - 2} {
			msgs, err := s.Read(t.Context(), after, 10)
			wantTooOld(t, fmt.Sprintf("Read after %d: %d messages", after, len(msgs)), err, info.Oldest)
		}
		msgs, err := s.Read(t.Context(), info.Oldest-1, math.MaxInt32)
		if err != nil || len(msgs) < 100 || msgs[0].Position < info.Oldest || msgs[len(msgs)-1].Position != head {
			t.Fatalf("Read of all: %d messages, %v", len(msgs), err)
		}
		first := msgs[0].Position
		if byKey, err := s.ReadKey(t.Context(), "k", 0, math.MaxInt64, 7); err != nil || len(byKey) != 7 || byKey[0].Position != first {
			t.Errorf("ReadKey: %d messages, %v, want 7 from %d on", len(byKey), err, first)
		}
		if last, err := s.LastKey(t.Context(), "k", math.MaxInt64, math.MaxInt64); err != nil || len(last) != len(msgs) || last[0].Position != first {
			t.Errorf("LastKey: %d messages, %v, want all %d", len(last), err, len(msgs))
		}
		h, _ := runHub(t, db.Pool, stream.HubConfig{})
		_, err = subscribe(t, h, s, stream.After(0)).Next(t.Context())
		wantTooOld(t, "Next after 0", err, info.Oldest)
		for name, start := range map[string]stream.Start{"zero": {}, "after": stream.After(info.Oldest - 1), "since": stream.AtTime(time.Time{})} {
			if page := next(t, subscribe(t, h, s, start)); page[0].Position != first {
				t.Errorf("%s: begins with %d, want %d", name, page[0].Position, first)
			}
		}
		_, err = subscribe(t, h, s, stream.After(0)).Next(t.Context()) // also when others have read on
		wantTooOld(t, "Next after 0, beside others", err, info.Oldest)
		lagging, err := behind.Subscribe(t.Context(), h)
		if err != nil {
			t.Fatal(err)
		}
		defer lagging.Close()
		_, err = lagging.Next(t.Context())
		wantTooOld(t, "the group that lags", err, info.Oldest)
		wantOffset(t, openGroup(t, gs, s, "new"), info.Oldest-1)
	})
}

// waitQuiet returns when no RetentionWorker's transaction that began before is under way.
func waitQuiet(t *testing.T, db pgtest.DB) {
	t.Helper()
	tx := begin(t, db.Pool, pgx.ReadCommitted)
	exec(t, tx, `SELECT pg_advisory_xact_lock(1953064037, 3)`)
	rollBack(t, tx)
}

// TestRetentionWorker_ByAge drops all messages of a stream; a reader that had read all
// misses nothing.
func TestRetentionWorker_ByAge(t *testing.T) {
	t.Parallel()
	ensureBoth(t, func(t *testing.T, db pgtest.DB, s *stream.Stream) {
		shared := isShared(t, db, s)
		a := run(t, db.Pool, s, stream.AppenderConfig{})
		h, _ := runHub(t, db.Pool, stream.HubConfig{Poll: 10 * time.Millisecond})
		sub := subscribe(t, h, s, stream.After(0))
		mustAppend(t, a, kilobytes(5)...)
		for sub.Position() < 5 {
			next(t, sub)
		}
		alter(t, db.Pool, s, stream.Retention{MaxAge: 50 * time.Millisecond})
		keep(t, db.Pool)
		waitInfo(t, s, "not all dropped", func(i stream.Info) bool { return i.Oldest == 6 && i.Head == 5 })
		if msgs, err := s.Read(t.Context(), 5, 10); len(msgs) != 0 || err != nil {
			t.Errorf("Read after the head: %v, %v", msgs, err)
		}
		_, err := s.Read(t.Context(), 4, 10)
		wantTooOld(t, "Read after 4", err, 6)
		for name, start := range map[string]stream.Start{"zero": {}, "end": stream.AtEnd(), "since": stream.AtTime(time.Now())} {
			if sub := subscribe(t, h, s, start); sub.Position() != 5 {
				t.Errorf("%s begins after %d, want 5", name, sub.Position())
			}
		}
		alter(t, db.Pool, s, stream.Retention{})
		late := subscribe(t, h, s, stream.After(5))
		// The rest of a sealed segment is a gap of thousands of positions.
		first := mustAppend(t, a, stream.Message{Payload: []byte("new")})
		if shared && first != 6 || !shared && first < 1000 || shared != isShared(t, db, s) {
			t.Errorf("the new message is at %d; the stream was shared: %t", first, shared)
		}
		for _, sub := range []*stream.Subscription{sub, late} {
			if page := next(t, sub); len(page) != 1 || page[0].Position != first {
				t.Errorf("page %v, want position %d", page, first)
			}
		}
		if msgs, err := s.Read(t.Context(), 5, 10); err != nil || len(msgs) != 1 || msgs[0].Position != first {
			t.Errorf("Read over the gap: %v, %v", msgs, err)
		}
	})
}

// waitRounds waits for some rounds of a RetentionWorker on the counting pool.
func waitRounds(t *testing.T, steps *counting, rounds int64) {
	until := steps.count.Load() + rounds
	testkit.Eventually(t, "rounds", func() bool { return steps.count.Load() >= until })
}

func TestRetentionWorker_Consumed(t *testing.T) {
	t.Parallel()
	ensureBoth(t, func(t *testing.T, db pgtest.DB, s *stream.Stream) {
		pool, steps := countingPool(t, db.URL, "tidewire.retention") // a query each round
		a := run(t, db.Pool, s, stream.AppenderConfig{})
		alter(t, db.Pool, s, stream.Retention{MaxAge: time.Millisecond, Consumed: true})
		keep(t, pool)
		last := mustAppend(t, a, kilobytes(10)...) + 9
		waitRounds(t, steps, 4)
		if info := inspect(t, s); info.Oldest != 1 {
			t.Errorf("%+v: dropped without a group", info)
		}
		gs, _ := runGroups(t, db.Pool, stream.GroupsConfig{})
		fast, slow := openGroup(t, gs, s, "fast"), openGroup(t, gs, s, "slow")
		exec(t, db.Pool, `DELETE FROM tidewire.group_offset_0 WHERE group_id = (SELECT id FROM tidewire.stream_group WHERE name = 'slow')`)
		mustCommit(t, fast, last)
		waitRounds(t, steps, 4)
		if info := inspect(t, s); info.Oldest != 1 {
			t.Errorf("%+v: dropped what a group without an offset may not have read", info)
		}
		must(t, slow.Seek(t.Context(), 0))
		mustCommit(t, slow, last-1)
		oldest := int64(1)
		if isShared(t, db, s) { // where each message is dropped separately
			oldest = last
			waitInfo(t, s, "not dropped up to the slow group", func(i stream.Info) bool { return i.Oldest == oldest })
		}
		waitRounds(t, steps, 4)
		if info := inspect(t, s); info.Oldest != oldest {
			t.Errorf("%+v: dropped what a group has not read", info)
		}
		alter(t, db.Pool, s, stream.Retention{MaxAge: time.Hour, Consumed: true})
		waitQuiet(t, db) // which still uses the old policy
		mustCommit(t, slow, last)
		waitRounds(t, steps, 4)
		if info := inspect(t, s); info.Oldest != oldest {
			t.Errorf("%+v: dropped before its age", info)
		}
		alter(t, db.Pool, s, stream.Retention{Consumed: true})
		waitInfo(t, s, "not dropped though all have read it", func(i stream.Info) bool { return i.Oldest == last+1 })
		if _, err := slow.Commit(t.Context(), last); err != nil {
			t.Errorf("the end, of which nothing is kept, once more: %v", err)
		}
	})
}

// TestRetentionWorker_LongReaderDelaysTheDropAlone: a waiting lock request blocks all
// later ones (lock queue), so the drop must not wait.
func TestRetentionWorker_LongReaderDelaysTheDropAlone(t *testing.T) {
	t.Parallel()
	db, s := ensureOwn(t)
	pool, steps := countingPool(t, db.URL, "tidewire.drop_expired")
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	mustAppend(t, a, stream.Message{})
	reader := begin(t, db.Pool, pgx.ReadCommitted)
	exec(t, reader, `SELECT count(*) FROM tidewire.stream_1000`)
	alter(t, db.Pool, s, stream.Retention{MaxAge: time.Millisecond})
	keep(t, pool)
	// An append that waited for a drop would also wait for the reader, and so forever.
	ctx := soon(t)
	for n := 0; n < 20 || steps.count.Load() < 8; n++ {
		if _, err := a.Append(ctx, stream.Message{}); err != nil {
			t.Fatalf("append beside drops that wait: %v", err)
		}
		if _, err := s.Read(ctx, 0, 10); err != nil {
			t.Fatalf("read beside drops that wait: %v", err)
		}
	}
	exec(t, reader, `SELECT count(*) FROM tidewire.stream_1000`)
	rollBack(t, reader)
	waitInfo(t, s, "not dropped before the reader", func(i stream.Info) bool { return i.Oldest > 1 })
}
