package eventstore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/migrate"
)

// TestAnswersWhenReplicated: while the standby receives nothing, no append is answered as stored, for all ways
// in which the wait of a commit can end. When the standby continues, the answer comes, and the standby has the events.
func TestAnswersWhenReplicated(t *testing.T) {
	slow(t)
	t.Parallel()
	const timeout = 300 * time.Millisecond
	cfg := eventstore.Config{Timeout: timeout}
	p := pgtest.StartPair(t, openMigrated)
	ways := slices.Sorted(maps.Keys(pgtest.WaitsEnd))
	turns := 1 // each call once, the waits end in another way each time; in a long run each call with each way
	if os.Getenv(testkit.LongVariable) != "" {
		turns = len(ways)
	}
	stored := func(_ eventstore.Appended, err error) error { return err }
	for turn := range turns {
		calls, name := turn, fmt.Sprint("store", turn)
		answers := func(what string, do func(context.Context) error) {
			t.Helper()
			calls++
			p.Answers(t, pgtest.WaitsEnd[ways[calls%len(ways)]], what, do)
		}
		answers("ensure", func(ctx context.Context) error {
			for { // as a caller does who has lost the answer
				attempt, cancel := context.WithTimeout(ctx, timeout)
				made, err := ensureStore(attempt, p.Pool, name, cfg)
				if cancel(); err == nil {
					return made.Close(ctx)
				} else if !pg.Retryable(err) && !errors.Is(err, context.DeadlineExceeded) {
					return err
				}
			}
		})
		s, other := openNamed(t, p.Pool, name, cfg), openNamed(t, p.Pool, name, cfg)
		answers("append", func(ctx context.Context) error { return stored(s.Append(ctx, event("A"))) })
		answers("append if", func(ctx context.Context) error {
			return stored(s.AppendIf(ctx, []eventstore.Event{event("B", "x")}, eventstore.Condition{FailIfEventsMatch: eventstore.Tagged("x")}))
		})
		for what, do := range map[string]func(context.Context, *eventstore.Store) error{
			"append with ids": func(ctx context.Context, s *eventstore.Store) error {
				return stored(s.Append(ctx, withIDs("id", event("C"))...))
			},
			"append as": func(ctx context.Context, s *eventstore.Store) error {
				return stored(s.AppendAs(ctx, eventstore.RequestID{Client: "p"}, event("D")))
			},
			"append if as": func(ctx context.Context, s *eventstore.Store) error {
				return stored(s.AppendIfAs(ctx, eventstore.RequestID{Client: "p", Sequence: 1}, []eventstore.Event{event("E", "y")},
					eventstore.Condition{FailIfEventsMatch: eventstore.Tagged("y")}))
			},
		} {
			both := make(chan error, 2)
			answers(what, func(ctx context.Context) error {
				for _, s := range []*eventstore.Store{s, other} {
					go func() { both <- do(ctx, s) }()
				}
				return <-both
			})
			if err := <-both; err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	after := p.Promote(t)
	for turn := range turns {
		if all := everything(t, openNamed(t, after, fmt.Sprint("store", turn), eventstore.Config{})); len(all) != 5 {
			t.Errorf("after the promotion: %d events, want 5", len(all))
		}
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
