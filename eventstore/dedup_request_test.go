package eventstore_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/testkit"
)

func mustAppendAs(t *testing.T, s *eventstore.Store, p eventstore.RequestID, events ...eventstore.Event) []int64 {
	t.Helper()
	positions, err := allOf(s.AppendAs(soon(t), p, events...))
	if err != nil {
		t.Fatal(err)
	}
	return positions
}

func TestAppendAs_Once(t *testing.T) {
	t.Parallel()
	db, s := opened(t)
	p := eventstore.RequestID{Client: `o"d'd\,{ü}`, Sequence: 7}
	first := mustAppendAs(t, s, p, event("A"), event("B"))
	if again := mustAppendAs(t, s, p, event("A"), event("B")); !slices.Equal(again, first) {
		t.Errorf("%v and then %v", first, again)
	}
	mustAppendAs(t, s, eventstore.RequestID{Client: p.Client, Sequence: 3}, event("Lower"))
	mustAppendAs(t, s, eventstore.RequestID{Client: "another", Sequence: 7}, event("C"))
	// All callers of one request get one answer.
	var calling sync.WaitGroup
	answers := make([]int64, 20)
	for i := range answers {
		calling.Go(func() { answers[i] = mustAppendAs(t, s, eventstore.RequestID{Client: "same"}, event("D"))[0] })
	}
	calling.Wait()
	if slices.Sort(answers); answers[0] != answers[19] {
		t.Errorf("answers %v", answers)
	}
	if err := s.Close(soon(t)); err != nil {
		t.Fatal(err)
	}
	other := open(t, poolOf(t, db.URL), eventstore.Config{}) // as after a restart
	if again := mustAppendAs(t, other, p, event("A"), event("B")); !slices.Equal(again, first) {
		t.Errorf("%v and by another Store %v", first, again)
	}
	if n := len(everything(t, other)); n != 5 {
		t.Errorf("%d events, want 5", n)
	}
	for _, p := range []eventstore.RequestID{{}, {Client: "a\x00"}, {Client: "p", Sequence: -1}} {
		if _, err := other.AppendAs(soon(t), p, event("A")); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", p, err)
		}
	}
}

// TestAppendIfAs_RejectedIsEvaluatedAnew: a request does not conflict with its own
// events, and a rejected request leaves no record.
func TestAppendIfAs_RejectedIsEvaluatedAnew(t *testing.T) {
	t.Parallel()
	db := setup(t)
	stores := []*eventstore.Store{open(t, db.Pool, eventstore.Config{}), open(t, poolOf(t, db.URL), eventstore.Config{})}
	unique := eventstore.Condition{FailIfEventsMatch: eventstore.Tagged("name:x")}
	ann, bob := eventstore.RequestID{Client: "ann"}, eventstore.RequestID{Client: "bob"}
	for i := range 4 {
		got, err := allOf(stores[i%2].AppendIfAs(soon(t), ann, []eventstore.Event{event("Taken", "name:x")}, unique))
		if err != nil || !slices.Equal(got, []int64{1}) {
			t.Errorf("%v, %v, want position 1", got, err)
		}
		_, err = stores[i%2].AppendIfAs(soon(t), bob, []eventstore.Event{event("Taken", "name:x")}, unique)
		if !errors.Is(err, eventstore.ErrConflict) {
			t.Errorf("%v, want a conflict", err)
		}
	}
	free := eventstore.Condition{FailIfEventsMatch: eventstore.Tagged("name:y")}
	if got, err := allOf(stores[0].AppendIfAs(soon(t), bob, []eventstore.Event{event("Taken", "name:y")}, free)); err != nil {
		t.Errorf("%v, %v, want it looked at anew", got, err)
	}
}

// rotate deletes the records of requests of the first store as if KeepRequests had
// passed. An open Store does the same after its first append, and the two may block each
// other. It is enough that the tables have changed places.
func rotate(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	const lock = 1<<30 + 1
	current := func() (n int) {
		t.Helper()
		if err := pool.QueryRow(soon(t), `SELECT current FROM tidewire.request_window WHERE stream = $1`, lock).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := current()
	mustExec(t, pool, fmt.Sprintf(`UPDATE tidewire.request_window SET since = since - interval '%d s' WHERE stream = %d`,
		int(eventstore.KeepRequests.Seconds()), lock))
	testkit.Eventually(t, "the tables have changed places", func() bool {
		for _, sql := range []string{`SELECT tidewire.fold_requests($1, $2)`, `SELECT tidewire.swap_requests($1, $2)`} {
			_, err := pool.Exec(soon(t), sql, lock, eventstore.KeepRequests)
			if err != nil && pg.Code(err) != pg.CodeLockNotAvailable {
				t.Fatal(err)
			}
		}
		return current() != before
	})
}

func TestAppendAs_TooOld(t *testing.T) {
	t.Parallel()
	db, s := opened(t)
	p := eventstore.RequestID{Client: "p", Sequence: 5}
	first := mustAppendAs(t, s, p, event("A", "a"))
	rotate(t, db.Pool)
	if again := mustAppendAs(t, s, p, event("A", "a")); !slices.Equal(again, first) {
		t.Errorf("%v and then %v", first, again)
	}
	rotate(t, db.Pool)
	for _, sequence := range []int64{5, 4} {
		old := eventstore.RequestID{Client: "p", Sequence: sequence}
		if _, err := s.AppendAs(soon(t), old, event("A", "a")); !errors.Is(err, eventstore.ErrSequenceTooOld) {
			t.Errorf("%d: %v, want ErrSequenceTooOld", sequence, err)
		}
		unique := eventstore.Condition{FailIfEventsMatch: eventstore.Tagged("a")}
		if _, err := s.AppendIfAs(soon(t), old, []eventstore.Event{event("A", "a")}, unique); !errors.Is(err, eventstore.ErrSequenceTooOld) {
			t.Errorf("%d, with a condition: %v, want ErrSequenceTooOld", sequence, err)
		}
	}
	mustAppendAs(t, s, eventstore.RequestID{Client: "p", Sequence: 6}, event("A"))
	mustAppendAs(t, s, eventstore.RequestID{Client: "q", Sequence: 1}, event("A"))
	if n := len(everything(t, s)); n != 3 {
		t.Errorf("%d events, want 3", n)
	}
}
