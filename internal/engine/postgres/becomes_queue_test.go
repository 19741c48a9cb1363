package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

// TestStreamStore_BecameQueueAndAbandoned: a message waits for the lock of a stream that becomes a
// queue's stream. Abandon gives it up with the others.
func TestStreamStore_BecameQueueAndAbandoned(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	s := startEngine(t, db)
	x, err := stream.Ensure(t.Context(), db.Pool, "jobs/x", stream.Options{})
	if err != nil {
		t.Fatal(err)
	}
	must(t, s.publish(t.Context(), "jobs/x"))
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `SELECT pg_advisory_xact_lock(1953064037, $1)`, x.ID()); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	must(t, s.streams.Publish(t.Context(), "jobs/x", nil, []engine.Message{{Payload: []byte("x")}}, func(_ engine.Place, err error) {
		answered <- err
	}))
	s.streams.becameQueue("jobs")
	s.streams.abandon()
	select {
	case err := <-answered:
		if err == nil {
			t.Error("it is stored under somebody's lock")
		}
	case <-time.After(time.Minute):
		t.Fatal("nobody gives it up")
	}
}
