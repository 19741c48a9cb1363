package stream

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// prepared are statements whose plans a session keeps. %d is the id of a stream that shares tables.
var prepared = map[string]string{
	"heads":        `SELECT FROM tidewire.stream_heads(ARRAY[%d], ARRAY[0::bigint])`,
	"heads again":  `SELECT FROM tidewire.stream_heads(ARRAY[%d], ARRAY[30000::bigint])`,
	"head":         `SELECT tidewire.shared_head(%d)`,
	"state":        `SELECT FROM tidewire.stream_state(%d)`,
	"read":         `SELECT FROM tidewire.read_shared(%d, 0, 100000, 100, NULL)`,
	"page":         `SELECT FROM tidewire.read_shared(%d, 29000, 100000, 100, 1000)`,
	"find request": `SELECT FROM tidewire.find_requests(%d, ARRAY['p'], ARRAY[txid_current()])`,
	"append": `SELECT FROM tidewire.append_together(7, txid_current(), ARRAY[%d], ARRAY[0::bigint], ARRAY[1], ARRAY[1],
		ARRAY['x'::bytea], ARRAY[NULL::text], ARRAY[NULL::jsonb], ARRAY[0], '{}', '{}', '{}', '{}')`,
	"request": `SELECT FROM tidewire.append_together(8, txid_current(), ARRAY[%d], ARRAY[0::bigint], ARRAY[1], ARRAY[1],
		ARRAY['x'::bytea], ARRAY[NULL::text], ARRAY[NULL::jsonb], ARRAY[1], ARRAY['p'], ARRAY[txid_current()], ARRAY[0::bigint], ARRAY[1])`,
	"commit": `SELECT FROM tidewire.commit_offsets(ARRAY(SELECT id FROM tidewire.stream_group WHERE stream = %[1]d),
		ARRAY[(SELECT count(*) FROM tidewire.batch)])`, // each time another position
}

// TestCost: a statement reads few blocks, however many streams, messages and records there are. A session keeps the plans that it made
// when there were none. An old snapshot that keeps dropped messages in the table makes no query read these.
func TestCost(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	db := migrated(t)
	busy, err := Ensure(t.Context(), db.Pool, "busy", Options{Keyed: true})
	if err != nil {
		t.Fatal(err)
	}
	emptied, err := Ensure(t.Context(), db.Pool, "emptied", Options{Keyed: true})
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, db, `SELECT tidewire.ensure_group(id, 'g', 0) FROM tidewire.stream`)
	for _, table := range []string{"message", "request_0", "request_1", "request_floor"} {
		mustExec(t, db, `ALTER TABLE tidewire.shared_`+table+` SET (autovacuum_enabled = false)`)
		mustExec(t, db, `VACUUM ANALYZE tidewire.shared_`+table)
	}
	conn, err := db.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), `SET plan_cache_mode = force_generic_plan`); err != nil { // as after the fifth time
		t.Fatal(err)
	}
	check := func(when string, s *Stream, most int) {
		t.Helper()
		for what, sql := range prepared {
			if n := leastBlocks(t, conn, fmt.Sprintf(sql, s.id)); n > most {
				t.Errorf("%s, %s: %d blocks, want at most %d", when, what, n, most)
			}
		}
	}
	check("empty", busy, 1000)
	mustExec(t, db, `INSERT INTO tidewire.stream (name, keyed, shared) SELECT 'other' || n, false, true FROM generate_series(1, 10000) AS n`)
	mustExec(t, db, `INSERT INTO tidewire.shared_message (stream, position, keyed, key, payload, created_at)
		SELECT id, n, keyed, 'k', 'x', now() - interval '1 day' FROM generate_series(101, 30000) AS n, tidewire.stream WHERE name IN ('busy', 'emptied')`)
	mustExec(t, db, `SELECT tidewire.raise_shared_top(30000)`)
	for _, table := range []string{"request_0", "request_1"} {
		mustExec(t, db, `INSERT INTO tidewire.shared_`+table+` (stream, client, sequence, position, count) SELECT $1, 'other' || n % 5, n, n, 1 FROM generate_series(1, 10000) AS n`, busy.id)
	}
	mustExec(t, db, `INSERT INTO tidewire.shared_request_floor (stream, client, sequence) SELECT $1, n::text, 1 FROM generate_series(1, 10000) AS n`, busy.id)
	check("plans are kept", busy, 300)
	if err := emptied.SetRetention(t.Context(), Retention{MaxAge: time.Hour}); err != nil {
		t.Fatal(err)
	}
	held, err := db.Pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer held.Rollback(context.Background())
	sees := func() (messages int) {
		t.Helper()
		err := held.QueryRow(t.Context(), `SELECT count(*) FROM tidewire.read_shared($1, 29997, 100000, 100, NULL) WHERE position > 0`, emptied.id).Scan(&messages)
		if err != nil {
			t.Fatal(err)
		}
		return messages
	}
	before := sees()
	if err := NewRetentionWorker(db.Pool, RetentionWorkerConfig{}).round(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := sees(); after != before || before != 3 {
		t.Errorf("the old snapshot sees %d messages, and saw %d, want 3", after, before)
	}
	if all, err := emptied.Read(t.Context(), 30000, 10); err != nil || len(all) > 0 {
		t.Errorf("%d messages are left, %v", len(all), err)
	}
	check("dropped messages are in the table", emptied, 300)
	mustExec(t, db, `ANALYZE tidewire.stream`)
	mustExec(t, db, `ANALYZE tidewire.shared_message`)
	check("new plans", busy, 300)
	const byKey = `SELECT FROM tidewire.read_key($1, 'k', 0, 100000, 100, true)`
	if n := leastBlocks(t, conn, byKey, emptied.id); n > 300 {
		t.Errorf("by key: %d blocks", n)
	}
}

