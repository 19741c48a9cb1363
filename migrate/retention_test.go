package migrate_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/stream"
)

// TestUp_SharedRetention: streams with a policy stay where they are, shared or not, and are kept there. Who may
// read the shared table may read floors.
func TestUp_SharedRetention(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	if err := migrate.UpTo(t.Context(), db.Pool, 30); err != nil {
		t.Fatal(err)
	}
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := db.Pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	role := grantee(t, db, "publish")
	exec(`GRANT USAGE ON SCHEMA tidewire TO ` + role)
	exec(`GRANT SELECT ON tidewire.shared_message, tidewire.stream TO ` + role)
	all := make(map[string]*stream.Stream)
	for _, name := range []string{"shared", "own", "kept"} {
		s, err := stream.Ensure(t.Context(), db.Pool, name, stream.Options{})
		if err != nil {
			t.Fatal(err)
		}
		all[name] = s
		exec(`INSERT INTO tidewire.shared_message (stream, position, keyed, payload, created_at)
			SELECT $1, n, false, 'x', now() - interval '1 day' FROM generate_series(1, 9) AS n`, s.ID())
		if name != "kept" {
			exec(`SELECT tidewire.set_retention($1, '1 h', NULL, false)`, name)
		}
	}
	exec(`SELECT tidewire.own_stream($1)`, all["own"].ID())
	if n, err := migrate.Up(t.Context(), db.Pool); err != nil || n == 0 {
		t.Fatalf("%d migrations, %v", n, err)
	}
	k := stream.NewRetentionWorker(db.Pool, stream.RetentionWorkerConfig{Every: time.Millisecond})
	runs(t, k.Run)
	for name, s := range all {
		oldest := map[string]int64{"shared": 10, "own": 10, "kept": 1}[name]
		var info stream.Info
		for end := time.Now().Add(time.Minute); info.Oldest != oldest; time.Sleep(time.Millisecond) {
			var err error
			if info, err = s.Info(t.Context()); err != nil || time.Now().After(end) {
				t.Fatalf("%s: %+v, %v", name, info, err)
			}
		}
		if info.Head != 9 || (info.Segments > 0) != (name == "own") {
			t.Errorf("%s: %+v", name, info)
		}
	}
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `SET LOCAL ROLE `+role); err != nil {
		t.Fatal(err)
	}
	rows, err := tx.Query(t.Context(), `SELECT position FROM tidewire.read_shared($1, 0, 100, 100, NULL)`, all["shared"].ID())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := pgx.CollectRows(rows, pgx.RowTo[int64]); err != nil || len(got) != 1 || got[0] != -10 {
		t.Errorf("read by another role: %d, %v", got, err)
	}
}
