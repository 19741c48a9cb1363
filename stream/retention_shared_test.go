package stream_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

// keepOnce applies retention once.
func keepOnce(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	must(t, stream.NewRetentionWorker(pool, stream.RetentionWorkerConfig{}).Round(t.Context()))
}

// fill stores messages of a shared stream from one position to another directly in the table, with times a
// day ago.
func fill(t *testing.T, db pgtest.DB, s *stream.Stream, from, to int64) {
	t.Helper()
	exec(t, db.Pool, `INSERT INTO tidewire.shared_message (stream, position, keyed, key, payload, created_at)
		SELECT $1, n, true, 'k', 'x', now() - interval '1 day' FROM generate_series($2::bigint, $3) AS n`, s.ID(), from, to)
	exec(t, db.Pool, `SELECT tidewire.raise_shared_top($1)`, to)
}

// stands wants a stream to have exactly the messages from oldest to head.
func stands(t *testing.T, what string, s *stream.Stream, oldest, head int64) {
	t.Helper()
	if info := inspect(t, s); info.Oldest != oldest || info.Head != head {
		t.Errorf("%s: from %d to %d, want from %d to %d", what, info.Oldest, info.Head, oldest, head)
	}
	all, err := s.Read(t.Context(), oldest-1, 100_000)
	if err != nil || len(all) > 0 && (all[0].Position < oldest || all[len(all)-1].Position != head) || len(all) == 0 && head >= oldest {
		t.Errorf("%s: %d messages, %v", what, len(all), err)
	}
	if oldest > 1 {
		_, err := s.Read(t.Context(), oldest-2, 10)
		wantTooOld(t, what, err, oldest)
	}
}

// TestRetentionWorker_EmptiedStreamGoesOn: a stream whose messages are all dropped continues after its last
// allocated position, in every way of appending.
func TestRetentionWorker_EmptiedStreamGoesOn(t *testing.T) {
	t.Parallel()
	db := setup(t)
	gs, _ := runGroups(t, db.Pool, stream.GroupsConfig{})
	h, _ := runHub(t, db.Pool, stream.HubConfig{Poll: 10 * time.Millisecond})
	request := stream.RequestID{Client: "p", Sequence: 1}
	for name, next := range map[string]func(s *stream.Stream){
		"alone": func(s *stream.Stream) {
			mustAppend(t, run(t, db.Pool, s, stream.AppenderConfig{Linger: time.Millisecond}), messages("next")...)
		},
		"together": func(s *stream.Stream) { appendTogether(t, db, s) },
		"request together": func(s *stream.Stream) {
			appendTogether(t, db, s, 1)
			if again := mustAppendAs(t, run(t, db.Pool, s, stream.AppenderConfig{}), request, "next"); again != 201 {
				t.Errorf("once more: %d", again)
			}
		},
		"request": func(s *stream.Stream) {
			a := run(t, db.Pool, s, stream.AppenderConfig{})
			for range 2 {
				mustAppendAs(t, a, request, "next")
			}
		},
		"transaction": func(s *stream.Stream) {
			tx := begin(t, db.Pool, pgx.ReadCommitted)
			publish(t, tx, s, "next")
			commitTx(t, tx)
		},
		"move": func(s *stream.Stream) {
			moveStream(t, db.Pool, s)
			stands(t, "moved", s, 201, 200)
			if isShared(t, db, s) {
				t.Error("it has not moved")
			}
			mustAppend(t, run(t, db.Pool, s, stream.AppenderConfig{}), messages("next")...)
		},
	} {
		s := ensureNamed(t, db.Pool, name, false)
		fill(t, db, s, 1, 200)
		g := openGroup(t, gs, s, "at the beginning")
		alter(t, db.Pool, s, stream.Retention{MaxAge: time.Hour})
		keepOnce(t, db.Pool)
		stands(t, name+", emptied", s, 201, 200)
		lagging, err := g.Subscribe(t.Context(), h)
		if err != nil {
			t.Fatal(err)
		}
		_, err = lagging.Next(soon(t))
		wantTooOld(t, name+", the group", err, 201)
		lagging.Close()
		if _, err := g.Commit(t.Context(), 200); err != nil {
			t.Errorf("%s: the group goes on: %v", name, err)
		}
		ended := subscribe(t, h, s, stream.AtEnd())
		for _, start := range []stream.Start{{}, stream.AtTime(time.Now().Add(-time.Hour)), stream.AtTime(time.Time{})} {
			if sub := subscribe(t, h, s, start); sub.Position() != 200 {
				t.Errorf("%s: begins after %d", name, sub.Position())
			}
		}
		next(s)
		stands(t, name+", goes on", s, 201, 201)
		page, err := ended.Next(soon(t))
		if err != nil || len(page) != 1 || page[0].Position != 201 || string(page[0].Payload) != "next" {
			t.Errorf("%s: a subscription at the end: %v, %v", name, page, err)
		}
		if byKey, err := s.LastKey(t.Context(), "k", math.MaxInt64, 10); err != nil || len(byKey) > 0 {
			t.Errorf("%s, by key: %d, %v", name, len(byKey), err)
		}
		keepOnce(t, db.Pool)
		stands(t, name+", kept", s, 201, 201)
	}
}

