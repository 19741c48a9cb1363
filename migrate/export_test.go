package migrate

import (
	"context"

	"github.com/tidewire/tidewire/internal/pg"
)

// UpTo applies the migrations up to that version, as an older program does.
func UpTo(ctx context.Context, db pg.DB, version int) error {
	all, err := load()
	for _, m := range all[:version] {
		if err == nil {
			_, err = apply(ctx, db, m)
		}
	}
	return err
}
