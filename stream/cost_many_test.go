package stream_test

import (
	"context"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

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

// nestedPlans runs a query in a transaction that is rolled back, and returns the plans of all statements that
// functions ran.
func nestedPlans(t *testing.T, db pgtest.DB, sql string, args ...any) string {
	t.Helper()
	cfg, err := pgx.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	cfg.OnNotice = func(_ *pgconn.PgConn, notice *pgconn.Notice) { text.WriteString(notice.Message + "\n") }
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, s := range []string{`LOAD 'auto_explain'`, `SET auto_explain.log_min_duration = 0`, `SET auto_explain.log_analyze = on`,
		`SET auto_explain.log_nested_statements = on`, `SET auto_explain.log_level = notice`, `SET auto_explain.log_timing = off`} {
		if _, err := conn.Exec(t.Context(), s); err != nil {
			t.Skip(err)
		}
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
		t.Error(err)
	}
	return text.String()
}

var removed = regexp.MustCompile(`Rows Removed by (?:Join Filter|Filter): (\d+)`)

// TestAppendTogether_ManyRequests: a transaction of 1000 streams with four requests each reads each of these once.
func TestAppendTogether_ManyRequests(t *testing.T) {
	t.Parallel()
	const streams, each = 1000, 4
	db := setup(t)
	exec(t, db.Pool, `INSERT INTO tidewire.stream (name, keyed, shared) SELECT 's' || n, false, true FROM generate_series(1, $1) AS n`, streams)
	var ids []int32
	if err := db.Pool.QueryRow(t.Context(), `SELECT array_agg(id ORDER BY id) FROM tidewire.stream WHERE shared`).Scan(&ids); err != nil {
		t.Fatal(err)
	}
	text := nestedPlans(t, db, `SELECT FROM tidewire.append_together(7, 1, $1, array_fill(0::bigint, ARRAY[$2::int]), array_fill($3::int, ARRAY[$2::int]),
		ARRAY(SELECT 1 + n / $3 FROM generate_series(0, $2 * $3 - 1) AS n), array_fill('x'::bytea, ARRAY[$2 * $3]), array_fill(NULL::text, ARRAY[$2 * $3]),
		array_fill(NULL::jsonb, ARRAY[$2 * $3]), array_fill($3::int, ARRAY[$2::int]), array_fill('p'::text, ARRAY[$2 * $3]),
		ARRAY(SELECT n::bigint FROM generate_series(1, $2 * $3) AS n), ARRAY(SELECT (n % $3)::bigint FROM generate_series(0, $2 * $3 - 1) AS n),
		array_fill(1, ARRAY[$2 * $3]))`, ids, len(ids), each)
	for _, m := range removed.FindAllStringSubmatch(text, -1) {
		if n, _ := strconv.Atoi(m[1]); n > 50*streams*each {
			at := strings.Index(text, m[0])
			t.Errorf("%d rows looked at in vain for %d requests\n%s", n, streams*each, text[max(0, at-1500):at+300])
		}
	}
}
