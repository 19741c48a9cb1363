package eventstore_test

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/eventstore"
)

// TestSubscribe_NoGapNoDuplicate: two Stores append. Subscribers of one of them, and of a
// third Store that gets only NOTIFY or only polls, receive all events, and never more at a time than they ask for.
func TestSubscribe_NoGapNoDuplicate(t *testing.T) {
	t.Parallel()
	db := setup(t)
	one := open(t, db.Pool, eventstore.Config{})
	two := open(t, poolOf(t, db.URL), eventstore.Config{})
	listening := open(t, poolOf(t, db.URL), eventstore.Config{Poll: time.Hour})
	polling := open(t, poolOf(t, db.URL), eventstore.Config{Poll: 5 * time.Millisecond, NoListen: true})
	const calls = 60
	mustAppend(t, one, event("Wanted"), event("Other"), event("Wanted"))
	var writing, following sync.WaitGroup
	got, subs := make([][]int64, 3), make([]*eventstore.Subscription, 3)
	for i, s := range []*eventstore.Store{one, listening, polling} {
		subs[i] = follow(t, s, eventstore.Typed("Wanted"), 0)
		following.Go(func() {
			for len(got[i]) < 2+2*calls {
				most := []int{1000, 1, 3}[i]
				events, err := subs[i].NextUpTo(t.Context(), most)
				if err != nil || len(events) == 0 || len(events) > most {
					t.Errorf("%d events, want at most %d: %v", len(events), most, err)
					return
				}
				for _, e := range events {
					got[i] = append(got[i], e.Position)
				}
			}
		})
	}
	for w, s := range []*eventstore.Store{one, two} {
		writing.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 3))
			for range calls {
				mustAppend(t, s, []eventstore.Event{event("Other"), event("Wanted"), event("Other")}[random.IntN(2):]...)
			}
		})
	}
	writing.Wait()
	following.Wait()
	all, err := one.Query(t.Context(), eventstore.Typed("Wanted"), eventstore.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if !slices.EqualFunc(got[i], all, func(p int64, e eventstore.Event) bool { return p == e.Position }) {
			t.Errorf("subscription %d got %v, %d events are stored", i, got[i], len(all))
		}
	}
	for range 10 { // the first may be found when the connection begins to listen, and others by a read that comes late
		came := make(chan []eventstore.Event, 1)
		go func() {
			events, err := subs[1].Next(soon(t))
			if err != nil {
				t.Error(err)
			}
			came <- events
		}()
		want := mustAppend(t, two, event("Wanted"))
		if events := <-came; len(events) != 1 || events[0].Position != want[0] {
			t.Fatalf("without a poll came %v, want the event at %d", events, want[0])
		}
	}
}

// TestSubscribe_Loop: a loop gets each event once, may be left, and ends with ctx, with what is not allowed, and with the store.
func TestSubscribe_Loop(t *testing.T) {
	t.Parallel()
	s := open(t, setup(t).Pool, eventstore.Config{})
	want := append(mustAppend(t, s, event("A"), event("B")), mustAppend(t, s, event("A"))...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []int64
	for e, err := range s.Subscribe(ctx, eventstore.Everything(), eventstore.After(want[0])) {
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%v, want Canceled", err)
			}
			break
		}
		if got = append(got, e.Position); e.Position == want[1] {
			want = append(want, mustAppend(t, s, event("C"), event("C"))...)
		}
		if len(got) == len(want)-1 {
			cancel() // the next turn has the error
		}
	}
	if !slices.Equal(got, want[1:]) {
		t.Errorf("got %v, want %v", got, want[1:])
	}
	for _, err := range s.Subscribe(t.Context(), eventstore.Everything(), eventstore.After(-1)) {
		if !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("%v, want ErrInvalid", err)
		}
	}
	for e, err := range s.Subscribe(t.Context(), eventstore.Everything(), eventstore.Start{}) {
		if err != nil || e.Position != want[0] {
			t.Errorf("%v, %v, want the event at %d", e, err, want[0])
		}
		break // leaves nothing that waits
	}
	sub := follow(t, s, eventstore.Everything(), want[len(want)-1])
	if _, err := sub.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want Canceled", err)
	}
	ended := make(chan error, 2)
	go func() { _, err := sub.Next(t.Context()); ended <- err }()
	go func() {
		ended <- s.Watch(t.Context(), eventstore.Condition{FailIfEventsMatch: eventstore.Typed("none")})
	}()
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	sub.Close()
	sub.Close()
	_, followed := s.Follow(eventstore.Everything(), 0)
	for _, err := range []error{<-ended, <-ended, followed} {
		if !errors.Is(err, eventstore.ErrClosed) {
			t.Errorf("%v, want ErrClosed", err)
		}
	}
	for _, err := range s.Subscribe(t.Context(), eventstore.Everything(), eventstore.Start{}) {
		if !errors.Is(err, eventstore.ErrClosed) {
			t.Errorf("%v, want ErrClosed", err)
		}
	}
}

func TestWatch_ReportsStaleDecisions(t *testing.T) {
	t.Parallel()
	db := setup(t)
	s := open(t, db.Pool, eventstore.Config{Poll: 5 * time.Millisecond})
	other := open(t, poolOf(t, db.URL), eventstore.Config{})
	seats := counter(eventstore.Tagged("course:1")).Projection()
	condition, err := s.Project(t.Context(), seats)
	if err != nil {
		t.Fatal(err)
	}
	condition.WantEvents = 1
	told := make(chan error, 1)
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { told <- s.Watch(t.Context(), condition) })
	mustAppend(t, other, event("Enrolled", "course:2"))
	select {
	case err := <-told:
		t.Fatalf("told %v of another course", err)
	default:
	}
	want := mustAppend(t, other, event("Enrolled", "course:1"))
	var conflict *eventstore.ConflictError
	if err := <-told; !errors.As(err, &conflict) || conflict.Position != want[0] || len(conflict.Events) != 1 {
		t.Errorf("%v, want a conflict at %d", err, want[0])
	}
}

// TestSubscribe_AtEnd: a loop that begins at the end has the events that are appended after its first step.
func TestSubscribe_AtEnd(t *testing.T) {
	t.Parallel()
	s := open(t, setup(t).Pool, eventstore.Config{})
	mustAppend(t, s, event("Old"))
	var first eventstore.Event
	next, stop := iter.Pull2(s.Subscribe(t.Context(), eventstore.Everything(), eventstore.AtEnd()))
	defer stop()
	got := make(chan struct{})
	go func() {
		defer close(got)
		first, _, _ = next()
	}()
	for done := false; !done; { // until the loop has begun
		mustAppend(t, s, event("New"))
		select {
		case <-got:
			done = true
		default:
		}
	}
	if first.Type != "New" {
		t.Errorf("the first event is %+v", first)
	}
}
