package eventstore_test

import (
	"errors"
	"testing"

	"github.com/tidewire/tidewire/eventstore"
)

// TestQuery_MissingEvents: an event that the index still names is lost. The query fails
// and does not return the remaining events.
func TestQuery_MissingEvents(t *testing.T) {
	t.Parallel()
	db, s := opened(t)
	mustAppend(t, s, event("A", "x"), event("B", "x"), event("A", "y"))
	mustExec(t, db.Pool, `DELETE FROM tidewire.events_1 WHERE position = 1`)
	for range 2 {
		for _, options := range []eventstore.ReadOptions{{}, {Backwards: true}, {Limit: 1}, {After: 0, Before: 2}} {
			if got, err := s.Query(t.Context(), eventstore.Tagged("x"), options); err == nil {
				t.Errorf("%+v: %v, want an error", options, got)
			}
		}
	}
	if got, err := s.Query(t.Context(), eventstore.Tagged("y"), eventstore.ReadOptions{}); err != nil || len(got) != 1 {
		t.Errorf("%v, %v, want the one that is there", got, err)
	}
}

// TestAppendIf_OtherHistory: the store's history is replaced while a Store has the old one
// in memory, as in a failover that loses events.
func TestAppendIf_OtherHistory(t *testing.T) {
	t.Parallel()
	db := setup(t)
	s, other := open(t, db.Pool, eventstore.Config{}), open(t, poolOf(t, db.URL), eventstore.Config{})
	mustAppend(t, s, event("A", "a:1"))
	for _, sql := range []string{
		`DELETE FROM tidewire.events_1`, `DELETE FROM tidewire.events_1_tag`, `DELETE FROM tidewire.events_1_batch`,
		`ALTER SEQUENCE tidewire.events_1_position_seq RESTART`, `SELECT setval('tidewire.events_1_position_seq', 1, false)`,
	} {
		mustExec(t, db.Pool, sql)
	}
	mustAppend(t, other, event("B", "b:1")) // at the same position
	_, err := s.AppendIf(t.Context(), []eventstore.Event{event("B", "b:1")}, eventstore.Condition{FailIfEventsMatch: eventstore.Tagged("b:1")})
	var conflict *eventstore.ConflictError
	if !errors.As(err, &conflict) || conflict.Position != 1 {
		t.Errorf("%v, want a conflict at 1", err)
	}
}
