package eventstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// MaxTypes is the most types that one call of Types returns.
const MaxTypes = 1000

// Types returns types of events that the store has: those that begin with prefix and come after another text, ordered by their
// bytes, at most limit. It is a loose index scan: one look into an index for each type, however many events there are.
//
// Errors: ErrInvalid, ErrNotFound, ctx's error, and errors of PostgreSQL, also if it is unavailable.
func (s *Store) Types(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	switch {
	case !isText(prefix):
		return nil, invalid("prefix", notText)
	case !isText(after):
		return nil, invalid("after", notText)
	case limit < 1 || limit > MaxTypes:
		return nil, invalid("limit", "%d, want 1 to %d", limit, MaxTypes)
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	var types []string
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) (err error) {
		if _, err = tx.Exec(ctx, byIndexSQL); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, s.sql.types, prefix, after, limit)
		if err != nil {
			return err
		}
		types, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err != nil {
		return nil, s.explain("list the types of", fmt.Errorf("types: %w", err))
	}
	return types, nil
}
