package ingestlog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
)

// Recreate drops a table of messages with all it holds, if there is one, and
// makes it anew. A table of that name that is not Tidewire's it leaves alone, with
// an error. "" is the default table; the error is pg.ErrTable for a name that none
// can have.
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
