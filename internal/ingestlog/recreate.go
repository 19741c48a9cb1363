package ingestlog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
)

// Recreate drops a table of messages with its content, if it exists, and creates
// it again. If a table of that name is not Tidewire's, it is not changed and
// Recreate returns an error. "" is the default table. The error is pg.ErrTable for
// an invalid name.
func Recreate(ctx context.Context, db pg.DB, table string) error {
	t, err := pg.IngestTable(table)
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		var made bool
		for range 2 {
			if err := tx.QueryRow(ctx, ensureIngestSQL, t.Schema, t.Name).Scan(&made); err != nil || made {
				return err
			}
			if _, err := tx.Exec(ctx, fmt.Sprintf(dropIngestFmt, t.Quoted(""))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("recreate table %s: %w", t, err)
	}
	return nil
}
