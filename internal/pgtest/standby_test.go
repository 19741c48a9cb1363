package pgtest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/embedpg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
)

// TestStandby: a standby has its primary's settings and commits, and accepts writes after it is promoted.
func TestStandby(t *testing.T) {
	t.Parallel()
	primary := pgtest.Start(t)
	on(t, primary, `CREATE TABLE t (n int)`, nil)
	on(t, primary, `ALTER SYSTEM SET work_mem = '5MB'`, nil)
	standby := pgtest.Standby(t, primary)
	var memory string
	if on(t, standby, `SHOW work_mem`, &memory); memory != "5MB" {
		t.Errorf("work_mem of the standby is %s, and not that of its primary", memory)
	}
	on(t, primary, `INSERT INTO t VALUES (1)`, nil)
	testkit.Eventually(t, "the standby has the row", func() bool {
		var n int
		on(t, standby, `SELECT count(*) FROM t`, &n)
		return n == 1
	})
	var promoted bool
	if on(t, standby, `SELECT pg_promote()`, &promoted); !promoted {
		t.Fatal("not promoted")
	}
	on(t, standby, `INSERT INTO t VALUES (2)`, nil)
}

// on runs a statement on a new connection.
func on(t *testing.T, server *embedpg.Server, sql string, into any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if into == nil {
		_, err = conn.Exec(t.Context(), sql)
	} else {
		err = conn.QueryRow(t.Context(), sql).Scan(into)
	}
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
