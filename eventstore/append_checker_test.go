package eventstore

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/testkit"
)

// TestChecker_ClosesNoConnection: the pool's ping of an idle connection takes longer
// than the checker waits, as it may over a network. The connection is not closed.
func TestChecker_ClosesNoConnection(t *testing.T) {
	t.Parallel()
	db, _ := prepared(t)
	cfg := db.Pool.Config()
	var closed atomic.Int32
	var asking atomic.Bool
	cfg.BeforeClose = func(*pgx.Conn) { closed.Add(1) }
	cfg.ShouldPing = func(ctx context.Context, _ pgxpool.ShouldPingParams) bool {
		if asking.Load() {
			<-ctx.Done() // the checker has given up
		}
		return true
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s, err := EnsureStore(t.Context(), pool, "", Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(t.Context()) })

	ahead := checker{store: s, acquire: aheadWait}
	c := newCall([]Event{{Type: "T"}}, 100, &Condition{FailIfEventsMatch: Typed("T")}, &s.frequency)
	for range 3 {
		asking.Store(true)
		ahead.ask(t.Context(), 100, c)
		asking.Store(false)
		testkit.Eventually(t, "the pool asks no more", func() bool { return pool.Stat().AcquiredConns() == 0 })
	}
	if n := closed.Load(); n > 0 {
		t.Errorf("%d connections that work were closed", n)
	}
}
