package stream_test

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

// TestRetentionWorker_HeldSnapshot: an old snapshot still shows the dropped messages, and
// no query scans these dead rows to find the kept ones.
func TestRetentionWorker_HeldSnapshot(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	fill(t, db, s, 1, 30_000)
	alter(t, db.Pool, s, stream.Retention{MaxAge: time.Hour})
	held := begin(t, db.Pool, pgx.RepeatableRead)
	lasts := func(tx interface {
		Query(context.Context, string, ...any) (pgx.Rows, error)
	}) []int64 {
		rows, err := tx.Query(t.Context(), `SELECT position FROM tidewire.read_shared($1, 29997, $2, 100, NULL)`, s.ID(), int64(math.MaxInt64))
		if err != nil {
			t.Fatal(err)
		}
		all, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := lasts(held)
	keepOnce(t, db.Pool)
	if after := lasts(held); !slices.Equal(after, before) || !slices.Equal(after, []int64{29998, 29999, 30000, -1}) {
		t.Errorf("under the snapshot %d, and before %d", after, before)
	}
	if after := lasts(db.Pool); !slices.Equal(after, []int64{-30001}) {
		t.Errorf("without it %d", after)
	}
	for what, sql := range map[string]string{
		"head": `SELECT tidewire.shared_head($1)`, "state": `SELECT FROM tidewire.stream_state($1)`,
		"heads": `SELECT FROM tidewire.stream_heads(ARRAY[$1::int], ARRAY[0::bigint])`, "heads again": `SELECT FROM tidewire.stream_heads(ARRAY[$1::int], ARRAY[30000::bigint])`,
		"read": `SELECT FROM tidewire.read_shared($1, 0, 100000, 100, NULL)`, "page": `SELECT FROM tidewire.read_shared($1, 30000, 100000, 100, 1000)`,
		"key":  `SELECT FROM tidewire.read_key($1, 'k', 0, 100000, 100, true)`,
		"look": `SELECT FROM tidewire.due_shared(false, $1 - 1, NULL, 100, 100)`,
	} {
		if n := blocks(t, db, sql, s.ID()); n > 200 {
			t.Errorf("%s: %d blocks", what, n)
		}
	}
	const send = `SELECT FROM tidewire.append_together(7, txid_current(), ARRAY[$1::int], ARRAY[0::bigint], ARRAY[1], ARRAY[1],
		ARRAY['x'::bytea], ARRAY[NULL::text], ARRAY[NULL::jsonb], ARRAY[0], '{}', '{}', '{}', '{}')`
	if n := blocks(t, db, send, s.ID()); n > 200 {
		t.Errorf("append: %d blocks", n)
	}
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

// TestRetentionWorker_SizesAreComputedSeldom: the size of a stream that has not grown much is computed
// again only when the policy has changed.
func TestRetentionWorker_SizesAreComputedSeldom(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	fill(t, db, s, 1, 800)
	sized := func(want int64) {
		t.Helper()
		keepOnce(t, db.Pool)
		var at int64
		if err := db.Pool.QueryRow(t.Context(), `SELECT coalesce(sized, 0) FROM tidewire.retention WHERE stream = $1`, s.ID()).Scan(&at); err != nil || at != want {
			t.Errorf("reckoned at %d, %v, want %d", at, err, want)
		}
	}
	alter(t, db.Pool, s, stream.Retention{MaxBytes: 1 << 20})
	sized(800)
	fill(t, db, s, 801, 899)
	sized(800)
	fill(t, db, s, 900, 900)
	sized(900)
	alter(t, db.Pool, s, stream.Retention{MaxBytes: 10 * 102}) // 100 with a payload of 1 and a key of 1
	keepOnce(t, db.Pool)
	info := inspect(t, s)
	if info.Head != 900 || info.Oldest < 885 || info.Oldest > 892 || info.Bytes > 1020 {
		t.Errorf("%+v", info)
	}
	stands(t, "kept by size", s, info.Oldest, 900)
	sized(900)
	fill(t, db, s, 901, 905)
	keepOnce(t, db.Pool)
	stands(t, "and some more", s, info.Oldest+5, 905)
}
