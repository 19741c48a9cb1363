package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
)

// TestStores_AbandonChain publishes twice to a stream whose lock is held, and creates a queue whose name is a prefix
// of the stream's after each. Abandon gives up everything accepted.
func TestStores_AbandonChain(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
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
	for range cap(answers) {
		must(t, s.streams.Publish(ctx, "jobs/x", nil, []engine.Message{{Payload: []byte("y")}}, func(_ engine.Place, err error) { answers <- err }))
		s.streams.becameQueue("jobs") // as each POST /v1/queues/jobs does
	}
	s.streams.abandon()
	for n := range cap(answers) {
		select {
		case err := <-answers:
			if err == nil {
				t.Error("it is stored under somebody's lock")
			}
		case <-ctx.Done():
			t.Fatalf("only %d were given up", n)
		}
	}
}
