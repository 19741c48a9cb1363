package eventstore

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
)

var migrated = pgtest.NewTemplate("migrated", func(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := migrate.Up(ctx, pool)
	return err
})

func prepared(t *testing.T) (pgtest.DB, *Store) {
	t.Helper()
	db := migrated.Open(t)
	s, err := ensureStore(t.Context(), db.Pool, "", Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(t.Context()) })
	return db, s
}

// TestQueries_Prepare has PostgreSQL parse every statement on the migrated
// schema.
func TestQueries_Prepare(t *testing.T) {
	t.Parallel()
	db, s := prepared(t)
	conn, err := db.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for name, sql := range map[string]string{
		"beginSQL": beginSQL, "commitSQL": commitSQL, "announceSQL": announceSQL, "waitIfUnwrittenSQL": waitIfUnwrittenSQL,
		"ensureStoreSQL": ensureStoreSQL, "openStoreSQL": openStoreSQL, "listStoresSQL": listStoresSQL,
		"append": s.sql.append, "conflicts": s.sql.conflicts, "page": s.sql.page, "tagged": s.sql.tagged, "ids": s.sql.ids, "head": s.sql.head, "types": s.sql.types, "byIndexSQL": byIndexSQL,
		"forget": s.sql.forget, "basis": s.sql.basis, "settle": s.sql.settle, "snapshotsSQL": snapshotsSQL, "findRequestsSQL": findRequestsSQL, "foldRequestsSQL": foldRequestsSQL, "swapRequestsSQL": swapRequestsSQL, "saveSnapshotSQL": saveSnapshotSQL, "statementTimeoutSQL": statementTimeoutSQL,
	} {
		if _, err := conn.Conn().PgConn().Prepare(t.Context(), "", sql, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// probed is one query, as the store's functions take it.
type probed struct {
	name  string
	items []Item
	after int64
	// blocks is the most that a check and a read of ten events may look at.
	blocks int
}

// TestQueries_Plans: every check and read uses only a few blocks of the indexes, for
// all states of the planner's statistics: on a connection that made its plans when the
// tables were empty, and on a new one; with tables never analysed, and analysed when they
// were small.
func TestQueries_Plans(t *testing.T) {
	t.Parallel()
	db, s := prepared(t)
	for _, table := range []string{"events_1", "events_1_tag", "events_1_batch"} {
		if _, err := db.Pool.Exec(t.Context(), `ALTER TABLE tidewire.`+table+` SET (autovacuum_enabled = false)`); err != nil {
			t.Fatal(err)
		}
	}
	old, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close(t.Context())
	events := 0
	for _, step := range []struct {
		size    int
		analyse bool
	}{{0, false}, {1000, true}, {200_000, false}} {
		fill(t, s, events, step.size)
		events = step.size
		for _, session := range []string{"", "SET plan_cache_mode = force_generic_plan", "SET plan_cache_mode = force_custom_plan"} {
			fresh, err := pgx.Connect(t.Context(), db.URL)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fresh.Exec(t.Context(), session); err != nil {
				t.Fatal(err)
			}
			for _, conn := range []*pgx.Conn{old, fresh} {
				wantFewBlocks(t, conn, s, events)
			}
			fresh.Close(t.Context())
		}
		if step.analyse {
			if _, err := db.Pool.Exec(t.Context(), `ANALYZE`); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// fill adds events without the store's help: every one has a type of two, the
// tag hot:1, and a cold one; every second one has hot:2.
func fill(t *testing.T, s *Store, from, to int) {
	t.Helper()
	hot, half := tagHash("hot:1"), tagHash("hot:2")
	_, err := s.pool.Exec(t.Context(), `
INSERT INTO tidewire.events_1 SELECT n, now(), false, 'T' || n % 2, NULL,
	CASE n % 2 WHEN 0 THEN ARRAY['hot:1', 'cold:' || n] ELSE ARRAY['hot:1', 'hot:2', 'cold:' || n] END, ''
FROM generate_series($1::int + 1, $2::int) AS n`, from, to)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.pool.Exec(t.Context(), `
INSERT INTO tidewire.events_1_tag
SELECT tag, n, $3::bigint | CASE n % 2 WHEN 0 THEN 0 ELSE $5::bigint END, CASE n % 2 WHEN 0 THEN $6::int ELSE $7::int END, (SELECT ctid FROM tidewire.events_1 WHERE position = n)
FROM generate_series($1::int + 1, $2::int) AS n, unnest(ARRAY[$8::bigint, CASE n % 2 WHEN 1 THEN $4::bigint END, n]) AS tag WHERE tag IS NOT NULL`,
		from, to, signature(hot), half, signature(half), typeHash("T0"), typeHash("T1"), hot)
	if err != nil {
		t.Fatal(err)
	}
	if to > 0 {
		if _, err := s.pool.Exec(t.Context(), `SELECT setval('tidewire.events_1_position_seq', $1)`, to); err != nil {
			t.Fatal(err)
		}
	}
}

func wantFewBlocks(t *testing.T, conn *pgx.Conn, s *Store, events int) {
	t.Helper()
	end := int64(events)
	for _, q := range []probed{
		{"unknown tag", []Item{{Types: []string{"T0"}, Tags: []string{"none"}}}, 0, 40},
		{"unknown tag beside a hot one", []Item{{Types: []string{"T0", "T1"}, Tags: []string{"hot:1", "none"}}}, 0, 120},
		{"unknown tag of any type", []Item{{Tags: []string{"hot:1", "none"}}}, 0, 160},
		{"hot tag", []Item{{Tags: []string{"hot:1"}}}, 0, 200},
		{"hot tag at the end", []Item{{Types: []string{"T0"}, Tags: []string{"hot:1"}}}, end - 5, 60},
		{"type that has none of the tag", []Item{{Types: []string{"T0"}, Tags: []string{"hot:2"}}}, 0, 40},
		{"unknown type", []Item{{Types: []string{"none"}}}, 0, 40},
		{"type", []Item{{Types: []string{"T1"}}}, 0, 120},
		{"hundred items", hundred(), 0, 2600},
	} {
		q.after = max(q.after, 0)
		var p probes
		for i := range q.items {
			p.addItem(&q.items[i], &s.frequency)
		}
		read := []any{q.after, int64(noPosition), 10, int64(queryBytes), false, false, false, usualSearch.span, usualSearch.patience}
		type statement struct {
			sql  string
			args []any
		}
		statements := map[string]statement{
			"check":                {`SELECT * FROM tidewire.events_1_conflicts($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`, append(p.calls(q.after), append(p.columns(), p.textColumn(p.tags), p.tagless, nil)...)},
			"check under the lock": {`SELECT * FROM tidewire.events_1_conflicts($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`, append(p.calls(q.after), append(p.columns(), p.textColumn(p.tags), p.tagless, underLock.budget(p.lookups()))...)},
			"read":                 {s.sql.page, append(read, p.columns()...)},
		}
		if r := (pageRequest{query: Query{Items: q.items}, after: q.after, before: noPosition}); r.tagged() {
			item, hash := q.items[0], (*int32)(nil)
			if len(item.Types) > 0 {
				h := typeHash(item.Types[0])
				hash = &h
			}
			statements["tagged"] = statement{s.sql.tagged, []any{q.after, int64(noPosition), 10, int64(queryBytes), false, true, tagHash(item.Tags[0]), hash}}
		}
		for name, call := range statements {
			blocks, scans, text := lowest(t, q.blocks, conn, ``, call.sql, call.args)
			if blocks > q.blocks || scans > 0 {
				t.Errorf("%s %q of %d events: %d blocks, want at most %d; %d sequential scans\n%s", name, q.name, events, blocks, q.blocks, scans, text)
			}
		}
	}
	for _, prefix := range []string{"", "T", "T1", "none"} {
		blocks, scans, text := lowest(t, 40, conn, byIndexSQL, s.sql.types, []any{prefix, "", 100})
		if blocks > 40 || scans > 0 {
			t.Errorf("types with %q of %d events: %d blocks, want at most 40; %d sequential scans\n%s", prefix, events, blocks, scans, text)
		}
	}
}

func hundred() []Item {
	var items []Item
	for n := range 100 {
		items = append(items, Item{Types: []string{"T0"}, Tags: []string{"hot:1", fmt.Sprint("none:", n)}})
	}
	return items
}

// calls are the first parameters of a check.
func (p *probes) calls(after int64) []any {
	calls, afters := make([]int32, p.n), make([]int64, p.n)
	for i := range afters {
		afters[i] = after
	}
	return []any{calls, afters}
}

func (p *probes) columns() []any {
	return []any{nullable(p.drivers, bigint), p.textColumn(p.others), nullable(p.signatures, bigint),
		nullable(p.typeHashes, func(b []byte) int32 { return int32(bigint(append(make([]byte, 4), b...))) }), p.textColumn(p.types)}
}

func (p *probes) textColumn(c column) any {
	return nullable(c, func(b []byte) string { return string(b) })
}

func nullable[T any](c column, element func([]byte) T) []*T {
	var all []*T
	for len(c) > 0 {
		size := int(int32(bigint(append(make([]byte, 4), c[:4]...))))
		c = c[4:]
		if size < 0 {
			all = append(all, nil)
			continue
		}
		v := element(c[:size])
		all = append(all, &v)
		c = c[size:]
	}
	return all
}

// lowest is cost, tried again while it is above a limit. On a busy server, changes in other databases may empty the caches of
// the catalogue, so that one query reads more blocks. A plan that is wrong reads more blocks each time.
func lowest(t *testing.T, limit int, conn *pgx.Conn, settings, sql string, args []any) (blocks, scans int, text string) {
	t.Helper()
	for range 5 {
		if blocks, scans, text = cost(t, conn, settings, sql, args); blocks <= limit {
			break
		}
	}
	return blocks, scans, text
}

// cost returns what a statement reads once its plans are made, after a statement that changes settings: blocks, and sequential
// scans of a store's tables.
func cost(t *testing.T, conn *pgx.Conn, settings, sql string, args []any) (blocks, scans int, text string) {
	t.Helper()
	args = append([]any{pgx.QueryExecModeDescribeExec}, args...)
	err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), settings); err != nil {
			return err
		}
		for range 2 { // the first fills the caches of what the catalogue says
			rows, err := tx.Query(t.Context(), "EXPLAIN (ANALYZE, BUFFERS) "+sql, args...)
			if err != nil {
				return err
			}
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				return err
			}
			text = strings.Join(lines, "\n")
		}
		return tx.QueryRow(t.Context(), `SELECT coalesce(sum(seq_scan), 0) FROM pg_stat_xact_user_tables WHERE relname LIKE 'events\_1%'`).Scan(&scans)
	})
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	_, after, _ := strings.Cut(text, "Buffers: ")
	var hit, read int
	if n, _ := fmt.Sscanf(after, "shared hit=%d read=%d", &hit, &read); n == 0 {
		hit = 0
	}
	return hit + read, scans, text
}
