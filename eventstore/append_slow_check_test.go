package eventstore

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pgtest"
)

// reopen returns a Store of the same events with another configuration.
func reopen(t *testing.T, db pgtest.DB, cfg Config) *Store {
	t.Helper()
	s, err := EnsureStore(t.Context(), db.Pool, "", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(t.Context()) })
	return s
}

// appendIfInTx is AppendIfTx in a transaction of its own.
func appendIfInTx(t *testing.T, db pgtest.DB, s *Store, e Event, c Condition) error {
	return pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
		_, err := s.AppendIfTx(t.Context(), tx, []Event{e}, c)
		return err
	})
}

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

// TestAppendIf_TooExpensive: appends with conditions that are too expensive do not disturb other appends, alone or in the same
// batch. A repetition of a request, or of an event with an id, that is stored is answered as one all the same.
func TestAppendIf_TooExpensive(t *testing.T) {
	Slow(t)
	t.Parallel()
	db, s := prepared(t)
	fill(t, s, 40_000)
	condition := neverTogether(300)
	patient := reopen(t, db, Config{CheckTimeout: 10 * time.Minute})
	request := RequestID{Client: "c", Sequence: 1}
	requested, err := patient.AppendIfAs(t.Context(), request, []Event{{Type: "E"}}, neverTogether(1))
	if err != nil {
		t.Fatal(err)
	}
	named, err := patient.AppendIf(t.Context(), []Event{{Type: "E", ID: "x"}}, neverTogether(1))
	if err != nil {
		t.Fatal(err)
	}
	s = reopen(t, db, Config{CheckTimeout: 20 * time.Millisecond, Timeout: 5 * time.Second})
	if got, err := s.AppendIfAs(t.Context(), request, []Event{{Type: "E"}}, condition); err != nil || got.First != requested.First || !got.Duplicate {
		t.Errorf("repeated request: %+v, %v", got, err)
	}
	if got, err := s.AppendIf(t.Context(), []Event{{Type: "E", ID: "x"}}, condition); err != nil || got.First != named.First || !got.Duplicate {
		t.Errorf("repeated id: %+v, %v", got, err)
	}
	var callers sync.WaitGroup
	for c := range 5 {
		callers.Go(func() {
			for n := range 5 {
				name := fmt.Sprint(c, ".", n)
				if c < 1 {
					if _, err := s.AppendIf(t.Context(), []Event{{Type: "F", ID: name}}, condition); !errors.Is(err, ErrTooExpensive) {
						t.Errorf("%v, want ErrTooExpensive", err)
					}
					continue
				}
				if _, err := s.AppendIf(t.Context(), []Event{{Type: "C", Tags: []string{name}}}, Condition{FailIfEventsMatch: Tagged(name)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	if stored, err := s.Query(t.Context(), Typed("F", "C"), ReadOptions{}); err != nil || len(stored) != 20 {
		t.Errorf("%d events stored, want those with cheap conditions; %v", len(stored), err)
	}
	tx := Begin(t, db.Pool)
	if _, err := s.AppendIfTx(t.Context(), tx, []Event{{Type: "E"}}, condition); !errors.Is(err, ErrTooExpensive) {
		t.Errorf("in a transaction: %v, want ErrTooExpensive", err)
	}
	if _, err := s.AppendTx(t.Context(), tx, Event{Type: "F"}); err != nil {
		t.Errorf("the transaction does not go on: %v", err)
	}
	if err := s.Watch(t.Context(), condition); !errors.Is(err, ErrTooExpensive) {
		t.Errorf("watched: %v, want ErrTooExpensive", err)
	}
}

// TestAppendIf_CheckedApart: an expensive condition, and one with many items, is checked without the lock, and correctly: of
// appends that exclude each other one is stored, also with transactions of the caller.
func TestAppendIf_CheckedApart(t *testing.T) {
	t.Parallel()
	db, s := prepared(t)
	fill(t, s, 5_000)
	s = reopen(t, db, Config{CheckTimeout: time.Minute})
	for name, c := range map[string]struct {
		condition Condition
		event     Event // meets it
	}{
		"expensive": {neverTogether(3), Event{Type: "T0", Tags: []string{"one", "two"}}},
		"items":     {manyItems(aLot), Event{Type: "T", Tags: []string{"many", "tag7"}}},
	} {
		before := s.Stats().CheckedApart
		if _, err := s.AppendIf(t.Context(), []Event{{Type: "First"}}, c.condition); err != nil {
			t.Fatal(err)
		}
		if apart := s.Stats().CheckedApart - before; apart != 1 {
			t.Errorf("%s: checked apart %d times, want once", name, apart)
		}
		var accepted, refused atomic.Int64
		refusedBefore := s.Stats().Conflicts
		var callers sync.WaitGroup
		for n := range 8 {
			callers.Go(func() {
				var err error
				if n%2 == 0 {
					_, err = s.AppendIf(t.Context(), []Event{c.event}, c.condition)
				} else {
					err = appendIfInTx(t, db, s, c.event, c.condition)
				}
				switch {
				case err == nil:
					accepted.Add(1)
				case errors.Is(err, ErrConflict):
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		callers.Wait()
		if counted := s.Stats().Conflicts - refusedBefore; counted != refused.Load() {
			t.Errorf("%s: %d conflicts are counted, want %d", name, counted, refused.Load())
		}
		stored, err := s.Query(t.Context(), Tagged(c.event.Tags...), ReadOptions{})
		if err != nil || accepted.Load() != 1 || len(stored) != 1 {
			t.Fatalf("%s: %d were accepted, and %d stored, want one: %v", name, accepted.Load(), len(stored), err)
		}
		var conflict *ConflictError
		if err := appendIfInTx(t, db, s, Event{Type: "Z"}, c.condition); !errors.As(err, &conflict) || conflict.Position != stored[0].Position {
			t.Errorf("%s, in a transaction: %v, want the conflict at %d", name, err, stored[0].Position)
		}
	}
}

// TestAppendIf_ManyItemsWaitApart: appends under conditions with many items wait for each other, and no other append waits for
// them. Those with some items share batches with others, in whatever order many of them come.
func TestAppendIf_ManyItemsWaitApart(t *testing.T) {
	Slow(t)
	t.Parallel()
	db, s := prepared(t)
	if _, err := s.Append(t.Context(), Event{Type: "Before"}); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, db, Config{}) // does not have that event in memory
	for range cap(s.slowChecks) {
		s.slowChecks <- struct{}{}
	}
	answered := make(chan error, 3)
	for n := range 3 {
		go func() {
			_, err := s.AppendIf(t.Context(), []Event{{Type: fmt.Sprint("Costly", n)}}, manyItems(aLot))
			answered <- err
		}()
	}
	var callers sync.WaitGroup
	for c := range 20 {
		callers.Go(func() {
			for n := range 4 {
				tag := fmt.Sprint(c, ".", n)
				condition := manyItems(100)
				condition.FailIfEventsMatch.Items[n].Tags = []string{tag}
				if _, err := s.AppendIf(t.Context(), []Event{{Type: "T", Tags: []string{tag}}}, condition); err != nil {
					t.Error(err)
				}
				if _, err := s.Append(t.Context(), Event{Type: "Cheap"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	if stats := s.Stats(); stats.CheckedApart > 3 || stats.Events != 160 || len(answered) > 0 {
		t.Fatalf("%+v, %d answered without a slot, want 160 events, none checked apart", stats, len(answered))
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

// TestAppendIf_HistoryLost: an After that is lost, or past the end, is ErrHistoryLost, however many items the condition has.
func TestAppendIf_HistoryLost(t *testing.T) {
	Slow(t)
	t.Parallel()
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
		MustExec(t, db.Pool, sql)
	}
	if _, err := reopen(t, db, Config{}).Append(t.Context(), Event{Type: "T", Tags: []string{"many", "tag0"}}); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, db, Config{}) // nothing in memory
	for _, items := range []int{1, 40, aLot} {
		matches, none := manyItems(items), manyItems(items)
		for i := range none.FailIfEventsMatch.Items {
			none.FailIfEventsMatch.Items[i].Types = []string{"Nothing"}
		}
		for name, c := range map[string]Condition{"with a conflict": matches, "without a conflict": none} {
			for _, after := range []int64{lost, 1 << 40} {
				c.After = after
				_, err := s.AppendIf(t.Context(), []Event{{Type: "N"}}, c)
				if errTx := appendIfInTx(t, db, s, Event{Type: "N"}, c); !errors.Is(err, ErrHistoryLost) || !errors.Is(errTx, ErrHistoryLost) {
					t.Errorf("%d items, after %d, %s: %v, and in a transaction %v, want ErrHistoryLost", items, after, name, err, errTx)
				}
			}
		}
	}
}

// TestForget_InSlices: old batch rows are deleted, but never the last row and young
// rows.
func TestForget_InSlices(t *testing.T) {
	t.Parallel()
	db, s := prepared(t)
	_, err := db.Pool.Exec(t.Context(), `
INSERT INTO tidewire.events_1_batch (position, first_position, writer, number, created_at)
SELECT n, n, CASE n % 4 WHEN 0 THEN n ELSE n % 4 END, CASE n % 4 WHEN 0 THEN 0 ELSE n END,
	now() - CASE n % 4 WHEN 1 THEN interval '2 days' WHEN 3 THEN interval '0' ELSE interval '10 minutes' END
FROM generate_series(1, 2501) AS n`)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.forgetAll(t.Context(), 3, 1000); err != nil {
		t.Fatal(err)
	}
	// Of transactions none are left, of 1 the last, of 2 all, of 3 those from 1000 on.
	var left string
	err = db.Pool.QueryRow(t.Context(), `SELECT concat_ws(' ', count(*) FILTER (WHERE number = 0), count(*) FILTER (WHERE writer = 1 AND number > 0),
		count(*) FILTER (WHERE writer = 2 AND number > 0), count(*) FILTER (WHERE writer = 3 AND number > 0)) FROM tidewire.events_1_batch`).Scan(&left)
	if err != nil || left != "0 1 625 375" {
		t.Errorf("%s rows are left, want 0, 1, 625, 375; %v", left, err)
	}
	if c := (Config{}).withDefaults(); c.LockTimeout != 10*time.Second {
		t.Errorf("by default a lock is waited for %v", c.LockTimeout)
	}
	if c := (Config{LockTimeout: math.MaxInt64}).withDefaults(); c.LockTimeout > keepMarks/2 {
		t.Errorf("a lock is waited for %v, rows are kept for %v", c.LockTimeout, keepMarks)
	}
}

// TestTail_ManyLookups: checks that would take the committer long are left to PostgreSQL.
func TestTail_ManyLookups(t *testing.T) {
	t.Parallel()
	written := tail{maxEvents: 10_000, epoch: 1}
	for n := range 1000 {
		seg := written.segment()
		var f tailIndex
		f.add("A", []string{"t"})
		f.key(tagHash("t"))
		seg.facts.join(&f)
		written.extend(seg, int64(n), basis{int64(n + 1), 1, int64(n + 1)})
	}
	for items, refused := range map[int]bool{10: true, 100: false} {
		var q Query
		for range items {
			q.Items = append(q.Items, Item{Tags: []string{"t"}})
		}
		c := &call{conditional: true, query: newHashed(q)}
		if conflict := written.check(c); (conflict != nil) != refused || c.held != 0 {
			t.Errorf("%d items: %v, held up to %d", items, conflict, c.held)
		}
	}
}
