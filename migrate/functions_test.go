package migrate_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/queue"
)

// TestUp_PublicMayExecuteNothing: a role may call the functions that it was granted, also of those that are made later.
func TestUp_PublicMayExecuteNothing(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	if err := eventstore.Create(t.Context(), db.Pool, "events"); err != nil {
		t.Fatal(err)
	}
	if _, err := queue.Ensure(t.Context(), db.Pool, "jobs", queue.Options{Priorities: 2}); err != nil {
		t.Fatal(err)
	}
	rows, err := db.Pool.Query(t.Context(), `
		SELECT p.oid::regprocedure::text FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
		WHERE p.pronamespace = 'tidewire'::regnamespace AND a.grantee = 0`)
	if err != nil {
		t.Fatal(err)
	}
	open, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(open) > 0 {
		t.Errorf("PUBLIC may execute %v (%v), want nothing", open, err)
	}
}

// TestUp_DefinersHaveTheirOwnPath: a caller's search_path cannot put another function or table in the place of those that a function
// means which runs with the rights of the role that migrated.
func TestUp_DefinersHaveTheirOwnPath(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	rows, err := db.Pool.Query(t.Context(), `
		SELECT p.oid::regprocedure::text FROM pg_proc AS p
		WHERE p.pronamespace = 'tidewire'::regnamespace AND p.prosecdef AND NOT coalesce(p.proconfig, '{}') @> '{"search_path=pg_catalog, pg_temp"}'`)
	if err != nil {
		t.Fatal(err)
	}
	others, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(others) > 0 {
		t.Errorf("%v have another search_path (%v)", others, err)
	}
}

// TestRaiseSharedTop_Bound: a position that no stream can have does not make PostgreSQL count up to it.
func TestRaiseSharedTop_Bound(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	if _, err := db.Pool.Exec(t.Context(), `SELECT tidewire.raise_shared_top(9000000000000000000)`); pg.Code(err) != "TW004" {
		t.Errorf("%v, want TW004", err)
	}
}
