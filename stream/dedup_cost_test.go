package stream_test

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidewire/tidewire/internal/pgtest"
)

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
