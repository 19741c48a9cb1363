package migrate

import (
	"context"
	"fmt"

	"github.com/tidewire/tidewire/internal/pg"
)

// EnterHistory begins a new history of positions if the database has been promoted, recovered to a point in time, or restored
// into another cluster, since the last one began: see 0039_histories.sql. Whoever stores does so too; called before, it
// also notices a restored dump. It waits for no lock of long.
func EnterHistory(ctx context.Context, db pg.DB) error {
	if _, err := db.Exec(ctx, `SELECT tidewire.enter_history()`); err != nil {
		return fmt.Errorf("enter history: %w", err)
	}
	return nil
}