// appendTogether stores a message of the stream, with others or not, and the request that it was sent with if
// there is one.
func appendTogether(t *testing.T, db pgtest.DB, s *stream.Stream, requests ...int64) {
	t.Helper()
	first := value[int64](t, db.Pool, `SELECT firsts[1] FROM tidewire.append_together(1, $1::int::bigint, ARRAY[$1::int], ARRAY[0::bigint], ARRAY[1], ARRAY[1], ARRAY['next'::bytea], ARRAY[NULL], ARRAY[NULL::jsonb],
		ARRAY[cardinality($2::bigint[])], array_fill('p'::text, ARRAY[cardinality($2)]), $2, array_fill(0::bigint, ARRAY[cardinality($2)]), array_fill(1, ARRAY[cardinality($2)]))`, s.ID(), append([]int64{}, requests...))
	if first != 201 {
		t.Errorf("at %d", first)
	}
}

// TestRetentionWorker_OldSnapshotPublishes: a transaction with an old snapshot publishes to a stream that was
// emptied since, and does not fail because of retention.
func TestRetentionWorker_OldSnapshotPublishes(t *testing.T) {
	t.Parallel()
	for _, level := range levels[1:] {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			db, s := ensure(t)
			fill(t, db, s, 1, 2000)
			tx := begin(t, db.Pool, level)
			exec(t, tx, `SELECT FROM tidewire.stream`)
			alter(t, db.Pool, s, stream.Retention{MaxAge: time.Hour})
			keepOnce(t, db.Pool)
			publish(t, tx, s, "old")
			commitTx(t, tx)
			all, err := s.Read(t.Context(), 2000, 10)
			if err != nil || len(all) != 1 || string(all[0].Payload) != "old" {
				t.Fatalf("%v, %v", all, err)
			}
			stands(t, "after it", s, 2001, all[0].Position)
			if first := mustAppend(t, run(t, db.Pool, s, stream.AppenderConfig{}), stream.Message{}); first != all[0].Position+1 {
				t.Errorf("the next one is at %d, after %d", first, all[0].Position)
			}
		})
	}
}

// TestRetentionWorker_Backlog: more messages are dropped than one lookup finds and one transaction deletes.
func TestRetentionWorker_Backlog(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	fill(t, db, s, 1, 12_345)
	other := ensureWith(t, db.Pool, "other", stream.Options{Keyed: true})
	fill(t, db, other, 1, 3)
	gs, _ := runGroups(t, db.Pool, stream.GroupsConfig{})
	g := openGroup(t, gs, s, "g")
	mustCommit(t, g, 11_111)
	alter(t, db.Pool, s, stream.Retention{Consumed: true})
	alter(t, db.Pool, other, stream.Retention{MaxAge: time.Hour})
	keepOnce(t, db.Pool)
	stands(t, "consumed", s, 11_112, 12_345)
	stands(t, "aged", other, 4, 3)
	if floors := value[int](t, db.Pool, `SELECT count(*) FROM tidewire.shared_floor`); floors != 2 {
		t.Errorf("%d floors, want one for each stream", floors)
	}
}

// TestRetentionWorker_LockedStreamIsLeft: a lock on the row of a stream delays only the retention of this
// stream, and appends to it continue.
func TestRetentionWorker_LockedStreamIsLeft(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	other := ensureWith(t, db.Pool, "other", stream.Options{Keyed: true})
	for _, s := range []*stream.Stream{s, other} {
		fill(t, db, s, 1, 10)
		alter(t, db.Pool, s, stream.Retention{MaxAge: time.Hour, MaxBytes: 1 << 20})
	}
	holder := begin(t, db.Pool, pgx.ReadCommitted)
	exec(t, holder, `SELECT FROM tidewire.stream WHERE id = $1 FOR UPDATE`, s.ID())
	keepOnce(t, db.Pool)
	stands(t, "locked", s, 1, 10)
	stands(t, "not locked", other, 11, 10)
	commitTx(t, holder)
	keepOnce(t, db.Pool)
	stands(t, "not locked any more", s, 11, 10)
}

// TestRetentionWorker_DropDelaysNoAppend: while a transaction that drops messages is open, others append and
// read, and see the stream before or after the drop.
func TestRetentionWorker_DropDelaysNoAppend(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	fill(t, db, s, 1, 10)
	alter(t, db.Pool, s, stream.Retention{MaxAge: time.Hour}) // a RetentionWorker drops by a policy
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	keeper := begin(t, db.Pool, pgx.ReadCommitted)
	exec(t, keeper, `SELECT tidewire.drop_shared(ARRAY[$1::int], ARRAY[10::bigint], ARRAY(SELECT tidewire.policy_of(r) FROM tidewire.retention AS r WHERE r.stream = $1))`, s.ID())
	ctx := soon(t)
	if first, err := firstOf(a.Append(ctx, messages("during")...)); err != nil || first != 11 {
		t.Errorf("at %d, %v", first, err)
	}
	alone := run(t, db.Pool, s, stream.AppenderConfig{Linger: time.Millisecond})
	if first, err := firstOf(alone.Append(ctx, messages("alone")...)); err != nil || first != 12 {
		t.Errorf("alone at %d, %v", first, err)
	}
	stands(t, "before the commit", s, 1, 12)
	commitTx(t, keeper)
	stands(t, "after the commit", s, 11, 12)
}

