package eventstore_test

import (
	"errors"
	"testing"

	"github.com/tidewire/tidewire/eventstore"
)

// TestHistory_BegunByARefused: after each of two failovers the first append is rejected and rolls back. A condition that relies
// on events lost in the first failover is never accepted.
func TestHistory_BegunByARefused(t *testing.T) {
	t.Parallel()
	db, s := opened(t)
	var kept, lost int64
	for range 5 {
		kept = mustAppend(t, s, event("Kept", "seat:0"))[0]
	}
	for range 5 {
		lost = mustAppend(t, s, event("Lost"))[0]
	}
	mustExec(t, db.Pool, `DELETE FROM tidewire.events_1_tag WHERE position > 5`)
	mustExec(t, db.Pool, `DELETE FROM tidewire.events_1 WHERE position > 5`)
	stale := eventstore.Condition{FailIfEventsMatch: eventstore.Tagged("seat:1"), After: lost}
	for _, what := range []string{"after one failover", "after two"} {
		mustExec(t, db.Pool, `SELECT setval('tidewire.history_seq', (pg_sequence_last_value('tidewire.history_seq') >> 32 << 32) | (tidewire.timeline() + 7))`)
		tx := begin(t, db.Pool)
		_, err := s.AppendIfTx(t.Context(), tx, []eventstore.Event{event("X")}, eventstore.Condition{FailIfEventsMatch: eventstore.Tagged("seat:0")})
		if !errors.Is(err, eventstore.ErrConflict) {
			t.Fatal(err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		other := open(t, db.Pool, eventstore.Config{})
		if at := mustAppend(t, other, event("Taken", "seat:2"))[0]; at <= lost {
			t.Fatal(at)
		}
		_, err = other.AppendIf(t.Context(), []eventstore.Event{event("Taken", "seat:1")}, stale)
		wantLost(t, what, err, kept)
		_, err = other.Query(t.Context(), eventstore.Everything(), eventstore.ReadOptions{After: lost})
		wantLost(t, "a query "+what, err, kept)
	}
}
