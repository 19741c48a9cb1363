package stream_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/stream"
)

// TestAppendTogether_Heads stores batches with heads that are unknown, right, outdated, or unknown to
// the standby that took over: each batch continues at the end of its stream, whatever head the caller
// gives.
func TestAppendTogether_Heads(t *testing.T) {
	t.Parallel()
	db, a := ensure(t)
	b := ensureNamed(t, db.Pool, "b", false)
	own := ensureNamed(t, db.Pool, "own", true)
	const send = `SELECT firsts FROM tidewire.append_together(7, $1, $2, $3, $4, $5,
		array_fill('x'::text::bytea, ARRAY[cardinality($5::int[])]), array_fill(NULL::text, ARRAY[cardinality($5::int[])]), array_fill(NULL::jsonb, ARRAY[cardinality($5::int[])]),
		ARRAY[0, 0, 0], '{}', '{}', '{}', '{}')`
	ends := []int64{0, 0, 0}
	for n, heads := range [][]int64{{0, 0, 0}, {1, 2, 3}, {0, 0, 0}, {1, 1, 1}, {100, 100, 100}, {5, 10, 15}} {
		t.Run(fmt.Sprint(n, heads), func(t *testing.T) {
			sizes, batches := []int32{1, 2, 3}, []int32{1, 2, 2, 3, 3, 3}
			if n%2 == 1 { // a row for each batch
				sizes, batches = []int32{1, 1, 1}, []int32{1, 2, 3}
			}
			var firsts []int64
			ids := []int32{a.ID(), b.ID(), own.ID()}
			if err := db.Pool.QueryRow(t.Context(), send, n+1, ids, heads, sizes, batches).Scan(&firsts); err != nil {
				t.Fatal(err)
			}
			var want []int64
			for i := range ends {
				want = append(want, ends[i]+1)
				ends[i] += int64(sizes[i])
			}
			if !slices.Equal(firsts, want) {
				t.Errorf("at %d, want %d", firsts, want)
			}
		})
	}
	for i, s := range []*stream.Stream{a, b, own} {
		all := everything(t, s)
		if n := len(all); int64(n) != ends[i] || all[n-1].Position != ends[i] {
			t.Errorf("stream %d: %d messages, the last at %d, want %d", i, n, all[n-1].Position, ends[i])
		}
	}
}

// TestHeads_ManyOtherStreams: a query about one stream does not read the others, whatever PostgreSQL
// estimates for an array.
func TestHeads_ManyOtherStreams(t *testing.T) {
	t.Parallel()
	db := setup(t)
	exec(t, db.Pool, `INSERT INTO tidewire.stream (name, keyed, shared) SELECT 'other' || n, false, true FROM generate_series(1, 50000) AS n`)
	s := ensureNamed(t, db.Pool, "last", false)
	exec(t, db.Pool, `ANALYZE tidewire.stream`)
	cfg, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_generic_plan" // as after the fifth time
	if db.Pool, err = pgxpool.NewWithConfig(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	defer db.Pool.Close()
	for what, sql := range map[string]string{
		"heads": `SELECT FROM tidewire.stream_heads(ARRAY[$1::int], ARRAY[0::bigint])`,
		"append": `SELECT FROM tidewire.append_together(7, txid_current(), ARRAY[$1::int], ARRAY[0::bigint], ARRAY[1], ARRAY[1],
			ARRAY['x'::bytea], ARRAY[NULL::text], ARRAY[NULL::jsonb], ARRAY[0], '{}', '{}', '{}', '{}')`,
		"request": `SELECT FROM tidewire.append_together(7, txid_current(), ARRAY[$1::int], ARRAY[0::bigint], ARRAY[1], ARRAY[1],
			ARRAY['x'::bytea], ARRAY[NULL::text], ARRAY[NULL::jsonb], ARRAY[1], ARRAY['p'], ARRAY[txid_current()], ARRAY[0::bigint], ARRAY[1])`,
	} {
		if n := blocks(t, db, sql, s.ID()); n > 200 {
			t.Errorf("%s: %d blocks", what, n)
		}
	}
}

// TestHeads_CommitInALargeTable: a commit of an offset does not read the table that streams share, however few
// of them have messages there.
func TestHeads_CommitInALargeTable(t *testing.T) {
	t.Parallel()
	const last = 40_000
	db := setup(t)
	var group int32
	for i := range 3 {
		s := ensureNamed(t, db.Pool, fmt.Sprint("s", i), false)
		if err := db.Pool.QueryRow(t.Context(), `SELECT tidewire.ensure_group($1, 'g', 0)`, s.ID()).Scan(&group); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, db.Pool, `INSERT INTO tidewire.shared_message (stream, position, keyed, payload)
		SELECT id, n, false, 'x' FROM generate_series(1, $1::int) AS n, tidewire.stream`, last)
	exec(t, db.Pool, `ANALYZE tidewire.shared_message`)
	least := math.MaxInt
	for position := last - 4; position <= last; position++ {
		// Each position is different; otherwise the query would have nothing to look up.
		sql := fmt.Sprintf(`EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT FROM tidewire.commit_offsets(ARRAY[%d], ARRAY[%d::bigint])`, group, position)
		least = min(least, plannedBlocks(t, db.Pool, sql))
	}
	if least > 200 {
		t.Errorf("%d blocks", least)
	}
}