// TestCost_OwnTables: a read of a stream with its own tables uses the index with its order, and reads only the segments with its
// positions, whatever the planner knows about the table.
func TestCost_OwnTables(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	db := migrated(t)
	s, err := Ensure(t.Context(), db.Pool, "planned", Options{Keyed: true, OwnTables: true})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 6 { // segments of 16,384 and more
		mustExec(t, db, `SELECT tidewire.take_positions(1000, 'tidewire.stream_1000_position_seq', 10000, 1, $1)`, n)
	}
	conn, err := db.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	var last int64
	if err := conn.QueryRow(t.Context(), `SELECT max(last) FROM tidewire.segment WHERE stream = $1`, s.id).Scan(&last); err != nil {
		t.Fatal(err)
	}
	segment := s.findSegment(t.Context(), last) // which has a plan that sessions keep
	if _, err := conn.Exec(t.Context(), `PREPARE after (bigint, bigint, bigint) AS `+segment.after+`; PREPARE page (bigint, bigint, bigint, bigint, bigint) AS `+segment.page+
		`; SET plan_cache_mode = force_generic_plan; EXECUTE after(1, 2, 3); EXECUTE page(1, 2, 3, 4, 5); RESET plan_cache_mode`); err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{
		`INSERT INTO %s (position, key, payload) SELECT n, CASE WHEN n %% 10 > 0 THEN 'hot' ELSE 'cold ' || n END, repeat('x', 400)::bytea FROM generate_series(1, 30000) n`,
		`ANALYZE %s`,
		`INSERT INTO %s (position, key, payload) SELECT n, 'new', repeat('x', 400)::bytea FROM generate_series(30001, 60000) n`,
	} {
		mustExec(t, db, fmt.Sprintf(step, s.table.name))
		cost := func(sql string, args ...any) {
			t.Helper()
			if n := leastBlocks(t, conn, sql, args...); n > 400 { // little more than a block for each message
				t.Errorf("%s with %v: %d blocks, want at most 400", sql, args, n)
			}
		}
		for _, key := range []string{"hot", "cold 20000", "new", "none"} {
			cost(readKeySQL, s.id, key, 100, int64(math.MaxInt64), 100, false)
			cost(readKeySQL, s.id, key, 0, int64(math.MaxInt64), 100, true)
		}
		cost(s.read.sql().after, 10, 110, 100)
		cost(s.read.sql().after, 16300, 16400, 100)
		cost(s.read.sql().page, 10, 110, 100, 1<<20, 1<<20)
		cost(s.timeSQL(false).probe, 10, 100)
		cost(s.timeSQL(false).scan, 10, 110, time.Now())
		cost(`EXECUTE after(` + fmt.Sprint(last-100, ",", last) + `, 100)`)
		cost(`EXECUTE page(` + fmt.Sprint(last-100, ",", last) + `, 100, 1000000, 1000000)`)
	}
}

// leastBlocks returns how many blocks a statement reads with warm catalogue caches: the least of several runs, because new statistics may
// cause a new plan in between.
func leastBlocks(t *testing.T, conn *pgxpool.Conn, sql string, args ...any) (least int) {
	t.Helper()
	least = math.MaxInt
	for range 3 {
		var plan []struct {
			Plan struct {
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
			}
		}
		if err := conn.QueryRow(t.Context(), `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) `+sql, append([]any{pgx.QueryExecModeCacheDescribe}, args...)...).Scan(&plan); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		least = min(least, plan[0].Plan.Hit+plan[0].Plan.Read)
	}
	return least
}
