package eventstore

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// manyItems is a condition with so many items, each of a type and two tags.
func manyItems(items int) Condition {
	var q Query
	for n := range items {
		q.Items = append(q.Items, Item{Types: []string{"T"}, Tags: []string{"many", fmt.Sprint("tag", n)}})
	}
	return Condition{FailIfEventsMatch: q}
}

// aLot is a number of items with more than maxLookups index lookups.
const aLot = maxLookups/3 + 1

// TestAppendIf_ManyItemsWaitApart: appends under conditions with many items wait for each other, and no other append
// waits for them.
func TestAppendIf_ManyItemsWaitApart(t *testing.T) {
	t.Parallel()
	db, s := prepared(t)
	if _, err := s.Append(t.Context(), Event{Type: "Before"}); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, db, Config{}) // does not have that event in memory
	for range cap(s.slowChecks) {
		s.slowChecks <- struct{}{}
	}
	answered := make(chan error)
	for n := range 3 {
		go func() {
			_, err := s.AppendIf(t.Context(), []Event{{Type: fmt.Sprint("Costly", n)}}, manyItems(aLot))
			answered <- err
		}()
	}
	for n := range 20 {
		if _, err := s.Append(t.Context(), Event{Type: "Cheap"}); err != nil {
			t.Fatal(err)
		}
		tag := fmt.Sprint(n)
		if _, err := s.AppendIf(t.Context(), []Event{{Type: "Cheap", Tags: []string{tag}}}, Condition{FailIfEventsMatch: Tagged(tag)}); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-answered:
		t.Fatalf("an append was answered without a slot: %v", err)
	default:
	}
	for range cap(s.slowChecks) {
		<-s.slowChecks
	}
	for range 3 {
		if err := <-answered; err != nil {
			t.Error(err)
		}
	}
	if apart := s.Stats().CheckedApart; apart != 3 {
		t.Errorf("checked apart %d times, want once for each append with many items", apart)
	}
}

// TestAppendIf_ManyItemsExclude: of appends under conditions with many items that exclude each other one is stored,
// also with transactions of the caller.
func TestAppendIf_ManyItemsExclude(t *testing.T) {
	t.Parallel()
	db, s := prepared(t)
	results := make(chan error)
	const callers = 12
	for n := range callers {
		event := Event{Type: "T", Tags: []string{"many", fmt.Sprint("tag", n)}}
		go func() {
			if n%2 == 0 {
				_, err := s.AppendIf(t.Context(), []Event{event}, manyItems(aLot))
				results <- err
				return
			}
			results <- pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
				_, err := s.AppendIfTx(t.Context(), tx, []Event{event}, manyItems(aLot))
				return err
			})
		}()
	}
	stored := 0
	for range callers {
		if err := <-results; err == nil {
			stored++
		} else if !errors.Is(err, ErrConflict) {
			t.Error(err)
		}
	}
	if events, err := s.Query(t.Context(), Typed("T"), ReadOptions{}); stored != 1 || len(events) != 1 || err != nil {
		t.Errorf("%d were answered as stored, and %d are stored, want one; %v", stored, len(events), err)
	}
}

// TestAppendIf_SomeItemsTogether: appends under conditions with some items share batches, in whatever order many of them come: none is checked apart, and each that
// holds is stored.
func TestAppendIf_SomeItemsTogether(t *testing.T) {
	t.Parallel()
	_, s := prepared(t)
	var callers sync.WaitGroup
	for c := range 50 {
		callers.Go(func() {
			for n := range 4 {
				condition := manyItems(100)
				condition.FailIfEventsMatch.Items[n].Tags = []string{fmt.Sprint(c, ".", n)}
				if _, err := s.AppendIf(t.Context(), []Event{{Type: "T", Tags: []string{fmt.Sprint(c, ".", n)}}}, condition); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	if stats := s.Stats(); stats.CheckedApart > 0 || stats.Events != 200 {
		t.Errorf("%+v, want 200 events, none checked apart", stats)
	}
}

// TestAppendIf_HistoryLost: an After that is lost, or past the end, is ErrHistoryLost, however many items the condition has.
func TestAppendIf_HistoryLost(t *testing.T) {
	t.Parallel()
	for _, items := range []int{1, 40, aLot} {
		db, s := prepared(t)
		lost := int64(0)
		for range 10 {
			a, err := s.Append(t.Context(), Event{Type: "Old"})
			if err != nil {
				t.Fatal(err)
			}
			lost = a.Last
		}
		for _, sql := range []string{
			`DELETE FROM tidewire.events_1_tag WHERE position > 5`, `DELETE FROM tidewire.events_1 WHERE position > 5`,
			`SELECT setval('tidewire.history_seq', (pg_sequence_last_value('tidewire.history_seq') >> 32 << 32) | (tidewire.timeline() + 7))`,
		} {
			if _, err := db.Pool.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := reopen(t, db, Config{}).Append(t.Context(), Event{Type: "T", Tags: []string{"many", "tag0"}}); err != nil {
			t.Fatal(err)
		}
		s = reopen(t, db, Config{}) // nothing in memory
		matches, none := manyItems(items), manyItems(items)
		for i := range none.FailIfEventsMatch.Items {
			none.FailIfEventsMatch.Items[i].Types = []string{"Nothing"}
		}
		for name, c := range map[string]Condition{"with a conflict": matches, "without a conflict": none} {
			for _, after := range []int64{lost, 1 << 40} {
				c.After = after
				_, err := s.AppendIf(t.Context(), []Event{{Type: "N"}}, c)
				errTx := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
					_, err := s.AppendIfTx(t.Context(), tx, []Event{{Type: "N"}}, c)
					return err
				})
				if !errors.Is(err, ErrHistoryLost) || !errors.Is(errTx, ErrHistoryLost) {
					t.Errorf("%d items, after %d, %s: %v, and in a transaction %v, want ErrHistoryLost", items, after, name, err, errTx)
				}
			}
		}
	}
}

// TestAppendIf_RepeatedTooExpensive: the repetition of a request, or of an event with an id, that is stored is answered as one, also if its condition takes too long now.
func TestAppendIf_RepeatedTooExpensive(t *testing.T) {
	t.Parallel()
	db, s := prepared(t)
	condition := neverTogether(t, db, s, 5_000, 100)
	patient := reopen(t, db, Config{CheckTimeout: 10 * time.Minute})
	request := RequestID{Client: "c", Sequence: 1}
	requested, err := patient.AppendIfAs(t.Context(), request, []Event{{Type: "E"}}, condition)
	if err != nil {
		t.Fatal(err)
	}
	named, err := patient.AppendIf(t.Context(), []Event{{Type: "E", ID: "x"}}, condition)
	if err != nil {
		t.Fatal(err)
	}
	hasty := reopen(t, db, Config{CheckTimeout: time.Millisecond})
	if got, err := hasty.AppendIfAs(t.Context(), request, []Event{{Type: "E"}}, condition); err != nil || got.First != requested.First || !got.Duplicate {
		t.Errorf("repeated request: %+v, %v", got, err)
	}
	if got, err := hasty.AppendIf(t.Context(), []Event{{Type: "E", ID: "x"}}, condition); err != nil || got.First != named.First || !got.Duplicate {
		t.Errorf("repeated id: %+v, %v", got, err)
	}
	if _, err := hasty.AppendIf(t.Context(), []Event{{Type: "E"}}, condition); !errors.Is(err, ErrTooExpensive) {
		t.Errorf("another append: %v, want ErrTooExpensive", err)
	}
}