// TestRetentionWorker_LargeStreamMoves: a shared stream that is, and may be, larger than a segment gets its
// own tables. Its kept messages move there.
func TestRetentionWorker_LargeStreamMoves(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	fill(t, db, s, 1, 10)
	exec(t, db.Pool, `INSERT INTO tidewire.shared_message (stream, position, keyed, payload) SELECT $1, n, true, 'large' FROM generate_series(11, 19) AS n`, s.ID())
	exec(t, db.Pool, `CREATE OR REPLACE FUNCTION tidewire.shared_bytes(key text, headers jsonb, payload bytea) RETURNS int LANGUAGE sql IMMUTABLE
		AS $$ SELECT CASE payload WHEN 'large' THEN 16000000 ELSE 100 END $$`)
	alter(t, db.Pool, s, stream.Retention{MaxAge: time.Hour, MaxBytes: 1 << 30})
	forbidden := begin(t, db.Pool, pgx.ReadCommitted)
	exec(t, forbidden, `SELECT pg_advisory_xact_lock(1953064037, $1)`, s.ID())
	keepOnce(t, db.Pool)
	if !isShared(t, db, s) {
		t.Error("it has moved beside a writer")
	}
	stands(t, "shared", s, 11, 19)
	commitTx(t, forbidden)
	alter(t, db.Pool, s, stream.Retention{MaxAge: time.Hour, MaxBytes: 1<<30 + 1})
	keepOnce(t, db.Pool)
	if isShared(t, db, s) {
		t.Error("it has not moved")
	}
	stands(t, "moved", s, 11, 19)
}

// blocks returns how many blocks a query reads with warm catalogue caches: the minimum of several
// runs, because new statistics may cause a new plan in between.
func blocks(t *testing.T, db pgtest.DB, sql string, args ...any) (least int) {
	t.Helper()
	conn, err := db.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	least = math.MaxInt
	for range 5 {
		least = min(least, plannedBlocks(t, conn, `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) `+sql, append([]any{pgx.QueryExecModeCacheDescribe}, args...)...))
	}
	return least
}

// plannedBlocks returns how many blocks an explained query has read.
func plannedBlocks(t *testing.T, on interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}, sql string, args ...any) int {
	t.Helper()
	var plan []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	if err := on.QueryRow(t.Context(), sql, args...).Scan(&plan); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return plan[0].Plan.Hit + plan[0].Plan.Read
}

// TestRetentionWorker_ManySharedStreams: hundreds of streams with a policy stay shared, and a round of a RetentionWorker is
// a few statements for all.
func TestRetentionWorker_ManySharedStreams(t *testing.T) {
	t.Parallel()
	notShort(t)
	const streams = 300
	db := setup(t)
	s := ensureWith(t, db.Pool, "parts", stream.Options{Partitions: streams})
	alter(t, db.Pool, s, stream.Retention{MaxAge: time.Hour, MaxBytes: 1 << 30})
	add := func(n int, age string) {
		exec(t, db.Pool, `INSERT INTO tidewire.shared_message (stream, position, keyed, payload, created_at)
			SELECT id, tidewire.shared_head(id) + n, false, 'x', now() - $2::text::interval FROM tidewire.stream, generate_series(1, $1) AS n WHERE parent IS NOT NULL`, n, age)
	}
	add(20, "1 day")
	add(5, "0")
	pool, looks := countingPool(t, db.URL, "tidewire.due_shared")
	round := func() (statements int64) {
		before := looks.count.Load() + looks.others.Load()
		keepOnce(t, pool)
		return looks.count.Load() + looks.others.Load() - before
	}
	if n := round(); n > 30 {
		t.Errorf("%d statements to drop 6,000 messages of %d streams", n, streams)
	}
	for _, p := range []int{0, 1, streams - 1} {
		stands(t, "kept by age", s.Partition(p), 21, 25)
	}
	var left, shared, tables int
	if err := db.Pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM tidewire.shared_message), (SELECT count(*) FROM tidewire.stream WHERE shared),
		(SELECT count(*) FROM pg_class WHERE relname LIKE 'stream\_1%')`).Scan(&left, &shared, &tables); err != nil {
		t.Fatal(err)
	}
	if left != 5*streams || shared != streams+1 || tables > 0 {
		t.Errorf("%d messages, %d streams are shared, %d tables", left, shared, tables)
	}
	for range 2 {
		if n := round(); n > 12 { // on a caller's pool, each step queries whether commits wait for standbys
			t.Errorf("%d statements with nothing to do", n)
		}
	}
	if n := blocks(t, db, `SELECT FROM tidewire.due_shared(false, 0, NULL, 1000, 1000)`); n > 25*streams {
		t.Errorf("%d blocks to look at %d streams with nothing to do", n, streams)
	} else {
		t.Logf("%d blocks to look at %d streams", n, streams)
	}
}
