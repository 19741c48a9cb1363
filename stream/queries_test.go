package stream

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// TestQueries_Prepare makes PostgreSQL parse every statement on the migrated
// schema.
func TestQueries_Prepare(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	s, err := Ensure(t.Context(), db.Pool, "prepared", Options{Keyed: true, OwnTables: true})
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
		"forgetSQL":       forgetSQL,
		"ensureStreamSQL": ensureStreamSQL, "lookupStreamSQL": lookupStreamSQL, "listStreamsSQL": listStreamsSQL, "lookupStreamsSQL": lookupStreamsSQL,
		"dropStreamSQL": dropStreamSQL, "existsStreamSQL": existsStreamSQL,
		"readFmt": s.read.sql().after, "readKeySQL": readKeySQL, "stateSQL": stateSQL,
		"readPageFmt": s.read.sql().page, "probeTimeFmt": s.timeSQL(false).probe, "scanTimeFmt": s.timeSQL(false).scan,
		"probeTimeFmt, shared": s.timeSQL(true).probe, "scanTimeFmt, shared": s.timeSQL(true).scan,
		"readSharedSQL": readSharedSQL, "readSharedPageSQL": readSharedPageSQL, "takeSharedSQL": takeSharedSQL, "insertSharedSQL": insertSharedSQL, "appendTogetherSQL": appendTogetherSQL,
		"headsSQL": headsSQL, "findSegmentSQL": findSegmentSQL, "announceSQL": announceSQL,
		"ensureGroupSQL": ensureGroupSQL, "lookupGroupSQL": lookupGroupSQL, "dropGroupSQL": dropGroupSQL,
		"listGroupsSQL": listGroupsSQL, "readOffsetSQL": readOffsetSQL, "commitOffsetsSQL": commitOffsetsSQL,
		"seekOffsetSQL": seekOffsetSQL, "rotateOffsetsSQL": rotateOffsetsSQL, "clearOffsetsSQL": clearOffsetsSQL, "oldRequestsSQL": oldRequestsSQL,
		"publishBatchSQL":   publishBatchSQL,
		"recordRequestsSQL": recordRequestsSQL, "findRequestsSQL": findRequestsSQL,
		"foldRequestsSQL": foldRequestsSQL, "swapRequestsSQL": swapRequestsSQL,
		"ensurePartitionedSQL": ensurePartitionedSQL, "makePartitionsSQL": makePartitionsSQL, "partitionsSQL": partitionsSQL,
		"beginDropSQL": beginDropSQL, "lastPartitionSQL": lastPartitionSQL, "dropPartitionSQL": dropPartitionSQL,
		"retentionSQL": retentionSQL, "joinShareSQL": joinShareSQL, "beatShareSQL": beatShareSQL,
		"leaveShareSQL": leaveShareSQL, "listMembersSQL": listMembersSQL, "commitOwnedSQL": commitOwnedSQL,
		"setRetentionSQL": setRetentionSQL, "listPoliciesSQL": listPoliciesSQL, "infoSQL": infoSQL, "manySegmentsSQL": manySegmentsSQL,
		"sealSegmentSQL": sealSegmentSQL, "expiredSQL": expiredSQL, "dropSegmentsSQL": dropSegmentsSQL,
		"dueSharedSQL": dueSharedSQL, "dropSharedSQL": dropSharedSQL, "moveSharedSQL": moveSharedSQL,
	}
	messages := pg.Table{Schema: "public", Name: pg.DefaultTable}
	for _, table := range []*table{messagesTable(messages), s.table} {
		statements["takePositionsFmt of "+table.name] = table.sql().takePositions
		statements["insertFmt of "+table.name] = table.sql().insertArray
		statements["headFmt of "+table.name] = table.sql().head
	}
	for name, sql := range statements {
		if _, err := conn.Conn().PgConn().Prepare(t.Context(), "", sql, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestQueries_Plans wants every read to use the index with its order, whatever the
// planner knows about the table, and to read only the segments with its positions:
// any other plan would scan the whole stream.
func TestQueries_Plans(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	s, err := Ensure(t.Context(), db.Pool, "planned", Options{Keyed: true, OwnTables: true})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 6 { // segments of 16,384 and more
		_, err := db.Pool.Exec(t.Context(), `SELECT tidewire.take_positions(1000, 'tidewire.stream_1000_position_seq', 10000, 1, $1)`, n)
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []string{
		`INSERT INTO %s (position, key, payload) SELECT n, CASE WHEN n %% 10 > 0 THEN 'hot' ELSE 'cold ' || n END, repeat('x', 400)::bytea FROM generate_series(1, 30000) n`,
		`ANALYZE %s`,
		`INSERT INTO %s (position, key, payload) SELECT n, 'new', repeat('x', 400)::bytea FROM generate_series(30001, 60000) n`,
	} {
		if _, err := db.Pool.Exec(t.Context(), fmt.Sprintf(step, s.table.name)); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"hot", "cold 20000", "new", "none"} {
			wantFewBlocks(t, db, readKeySQL, s.id, key, 100, int64(math.MaxInt64), 100, false)
			wantFewBlocks(t, db, readKeySQL, s.id, key, 0, int64(math.MaxInt64), 100, true)
		}
		wantSegments(t, db, s.read.sql().after, 1, 10, 1010, 1000)
		wantSegments(t, db, s.read.sql().after, 2, 16000, 17000, 1000)
		wantSegments(t, db, s.read.sql().page, 1, 10, 1010, 1000, 1<<20, 1<<20)
		wantSegments(t, db, s.timeSQL(false).probe, 1, 10, 1000)
		wantSegments(t, db, s.timeSQL(false).scan, 1, 10, 1010, time.Now())
	}
}

// wantSegments wants a query on a few positions to read want segments by their
// indexes; how these few rows are sorted is left to the planner.
func wantSegments(t *testing.T, db pgtest.DB, sql string, want int, args ...any) {
	t.Helper()
	text := plan(t, db, "EXPLAIN", sql, args...)
	var segments int
	for line := range strings.Lines(text) {
		if strings.Contains(line, "Scan") && strings.Contains(line, " on stream_1000_") && !strings.Contains(line, "Bitmap Index") {
			segments++
		}
	}
	if segments != want || strings.Contains(text, "Seq Scan") || strings.Count(text, "Index Cond") != want {
		t.Errorf("%s with %v: want scans of the indexes of %d segments\n%s", sql, args, want, text)
	}
}

// wantFewBlocks wants a query for 100 messages to read little more than one block
// for each, of thousands.
func wantFewBlocks(t *testing.T, db pgtest.DB, sql string, args ...any) {
	t.Helper()
	plan(t, db, "EXPLAIN ANALYZE", sql, args...) // fills the catalogue caches
	text := plan(t, db, "EXPLAIN (ANALYZE, BUFFERS)", sql, args...)
	var hit, read int
	_, after, _ := strings.Cut(text, "Buffers: ")
	if n, _ := fmt.Sscanf(after, "shared hit=%d read=%d", &hit, &read); n == 0 || hit+read > 400 {
		t.Errorf("%s with %v: %d blocks, want at most 400\n%s", sql, args, hit+read, text)
	}
}

func plan(t *testing.T, db pgtest.DB, explain, sql string, args ...any) string {
	t.Helper()
	rows, err := db.Pool.Query(t.Context(), explain+" "+sql, append([]any{pgx.QueryExecModeCacheDescribe}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
