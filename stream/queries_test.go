package stream

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
)

// TestQueries_Prepare has PostgreSQL parse every statement on the migrated
// schema.
func TestQueries_Prepare(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	if _, err := migrate.Up(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}
	s, err := Ensure(t.Context(), db.Pool, "prepared", Options{Keyed: true})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := db.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	statements := map[string]string{
		"beginSQL": beginSQL, "commitSQL": commitSQL, "firstPositionSQL": firstPositionSQL,
		"reserveSQL": reserveSQL, "insertOneSQL": insertOneSQL, "insertRowsSQL": insertRowsSQL(3),
		"storedSQL": storedSQL, "identifySQL": identifySQL, "endOwnSQL": endOwnSQL, "summariseSQL": summariseSQL,
		"forgetSQL": forgetSQL, "forgetDeadSQL": forgetDeadSQL,
		"ensureStreamSQL": ensureStreamSQL, "lookupStreamSQL": lookupStreamSQL, "listStreamsSQL": listStreamsSQL,
		"dropStreamSQL": dropStreamSQL, "existsStreamSQL": existsStreamSQL,
		"readFmt": s.read.after, "readKeyFmt": s.read.key, "lastKeyFmt": s.read.lastKey, "maxPositionFmt": s.read.head,
		"readPageFmt": s.read.page, "probeTimeFmt": s.read.probeTime, "scanTimeFmt": s.read.scanTime,
		"headsSQL": headsSQL, "announceSQL": announceSQL,
		"ensureGroupSQL": ensureGroupSQL, "lookupGroupSQL": lookupGroupSQL, "dropGroupSQL": dropGroupSQL,
		"listGroupsSQL": listGroupsSQL, "readOffsetSQL": readOffsetSQL, "commitOffsetsSQL": commitOffsetsSQL,
		"seekOffsetSQL": seekOffsetSQL, "rotateOffsetsSQL": rotateOffsetsSQL, "truncateOffsetsSQL": truncateOffsetsSQL,
		"publishBatchSQL": publishBatchSQL,
	}
	for _, table := range []*table{messagesTable(), s.table} {
		statements["takePositionsFmt of "+table.name] = table.takePositions
		statements["insertFmt of "+table.name] = table.insertArray
		statements["headFmt of "+table.name] = table.head
	}
	for name, sql := range statements {
		if _, err := conn.Conn().PgConn().Prepare(t.Context(), "", sql, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestQueries_Plans wants every read to go through the index that has its
// order, whatever the planner knows about the table: a sort or a filter would
// walk through the whole of the stream.
func TestQueries_Plans(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	if _, err := migrate.Up(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}
	s, err := Ensure(t.Context(), db.Pool, "planned", Options{Keyed: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{
		`INSERT INTO %s (position, key, payload) SELECT n, CASE WHEN n %% 10 > 0 THEN 'hot' ELSE 'cold ' || n END, 'x' FROM generate_series(1, 30000) n`,
		`ANALYZE %s`,
		`INSERT INTO %s (position, key, payload) SELECT n, 'new', 'x' FROM generate_series(30001, 60000) n`,
	} {
		if _, err := db.Pool.Exec(t.Context(), fmt.Sprintf(step, s.table.name)); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"hot", "cold 20000", "new", "none"} {
			wantIndex(t, db, "stream_1000_key_idx", s.read.key, key, 100, int64(math.MaxInt64), 100)
			wantIndex(t, db, "stream_1000_key_idx", s.read.lastKey, key, int64(math.MaxInt64), 100)
		}
		wantIndex(t, db, "stream_1000_pkey", s.read.after, 10, 1000)
		wantIndex(t, db, "stream_1000_pkey", s.read.head)
		wantIndex(t, db, "stream_1000_pkey", s.read.probeTime, 10)
		wantBounded(t, db, s.read.page, 10, 1000, 1<<20)
		wantBounded(t, db, s.read.scanTime, 10, time.Now())
	}
}

func wantIndex(t *testing.T, db pgtest.DB, index, sql string, args ...any) {
	t.Helper()
	text := plan(t, db, sql, args...)
	bounded := strings.Contains(text, "Index Cond") || len(args) == 0
	if !strings.Contains(text, index) || !bounded ||
		strings.Contains(text, "Sort") || strings.Contains(text, "Filter") || strings.Contains(text, "Bitmap") {
		t.Errorf("%s with %v: want a scan of %s alone\n%s", sql, args, index, text)
	}
}

// wantBounded is wantIndex for a query that filters what it has read up to a
// limit.
func wantBounded(t *testing.T, db pgtest.DB, sql string, args ...any) {
	t.Helper()
	text := plan(t, db, sql, args...)
	if !strings.Contains(text, "Index Cond") || !strings.Contains(text, "Limit") || strings.Contains(text, "Sort") {
		t.Errorf("%s with %v: want a scan of the index up to a limit\n%s", sql, args, text)
	}
}

func plan(t *testing.T, db pgtest.DB, sql string, args ...any) string {
	t.Helper()
	rows, err := db.Pool.Query(t.Context(), "EXPLAIN "+sql, append([]any{pgx.QueryExecModeCacheDescribe}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
