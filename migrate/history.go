package migrate

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// EnterHistory begins a new history of positions if the database has been promoted, recovered to a point in time, or restored
// into another cluster, since the last history began: see 0001_histories.sql. Each transaction that stores does so too;
// EnterHistory, called before, also notices a restored dump. It waits for no lock that is held for long. It returns the base of
// the current history: all positions of earlier histories are lower.
func EnterHistory(ctx context.Context, db DB) (base int64, err error) {
	if err := db.QueryRow(ctx, `SELECT tidewire.enter_history()`).Scan(&base); err != nil {
		return 0, fmt.Errorf("enter history: %w", err)
	}
	return base, nil
}

// unidentifiedSQL returns the role with whose rights enter_history runs, if it may not read the identifier of the cluster.
const unidentifiedSQL = `
SELECT pg_get_userbyid(p.proowner)::text FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
WHERE n.nspname = 'tidewire' AND p.proname = 'enter_history' AND NOT has_function_privilege(p.proowner, 'pg_catalog.pg_control_system()', 'EXECUTE')`

// IdentitySQL returns "", or the statement that lets EnterHistory see that a dump was restored into another cluster: it needs the
// right to read the identifier of the cluster. Without it a restored dump assigns positions again that clients know.
func IdentitySQL(ctx context.Context, db DB) (string, error) {
	rows, err := db.Query(ctx, unidentifiedSQL)
	if err != nil {
		return "", fmt.Errorf("look at the right to identify the cluster: %w", err)
	}
	roles, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(roles) == 0 {
		return "", err
	}
	return fmt.Sprintf("GRANT EXECUTE ON FUNCTION pg_catalog.pg_control_system() TO %s;", pgx.Identifier{roles[0]}.Sanitize()), nil
}

// KnownHistory returns the base of the last history that a server has entered. EnterHistory returns a higher one if it begins a
// new history, or is the first to enter it.
func KnownHistory(ctx context.Context, db DB) (base int64, err error) {
	if err := db.QueryRow(ctx, `SELECT coalesce(max(base), 0) FROM tidewire.history`).Scan(&base); err != nil {
		return 0, fmt.Errorf("look for the last history: %w", err)
	}
	return base, nil
}
