package migrate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
)

// rehearsalSQL is what a server does before it is ready, and each second afterwards, but for the history.
var rehearsalSQL = []string{
	`LISTEN ` + pg.StreamChannel,
	`CREATE TEMPORARY TABLE tidewire_rehearsal (filler text) ON COMMIT DROP`,
	`INSERT INTO tidewire.batch (writer, number, first_position) VALUES (-1, 0, 0)`,
	`DELETE FROM tidewire.batch WHERE writer = -1`,
	`SELECT tidewire.rehearse_history()`,
}

// Rehearse does in a transaction, which the caller has to roll back, what a server does before it is ready, and returns why a
// server would not start. If a table is named, it is made and written too. The schema has to be up to
// date, and the role needs Rights. READ COMMITTED.
func Rehearse(ctx context.Context, tx pgx.Tx, table string) error {
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
	if err := Rights(ctx, db, table); err != nil {
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
