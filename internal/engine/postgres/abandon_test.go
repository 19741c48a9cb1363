package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// TestStores_AbandonChain publishes to a stream whose lock is held, and then creates a queue whose name is a prefix
// of the stream's, once or twice. Abandon gives up everything accepted.
func TestStores_AbandonChain(t *testing.T) {
	t.Parallel()
	t.Run("once", func(t *testing.T) { t.Parallel(); abandonChain(t, 1) })
	t.Run("twice", func(t *testing.T) { t.Parallel(); abandonChain(t, 2) })
}

func abandonChain(t *testing.T, times int) {
	db := pgtest.Open(t)
	s := startEngine(t, db)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := s.streams.Create(ctx, "jobs/x", nil)
	must(t, err, s.publish(ctx, "jobs/x"))
	first, _ := s.streams.open.peek("jobs/x")
	tx, err := db.Pool.Begin(ctx)
	must(t, err)
	defer tx.Rollback(context.Background())
	_, err = tx.Exec(ctx, `SELECT pg_advisory_xact_lock(1953064037, $1)`, first.ID())
	must(t, err)
	answers := make(chan error, 2)
	for range times {
		must(t, s.streams.Publish(ctx, "jobs/x", nil, []engine.Message{{Payload: []byte("y")}}, func(_ engine.Place, err error) { answers <- err }))
		s.streams.becameQueue("jobs") // as each POST /v1/queues/jobs does
	}
	s.streams.abandon()
	for n := range times {
		select {
		case err := <-answers:
			t.Log(n, err)
		case <-time.After(20 * time.Second):
			t.Fatalf("only %d of %d were given up", n, times)
		}
	}
}
