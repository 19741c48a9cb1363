package migrate

import (
	"context"
	"fmt"
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
