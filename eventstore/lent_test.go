package eventstore

import (
	"errors"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
)

// TestWriter_HoldsOnLostConnection: a call waited for another call, which was rejected, so
// it is checked up to the head of that time. Before its own transaction PostgreSQL fails
// over, and another borrower finds that the connection is lost.
func TestWriter_HoldsOnLostConnection(t *testing.T) {
	t.Parallel()
	db, s := prepared(t)
	other, err := EnsureStore(t.Context(), PoolOf(t, db.URL, 4), "", Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(t.Context())
	third, err := EnsureStore(t.Context(), PoolOf(t, db.URL, 4), "", Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close(t.Context())
	if _, err := other.Append(t.Context(), Event{Type: "A", Tags: []string{"a:1"}}); err != nil {
		t.Fatal(err)
	}

	w := newWriter(s)
	defer w.on.Close()
	x := newCall([]Event{{Type: "X", Tags: []string{"y:1"}}}, 100, &Condition{FailIfEventsMatch: Tagged("a:1")}, &s.frequency)
	y := newCall([]Event{{Type: "Y", Tags: []string{"y:1"}}}, 100, &Condition{FailIfEventsMatch: Tagged("y:1")}, &s.frequency)
	b, waiting := w.assemble(t.Context(), []*call{x, y})
	if len(b.checked) != 1 || len(waiting) != 1 {
		t.Fatalf("%d checked, %d wait", len(b.checked), len(waiting))
	}
	w.write(t.Context(), b)
	var conflict *ConflictError
	if got := <-x.done; !errors.As(got.err, &conflict) {
		t.Fatalf("x: %v", got.err)
	}

	// The session was given back. PostgreSQL fails over, to where the event of a:1 never
	// was, and others append there; another borrower of the pool gets the broken session.
	for _, sql := range []string{
		`DELETE FROM tidewire.events_1`, `DELETE FROM tidewire.events_1_tag`, `DELETE FROM tidewire.events_1_batch`,
		`ALTER SEQUENCE tidewire.events_1_position_seq RESTART`, `SELECT setval('tidewire.events_1_position_seq', 1, false)`,
		`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = '` + pg.WriterName + `'`,
	} {
		MustExec(t, db.Pool, sql)
	}
	somebody := pg.NewBorrower(db.Pool)
	defer somebody.Close()
	if err := somebody.Hold(t.Context()); err != nil {
		t.Fatal(err)
	}
	if session := somebody.Session(); session.Conn() != nil {
		session.Recover(t.Context(), session.Conn().Ping(t.Context()))
	}
	somebody.Release()
	if _, err := third.Append(t.Context(), Event{Type: "B", Tags: []string{"y:1"}}); err != nil {
		t.Fatal(err)
	}

	b, _ = w.assemble(t.Context(), waiting)
	w.write(t.Context(), b)
	if got := <-y.done; !errors.As(got.err, &conflict) {
		t.Errorf("stored at %d, %v: want a conflict with the event at 1, which matches the condition", got.first, got.err)
	}
}

// TestWriter_HistoryLostWhileIdle: the last event is lost, as in a failover, while the Store is idle. Its copy in memory must not
// cause a conflict.
func TestWriter_HistoryLostWhileIdle(t *testing.T) {
	t.Parallel()
	db, s := prepared(t)
	w := newWriter(s)
	defer w.on.Close()
	write := func(e Event, condition *Condition) answer {
		c := newCall([]Event{e}, 100, condition, &s.frequency)
		if b, _ := w.assemble(t.Context(), []*call{c}); len(b.calls) > 0 {
			w.write(t.Context(), b)
		}
		return <-c.done
	}
	write(Event{Type: "A"}, nil)
	write(Event{Type: "Lost", Tags: []string{"x"}}, nil)
	unless := &Condition{FailIfEventsMatch: Tagged("x"), After: 1}
	if got := write(Event{Type: "B"}, unless); !errors.Is(got.err, ErrConflict) {
		t.Errorf("%+v, want a conflict", got)
	}
	for _, sql := range []string{
		`DELETE FROM tidewire.events_1 WHERE position = 2`, `DELETE FROM tidewire.events_1_tag WHERE position = 2`,
		`DELETE FROM tidewire.events_1_batch WHERE position = 2`, `SELECT setval('tidewire.events_1_position_seq', 1)`,
	} {
		MustExec(t, db.Pool, sql)
	}
	w.used = time.Now().Add(-trusted)
	if got := write(Event{Type: "B"}, unless); got.err != nil {
		t.Errorf("refused for an event that is gone: %v", got.err)
	}
}
