package queue_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/queue"
)

// TestSharded_StrictIsolation drops a family, and makes one whose drop was interrupted, while another session
// has changed its row: at every default isolation level it only waits for that session.
func TestSharded_StrictIsolation(t *testing.T) {
	t.Parallel()
	partitions := queue.Options{Partitions: 2}
	for name, do := range map[string]struct {
		while string
		call  func(context.Context, *pgxpool.Pool) error
	}{
		"drop": {`UPDATE tidewire.queue_family SET partitions = partitions`, func(ctx context.Context, pool *pgxpool.Pool) error {
			return queue.Drop(ctx, pool, "jobs")
		}},
		"ensure": {`UPDATE tidewire.queue_family SET dropping = true`, func(ctx context.Context, pool *pgxpool.Pool) error {
			_, err := queue.Ensure(ctx, pool, "jobs", partitions)
			return err
		}},
	} {
		for _, isolation := range []string{"repeatable read", "serializable"} {
			t.Run(name+" "+isolation, func(t *testing.T) {
				t.Parallel()
				db, _ := setup(t, partitions)
				pgtest.SetDefaults(t, db, map[string]string{"default_transaction_isolation": isolation})
				if _, err := db.Pool.Exec(t.Context(), do.while); err != nil {
					t.Fatal(err)
				}
				tx, err := db.Pool.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer tx.Rollback(context.Background())
				if _, err := tx.Exec(t.Context(), do.while); err != nil {
					t.Fatal(err)
				}
				done := make(chan error, 1)
				go func() { done <- do.call(t.Context(), db.Pool) }()
				eventually(t, "it waits for the other session", func() bool {
					return count(t, db.Pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
				})
				if err := tx.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		}
	}
}
