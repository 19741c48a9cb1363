package pg_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// TestWaitSQL_OnAStandby: in each place in which WaitSQL stands, it fails on a standby as a statement does that
// writes, which may be tried again. On a primary it is evaluated once.
func TestWaitSQL_OnAStandby(t *testing.T) {
	t.Parallel()
	primary := pgtest.Start(t)
	on := connectTo(t, primary.URL())
	if _, err := on.Exec(t.Context(), `CREATE TABLE public.t AS SELECT 1 AS n`); err != nil {
		t.Fatal(err)
	}
	standby := connectTo(t, pgtest.Standby(t, primary).URL())
	for _, sql := range []string{
		`SELECT n FROM public.t, ` + pg.WaitSQL + ` WHERE n = 1`,
		`SELECT n FROM generate_series(1, 1) AS n, ` + pg.WaitSQL,
		`SELECT CASE WHEN pg_current_xact_id() IS NOT NULL THEN ` + pg.WaitSQL + ` END WHERE pg_current_xact_id_if_assigned() IS NULL`,
		`WITH done AS MATERIALIZED (SELECT 1 AS n), wait AS MATERIALIZED (SELECT ` + pg.WaitSQL + ` WHERE NOT EXISTS (SELECT FROM done WHERE n > 1)) SELECT done.* FROM done LEFT JOIN wait ON true`,
	} {
		if _, err := standby.Exec(t.Context(), sql); pg.Code(err) != "25006" || !pg.Retryable(err) {
			t.Errorf("on a standby: %s: %v, want SQLSTATE 25006", sql, err)
		}
		rows, _ := on.Query(t.Context(), `EXPLAIN (ANALYZE, VERBOSE, COSTS off, TIMING off, SUMMARY off) `+sql)
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Errorf("%s: %v", sql, err)
		}
		if text := strings.Join(plan, "\n"); strings.Count(text, "loops=") != strings.Count(text, "loops=1)") {
			t.Errorf("%s is not evaluated once:\n%s", sql, text)
		}
	}
}

func connectTo(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}
