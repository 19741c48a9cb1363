package eventstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
)

// TestAnswersWhenReplicated: while the standby receives nothing, no append is answered as stored, for all ways
// in which the wait of a commit can end. When the standby continues, the answer comes, and the standby has the events.
func TestAnswersWhenReplicated(t *testing.T) {
	t.Parallel()
	const timeout = 300 * time.Millisecond
	cfg := eventstore.Config{Timeout: timeout}
	for name, end := range pgtest.WaitsEnd {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pgtest.StartPair(t, openMigrated)
			var s *eventstore.Store
			p.Answers(t, end, "ensure", func(ctx context.Context) error {
				for { // as a caller does who has lost the answer
					attempt, cancel := context.WithTimeout(ctx, timeout)
					made, err := ensureStore(attempt, p.Pool, "", cfg)
					cancel()
					if s = made; !pg.Retryable(err) && !errors.Is(err, context.DeadlineExceeded) {
						return err
					}
				}
			})
			t.Cleanup(func() { s.Close(context.Background()) })
			other := open(t, p.Pool, cfg)
			stored := func(_ eventstore.Appended, err error) error { return err }
			p.Answers(t, end, "append", func(ctx context.Context) error { return stored(s.Append(ctx, event("A"))) })
			p.Answers(t, end, "append if", func(ctx context.Context) error {
				return stored(s.AppendIf(ctx, []eventstore.Event{event("B", "x")}, eventstore.Condition{FailIfEventsMatch: eventstore.Tagged("x")}))
			})
			by := map[string]func(context.Context, *eventstore.Store) error{
				"append with ids": func(ctx context.Context, s *eventstore.Store) error {
					e := event("C")
					e.ID = "id"
					return stored(s.Append(ctx, e))
				},
				"append as": func(ctx context.Context, s *eventstore.Store) error {
					return stored(s.AppendAs(ctx, eventstore.RequestID{Client: "p"}, event("D")))
				},
				"append if as": func(ctx context.Context, s *eventstore.Store) error {
					return stored(s.AppendIfAs(ctx, eventstore.RequestID{Client: "p", Sequence: 1}, []eventstore.Event{event("E", "y")},
						eventstore.Condition{FailIfEventsMatch: eventstore.Tagged("y")}))
				},
			}
			for what, do := range by {
				both := make(chan error, 2)
				p.Answers(t, end, what, func(ctx context.Context) error {
					for _, s := range []*eventstore.Store{s, other} {
						go func() { both <- do(ctx, s) }()
					}
					return <-both
				})
				if err := <-both; err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
			after, err := lookupStore(t.Context(), p.Promote(t), "", eventstore.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer after.Close(context.Background())
			if all, err := after.Query(t.Context(), eventstore.Query{}, eventstore.ReadOptions{}); err != nil || len(all) != 5 {
				t.Errorf("after the promotion: %d events, %v, want 5", len(all), err)
			}
		})
	}
}

// openMigrated opens a pool that tells of waits for standbys that were canceled, on a database that it migrates.
func openMigrated(ctx context.Context, url string) (*pgxpool.Pool, error) {
	pool, err := pg.Open(ctx, pg.PoolConfig{URL: url})
	if err == nil {
		_, err = migrate.Up(ctx, pool)
	}
	return pool, err
}
