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

// Migrated are databases with the newest schema.
var Migrated = pgtest.NewTemplate("migrated", func(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := migrate.Up(ctx, pool)
	return err
})

func prepared(t *testing.T) (pgtest.DB, *Store) {
	t.Helper()
	db := Migrated.Open(t)
	s, err := EnsureStore(t.Context(), db.Pool, "", Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(t.Context()) })
	return db, s
}

// fill adds events without the store's help: every one has a type of two, the tag hot:1, and a cold one; those of type T1 have
// hot:2. Half of the events of each type have the tag one, and the others two.
func fill(t *testing.T, s *Store, events int) {
	t.Helper()
	hot, odd, one, two := tagHash("hot:1"), tagHash("hot:2"), tagHash("one"), tagHash("two")
	for _, q := range []struct {
		sql  string
		args []any
	}{
		{`INSERT INTO tidewire.events_1 SELECT n, now(), false, 'T' || n % 2, NULL,
			ARRAY['hot:1', CASE WHEN n % 4 < 2 THEN 'one' ELSE 'two' END, 'cold:' || n] || CASE n % 2 WHEN 1 THEN ARRAY['hot:2'] END, ''
			FROM generate_series(1, $1::int) AS n`, []any{events}},
		{`INSERT INTO tidewire.events_1_tag
			SELECT tag, n, $2::bigint | CASE n % 2 WHEN 1 THEN $3::bigint ELSE 0 END | CASE WHEN n % 4 < 2 THEN $4::bigint ELSE $5::bigint END,
				CASE n % 2 WHEN 0 THEN $6::int ELSE $7::int END, (SELECT ctid FROM tidewire.events_1 WHERE position = n)
			FROM generate_series(1, $1::int) AS n,
				unnest(ARRAY[$8::bigint, CASE n % 2 WHEN 1 THEN $9::bigint END, CASE WHEN n % 4 < 2 THEN $10::bigint ELSE $11::bigint END, n]) AS tag WHERE tag IS NOT NULL`,
			[]any{events, signature(hot), signature(odd), signature(one), signature(two), typeHash("T0"), typeHash("T1"), hot, odd, one, two}},
		{`WITH moved AS (SELECT setval('tidewire.events_1_position_seq', $1::bigint) AS head)
			INSERT INTO tidewire.events_1_batch SELECT head, 1, 1, 1, now() FROM moved`, []any{events}},
	} {
		MustExec(t, s.pool, q.sql, q.args...)
	}
}

// neverTogether is a condition of that many items, each of which many events of fill meet in part, and none as a whole.
func neverTogether(items int) Condition {
	var q Query
	for range items {
		q.Items = append(q.Items, Item{Types: []string{"T0"}, Tags: []string{"one", "two"}})
	}
	return Condition{FailIfEventsMatch: q}
}

// TestQueries_Cost: every check and read of many events uses only a few blocks of the indexes, with plans that PostgreSQL has
// made when the tables were empty, and on a new connection. A check under the lock gives up if it would need many rows.
func TestQueries_Cost(t *testing.T) {
	Slow(t)
	t.Parallel()
	db, s := prepared(t)
	for _, table := range []string{"events_1", "events_1_tag", "events_1_batch"} {
		MustExec(t, db.Pool, `ALTER TABLE tidewire.`+table+` SET (autovacuum_enabled = false)`)
	}
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), db.URL)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close(context.Background()) })
		return conn
	}
	old := connect()
	for range 6 { // PostgreSQL takes the plan for all parameters after five
		wantFewBlocks(t, old, s, 0)
	}
	const events = 50_000
	fill(t, s, events)
	wantFewBlocks(t, old, s, events)
	fresh := connect()
	wantFewBlocks(t, fresh, s, events)
	for name, q := range map[string]Query{"typed": neverTogether(20).FailIfEventsMatch, "any type": Tagged("one", "two")} {
		var p probes
		p.add(&q, &s.frequency)
		args := p.checkArgs(0, underLock.budget(p.lookups()))
		if blocks, _, text := lowest(t, 2000, fresh, ``, checkSQL, args); blocks > 2000 {
			t.Errorf("%s: %d blocks\n%s", name, blocks, text)
		}
		var positions []int64
		err := fresh.QueryRow(t.Context(), `SELECT positions FROM (`+checkSQL+`) AS checked`, append([]any{pgx.QueryExecModeDescribeExec}, args...)...).Scan(&positions)
		if err != nil || len(positions) != 1 || positions[0] != 0 {
			t.Errorf("%s: %v, %v, want 0 for undecided", name, positions, err)
		}
	}
}

// checkSQL is a check of a condition.
const checkSQL = `SELECT * FROM tidewire.events_1_conflicts($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`

// checkArgs are its parameters: of a condition on what is after a position, with a budget or without.
func (p *probes) checkArgs(after int64, budget any) []any {
	calls, afters := make([]int32, p.n), make([]int64, p.n)
	for i := range afters {
		afters[i] = after
	}
	return append([]any{calls, afters}, append(p.columns(), p.textColumn(p.tags), p.tagless, budget)...)
}

func wantFewBlocks(t *testing.T, conn *pgx.Conn, s *Store, events int) {
	t.Helper()
	for _, q := range []struct {
		name  string
		items []Item
		after int64
		// blocks is the most that a check and a read of ten events may look at.
		blocks int
	}{
		{"unknown tag", []Item{{Types: []string{"T0"}, Tags: []string{"none"}}}, 0, 40},
		{"unknown tag beside a hot one", []Item{{Types: []string{"T0", "T1"}, Tags: []string{"hot:1", "none"}}}, 0, 120},
		{"unknown tag of any type", []Item{{Tags: []string{"hot:1", "none"}}}, 0, 160},
		{"hot tag", []Item{{Tags: []string{"hot:1"}}}, 0, 200},
		{"hot tag at the end", []Item{{Types: []string{"T0"}, Tags: []string{"hot:1"}}}, int64(max(0, events-5)), 60},
		{"type that has none of the tag", []Item{{Types: []string{"T0"}, Tags: []string{"hot:2"}}}, 0, 40},
		{"unknown type", []Item{{Types: []string{"none"}}}, 0, 40},
		{"type", []Item{{Types: []string{"T1"}}}, 0, 120},
		{"hundred items", hundred(), 0, 2600},
	} {
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
			"check":                {checkSQL, p.checkArgs(q.after, nil)},
			"check under the lock": {checkSQL, p.checkArgs(q.after, underLock.budget(p.lookups()))},
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
	for _, prefix := range []string{"", "none"} {
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
