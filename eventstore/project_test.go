package eventstore_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/eventstore"
)

// counter counts the events that the query chooses.
func counter(query eventstore.Query) eventstore.Projector[int] {
	return eventstore.Projector[int]{Query: query, Apply: func(n int, _ eventstore.Event) int { return n + 1 }}
}

func TestProject_SeveralInOnePass(t *testing.T) {
	t.Parallel()
	s := open(t, setup(t).Pool, eventstore.Config{})
	for range 30 {
		mustAppend(t, s, event("A", "x:1"), event("B", "x:1"), event("C"))
	}
	a, x := counter(eventstore.Typed("A")).Projection(), counter(eventstore.Tagged("x:1")).Projection()
	last := eventstore.Projector[string]{
		Query: eventstore.Tagged("x:1"), Init: func() string { return "none" },
		Apply: func(_ string, e eventstore.Event) string { return e.Type },
	}.Projection()
	for range 2 { // begins anew each time
		condition, err := s.Project(t.Context(), a, x, last)
		if err != nil || a.State != 30 || x.State != 60 || last.State != "B" || condition.After != 90 {
			t.Fatalf("%d, %d, %q, %+v, %v", a.State, x.State, last.State, condition, err)
		}
	}
	condition, _ := s.Project(t.Context(), a, x, last)
	mustAppend(t, s, event("C")) // none of theirs
	if _, err := s.AppendIf(t.Context(), []eventstore.Event{event("A")}, condition); err != nil {
		t.Error(err)
	}
	if _, err := s.AppendIf(t.Context(), []eventstore.Event{event("A")}, condition); !errors.Is(err, eventstore.ErrConflict) {
		t.Errorf("%v, want a conflict: the states have changed", err)
	}
	if _, err := s.Project(t.Context()); !errors.Is(err, eventstore.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
}

// TestProject_TooMany: a projection without a slot is refused, and Decide waits for one.
func TestProject_TooMany(t *testing.T) {
	t.Parallel()
	s := open(t, setup(t).Pool, eventstore.Config{MaxConcurrentProjections: 2})
	mustAppend(t, s, event("A"), event("A"))
	count := counter(eventstore.Everything())
	decided := make(chan error, 3)
	for range 3 { // however the loops end, their slots are free again
		for _, err := range s.ProjectStream(t.Context(), count.Projection()) {
			if err != nil {
				t.Fatal(err)
			}
			for _, err := range s.ProjectStream(t.Context(), count.Projection()) {
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Project(t.Context(), count.Projection()); !errors.Is(err, eventstore.ErrTooManyProjections) {
					t.Errorf("%v, want ErrTooManyProjections", err)
				}
				var refused error
				for _, err := range s.ProjectStream(t.Context(), count.Projection()) {
					refused = err
				}
				if !errors.Is(refused, eventstore.ErrTooManyProjections) {
					t.Errorf("as a loop: %v, want ErrTooManyProjections", refused)
				}
				go func() {
					_, err := s.Decide(t.Context(), func() ([]eventstore.Event, error) { return []eventstore.Event{event("B")}, nil }, count.Projection())
					decided <- err
				}()
				ended, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				if _, err := s.Decide(ended, nil, count.Projection()); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v, want its context's error", err)
				}
				cancel()
				break
			}
			break
		}
		if err := <-decided; err != nil {
			t.Error(err)
		}
	}
	func() {
		defer func() { recover() }()
		panicking := count
		panicking.Apply = func(int, eventstore.Event) int { panic("in a projector") }
		s.Project(t.Context(), panicking.Projection())
	}()
	if st := s.Stats(); st.ProjectionsRunning != 0 || st.ProjectionsBegun != 10 || st.ProjectionsRefused != 6 {
		t.Errorf("%+v", st)
	}
}

func TestProjectStream_StatesAsTheyDevelop(t *testing.T) {
	t.Parallel()
	s := open(t, setup(t).Pool, eventstore.Config{})
	mustAppend(t, s, event("A"), event("B"), event("A"))
	a, b := counter(eventstore.Typed("A")).Projection(), counter(eventstore.Typed("B")).Projection()
	var got [][2]int
	for _, err := range s.ProjectStream(t.Context(), a, b) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, [2]int{a.State, b.State})
	}
	if !slices.Equal(got, [][2]int{{1, 0}, {1, 1}, {2, 1}}) {
		t.Errorf("states %v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var last error
	for _, err := range s.ProjectStream(ctx, a) {
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("the last pair has the error %v, want Canceled", last)
	}
}

// TestDecide_Race has callers of two Stores count upwards: no number is given
// twice.
func TestDecide_Race(t *testing.T) {
	t.Parallel()
	db := setup(t)
	const callers, calls = 6, 10
	cfg := eventstore.Config{MaxDecisions: 1000}
	stores := []*eventstore.Store{open(t, db.Pool, cfg), open(t, poolOf(t, db.URL), cfg)}
	var counting sync.WaitGroup
	for c := range callers {
		counting.Go(func() {
			for range calls {
				n := counter(eventstore.Typed("Counted")).Projection()
				_, err := stores[c%2].Decide(t.Context(), func() ([]eventstore.Event, error) {
					return []eventstore.Event{event("Counted", "n:"+strconv.Itoa(n.State))}, nil
				}, n)
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	counting.Wait()
	for i, e := range everything(t, stores[0]) {
		if e.Tags[0] != "n:"+strconv.Itoa(i) {
			t.Fatalf("event %d counts %s", i, e.Tags[0])
		}
	}
	broken := errors.New("no decision")
	if _, err := stores[0].Decide(t.Context(), func() ([]eventstore.Event, error) { return nil, broken }, counter(eventstore.Everything()).Projection()); err != broken {
		t.Errorf("%v, want the decision's own error", err)
	}
}
