package migrate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
)

// privilegesSQL counts what a role lacks that works with the schema.
const privilegesSQL = `
SELECT current_user::text, current_database()::text,
	(SELECT count(*) FROM pg_class WHERE relnamespace = n.oid AND relkind IN ('r', 'p')
		AND NOT (has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT') AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE'))),
	(SELECT count(*) FROM pg_class WHERE relnamespace = n.oid AND relkind = 'S'
		AND NOT (has_sequence_privilege(oid, 'USAGE') AND has_sequence_privilege(oid, 'UPDATE'))),
	(SELECT count(*) FROM pg_proc WHERE pronamespace = n.oid AND NOT has_function_privilege(oid, 'EXECUTE'))
FROM (VALUES (1)) AS one LEFT JOIN pg_namespace n ON n.nspname = 'tidewire'`

// Privileges checks whether the role may use all tables, sequences and functions of the schema. The error is a *RightsError if not.
func Privileges(ctx context.Context, db DB) error {
	lacks := &RightsError{}
	missing := make([]int, 3)
	if err := db.QueryRow(ctx, privilegesSQL).Scan(&lacks.Role, &lacks.Database, &missing[0], &missing[1], &missing[2]); err != nil {
		return fmt.Errorf("look at the role's privileges: %w", err)
	}
	for i, all := range []string{"ALL ON ALL TABLES", "ALL ON ALL SEQUENCES", "EXECUTE ON ALL FUNCTIONS"} {
		if missing[i] > 0 {
			lacks.SQL = append(lacks.SQL, fmt.Sprintf("GRANT %s IN SCHEMA tidewire TO %s;", all, pgx.Identifier{lacks.Role}.Sanitize()))
		}
	}
	if lacks.SQL == nil {
		return nil
	}
	return lacks
}

// rehearsalSQL is what a server does before it is ready, and each second afterwards, but for the history.
var rehearsalSQL = []string{
	`LISTEN ` + pg.StreamChannel,
	`CREATE TEMPORARY TABLE tidewire_rehearsal (filler text) ON COMMIT DROP`,
	`INSERT INTO tidewire.batch (writer, number, first_position) VALUES (-1, 0, 0)`,
	`DELETE FROM tidewire.batch WHERE writer = -1`,
	`SELECT tidewire.rehearse_history()`,
}

// Rehearse does in a transaction, which the caller has to roll back, what a server does before it is ready, and returns why a
// server would not start. If a table is named, it is made and written too. The schema has to be up to date. READ COMMITTED.
func Rehearse(ctx context.Context, tx pgx.Tx, table string) error {
	if err := Privileges(ctx, tx); err != nil {
		return err
	}
	for _, sql := range rehearsalSQL {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return fmt.Errorf("a server would not start: %s: %w", strings.Join(strings.Fields(sql)[:2], " "), err)
		}
	}
	if table == "" {
		return nil
	}
	t, err := parseTable(table)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, ensureIngestSQL, t.Schema, t.Name); err != nil {
		return explain(fmt.Errorf("table %s: %w", t, err))
	}
	if _, err := tx.Exec(ctx, `INSERT INTO `+t.Quoted("")+` (position, payload) VALUES (0, '')`); err != nil {
		return fmt.Errorf("table %s: %w", t, err)
	}
	return nil
}

// DryRun applies the missing migrations and rehearses the start of a server, all in one transaction that is rolled back: it
// shows whether Up would succeed, and a server would start. Meanwhile it holds the locks that these take.
func DryRun(ctx context.Context, db DB, table string) (Status, error) {
	all, err := load()
	if err != nil {
		return Status{}, err
	}
	current, err := version(ctx, db, all)
	s := statusOf(all, current)
	if err == nil && s.Version > s.Latest {
		err = s.Err()
	}
	if err != nil {
		return s, err
	}
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if err := dryUp(ctx, tx, all, current); err != nil {
			return err
		}
		if err := Rehearse(ctx, tx, table); err != nil {
			return err
		}
		return errDryRun
	})
	if errors.Is(err, errDryRun) {
		return s, nil
	}
	return s, explain(err)
}

// dryUp applies the migrations after current.
func dryUp(ctx context.Context, tx pgx.Tx, all []migration, current int) error {
	if current == len(all) {
		_, err := tx.Exec(ctx, isolationSQL)
		return err
	}
	if err := prepare(ctx, tx); err != nil {
		return err
	}
	for _, m := range all[current:] {
		if _, err := tx.Exec(ctx, m.sql); err != nil {
			return fmt.Errorf("migration %s: %w", m.name, err)
		}
	}
	return nil
}
