package stream_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

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
