package eventstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/eventstore"
)

func withIDs(prefix string, events ...eventstore.Event) []eventstore.Event {
	for i := range events {
		events[i].ID = fmt.Sprint(prefix, "/", i)
	}
	return events
}

func TestAppendIf_RepeatedWithIDs(t *testing.T) {
	t.Parallel()
	db := setup(t)
	s, other := open(t, db.Pool, eventstore.Config{}), open(t, poolOf(t, db.URL), eventstore.Config{})
	unique := eventstore.Condition{FailIfEventsMatch: eventstore.Tagged("a:1")}
	events := withIDs("first", event("A", "a:1"), event("B", "a:1"))
	events[1].ID = "" // one id is enough to know an append by
	want, err := allOf(s.AppendIf(soon(t), events, unique))
	if err != nil {
		t.Fatal(err)
	}
	for _, again := range []*eventstore.Store{s, other} {
		if got, err := allOf(again.AppendIf(soon(t), events, unique)); err != nil || !slices.Equal(got, want) {
			t.Errorf("repeated with a condition: %v, %v, want %v", got, err, want)
		}
		if got, err := allOf(again.Append(soon(t), events...)); err != nil || !slices.Equal(got, want) {
			t.Errorf("repeated: %v, %v, want %v", got, err, want)
		}
	}
	changed := slices.Clone(events)
	changed[1].Type = "C"
	fresh := withIDs("second", event("A", "a:2"))
	for name, bad := range map[string][]eventstore.Event{
		"other content": changed, "fewer": events[:1], "more": append(slices.Clone(events), event("D")),
		"elsewhere": append(slices.Clone(fresh), events[0]),
	} {
		if name == "fewer" {
			bad = append(slices.Clone(bad), event("E"))
		}
		_, err := s.Append(soon(t), bad...)
		var duplicate *eventstore.DuplicateError
		if !errors.As(err, &duplicate) || duplicate.ID != "first/0" || duplicate.Position != want[0] {
			t.Errorf("%s: %v, want a DuplicateError", name, err)
		}
	}
	if all := everything(t, s); len(all) != 2 {
		t.Errorf("%d events stored, want 2", len(all))
	}
}

// TestAppendIfTx: a transaction's own events count, and are read through it: there is no other connection.
func TestAppendIfTx(t *testing.T) {
	t.Parallel()
	db, s := opened(t)
	only := eventstore.PoolOf(t, db.URL, 1)
	alone, err := lookupStore(t.Context(), only, "", eventstore.Config{Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { alone.Close(context.Background()) })
	unique := eventstore.Condition{FailIfEventsMatch: eventstore.Tagged("a:1"), WantEvents: 1}
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		tx, err := db.Pool.BeginTx(soon(t), pgx.TxOptions{IsoLevel: level})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.AppendIfTx(soon(t), tx, []eventstore.Event{event("A", "a:1")}, unique); !errors.Is(err, eventstore.ErrIsolation) {
			t.Errorf("%s: %v, want ErrIsolation", level, err)
		}
		tx.Rollback(soon(t))
	}
	var conflict *eventstore.ConflictError
	err = pgx.BeginFunc(soon(t), only, func(tx pgx.Tx) error {
		if _, err := alone.AppendIfTx(soon(t), tx, withIDs("tx", event("A", "a:1")), unique); err != nil {
			return err
		}
		_, err := alone.AppendIfTx(soon(t), tx, []eventstore.Event{event("B", "a:1")}, unique)
		if !errors.As(err, &conflict) || len(conflict.Events) != 1 || conflict.Events[0].Type != "A" {
			t.Errorf("%v, want a conflict with the transaction's own event", err)
		}
		if _, err := alone.AppendTx(soon(t), tx, withIDs("tx", event("A", "a:1"))...); !errors.Is(err, eventstore.ErrDuplicateID) {
			t.Errorf("%v, want ErrDuplicateID", err)
		}
		_, err = alone.AppendTx(soon(t), tx, event("B"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.AppendIf(soon(t), []eventstore.Event{event("A", "a:1")}, unique)
	if !errors.As(err, &conflict) || len(everything(t, s)) != 2 || conflict.Position != everything(t, s)[0].Position {
		t.Errorf("%v, want a conflict with the first of two events", err)
	}
	tx := begin(t, db.Pool)
	if _, err := s.AppendTx(soon(t), tx, event("RolledBack")); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(soon(t)); err != nil {
		t.Fatal(err)
	}
	if all := everything(t, s); len(all) != 2 {
		t.Errorf("%d events, want 2", len(all))
	}
	mustAppend(t, s, event("Behind"))
}
