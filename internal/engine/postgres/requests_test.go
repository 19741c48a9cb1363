package postgres

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/stream"
)

// placed waits for the answer of a call.
func placed(t *testing.T, call func(done func(engine.Place, error)) error) engine.Place {
	t.Helper()
	var at engine.Place
	must(t, answered(func(done func(engine.Place, error)) error {
		return call(func(place engine.Place, err error) { at = place; done(place, err) })
	}))
	return at
}

// TestRequests_Window: all parts promise the same window.
func TestRequests_Window(t *testing.T) {
	t.Parallel()
	if engine.KeepRequests > stream.KeepRequests || engine.KeepRequests > eventstore.KeepRequests {
		t.Errorf("requests are promised for %v, kept for %v and %v", engine.KeepRequests, stream.KeepRequests, eventstore.KeepRequests)
	}
}

// TestQueues_EnqueueAs: a repetition at another server gets the first one's place.
func TestQueues_EnqueueAs(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	one, two := startEngine(t, db), startEngine(t, db)
	for name, opts := range map[string]engine.QueueOptions{"plain": {}, "priorities": {Priorities: 2}, "partitions": {Partitions: 4}} {
		must(t, one.queues.Create(t.Context(), name, &opts))
		as := &engine.RequestID{Client: "c", Sequence: 3}
		enqueue := func(e *Engine, delay time.Duration) engine.Place {
			return placed(t, func(done func(engine.Place, error)) error {
				return e.queues.Enqueue(t.Context(), name, as, []engine.Message{{Payload: []byte("a")}, {Payload: []byte("b")}},
					engine.EnqueueOptions{Delay: delay, Priority: min(1, opts.Priorities)}, done)
			})
		}
		first := enqueue(one, 0)
		want := first
		want.Duplicate = true
		if again := enqueue(two, time.Hour); first.Duplicate || first.Count != 2 || again != want {
			t.Errorf("%s: %+v, and then %+v", name, first, again)
		}
		st, err := one.queues.Stats(t.Context(), name)
		if must(t, err); st.Ready != 2 {
			t.Errorf("%s: %+v, want 2 ready", name, st)
		}
	}
	err := answered(func(done func(engine.Place, error)) error {
		return one.queues.Enqueue(t.Context(), "plain", &engine.RequestID{}, []engine.Message{{}}, engine.EnqueueOptions{}, done)
	})
	if !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("without a client: %v", err)
	}
}

// TestQueues_UniqueSaysHowMany: a duplicate by key has a place, too.
func TestQueues_UniqueSaysHowMany(t *testing.T) {
	t.Parallel()
	s := startEngine(t, migrated.Open(t))
	must(t, s.queues.Create(t.Context(), "q", nil))
	unique := engine.EnqueueOptions{Unique: &engine.Unique{Key: "k", Period: stream.KeepRequests}}
	for range 2 {
		at := placed(t, func(done func(engine.Place, error)) error {
			return s.queues.Enqueue(t.Context(), "q", nil, []engine.Message{{}}, unique, done)
		})
		if at.Count != 1 || at.Position == 0 {
			t.Errorf("%+v", at)
		}
	}
}

// TestEvents_AppendAs: a repetition gets the first one's positions, also after its condition has failed because of
// its own events.
func TestEvents_AppendAs(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	one, two := startEngine(t, db), startEngine(t, db)
	events := []engine.Event{{Type: "A", Tags: []string{"t:1"}}, {Type: "B", Tags: []string{"t:1"}}}
	condition := &engine.EventCondition{Query: engine.EventQuery{Items: []engine.EventItem{{Tags: []string{"t:1"}}}}}
	for sequence, want := range []*engine.EventCondition{condition, nil} {
		as := &engine.RequestID{Client: "c", Sequence: int64(sequence)}
		first, err := one.events.Append(t.Context(), "", as, events, want)
		must(t, err)
		again, err := two.events.Append(t.Context(), "", as, events, want)
		must(t, err)
		if first.Duplicate || !again.Duplicate || len(first.Positions) != 2 || !slices.Equal(first.Positions, again.Positions) {
			t.Errorf("%+v, and then %+v", first, again)
		}
	}
	var conflict *engine.ConflictError
	if _, err := two.events.Append(t.Context(), "", &engine.RequestID{Client: "c", Sequence: 9}, events, condition); !errors.As(err, &conflict) {
		t.Errorf("another request: %v, want a conflict", err)
	}
	if counts, _, err := two.events.Count(t.Context(), "", []engine.EventQuery{{}}); err != nil || counts[0] != 4 {
		t.Errorf("%v events, %v, want 4", counts, err)
	}
	var field *engine.FieldError
	if _, err := one.events.Append(t.Context(), "", &engine.RequestID{}, events, nil); !errors.As(err, &field) || field.Field != "client" {
		t.Errorf("without a client: %v", err)
	}
}

// TestRooms_AppendAs: a repetition gets the first one's position, whatever room it names.
func TestRooms_AppendAs(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	one, two := startEngine(t, db), startEngine(t, db)
	say := func(e *Engine, room string, as *engine.RequestID) (position int64, duplicate bool) {
		t.Helper()
		var answer sync.WaitGroup
		answer.Add(1)
		must(t, e.Serves().Rooms.Append(context.Background(), room, as, []byte("x"), func(at int64, again bool, err error) {
			defer answer.Done()
			if position, duplicate = at, again; err != nil {
				t.Error(err)
			}
		}))
		answer.Wait()
		return position, duplicate
	}
	as := &engine.RequestID{Client: "c", Sequence: 1}
	first, duplicate := say(one, "r", as)
	if duplicate {
		t.Error("the first is a duplicate")
	}
	last, _ := say(one, "r", nil)
	for _, room := range []string{"r", "other"} {
		if at, duplicate := say(two, room, as); at != first || !duplicate {
			t.Errorf("in %s again: at %d, %t; want %d", room, at, duplicate, first)
		}
	}
	if head, err := two.Serves().Rooms.Head(t.Context()); err != nil || head != last {
		t.Errorf("the end is %d, %v, want %d", head, err, last)
	}
}

// TestRequests_TooOld: once the record of a request is gone, its repetition is rejected, and stores nothing.
func TestRequests_TooOld(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	s := startEngine(t, db)
	ctx := t.Context()
	must(t, s.queues.Create(ctx, "q", nil))
	event := []engine.Event{{Type: "A"}}
	_, err := s.events.Append(ctx, "", &engine.RequestID{Client: "other"}, event, nil) // makes the tables of records
	must(t, err)
	say := func(as *engine.RequestID) error {
		answer := make(chan error, 1)
		must(t, s.Serves().Rooms.Append(ctx, "r", as, []byte("x"), func(_ int64, _ bool, err error) { answer <- err }))
		return <-answer
	}
	must(t, say(&engine.RequestID{Client: "other"}))
	for _, sql := range []string{
		`INSERT INTO tidewire.shared_request_floor (stream, client, sequence) SELECT id, 'c', 5 FROM tidewire.queue`,
		`DO $$ DECLARE one record; BEGIN
			FOR one IN SELECT relname FROM pg_class WHERE relname ~ '^request_\d+_floor$' LOOP
				EXECUTE format('INSERT INTO tidewire.%I VALUES (''c'', 5)', one.relname);
			END LOOP;
		END $$`,
	} {
		_, err := db.Pool.Exec(ctx, sql)
		must(t, err)
	}
	for sequence, want := range map[int64]error{5: engine.ErrSequenceTooOld, 6: nil} {
		as := &engine.RequestID{Client: "c", Sequence: sequence}
		enqueued := answered(func(done func(engine.Place, error)) error {
			return s.queues.Enqueue(ctx, "q", as, []engine.Message{{}}, engine.EnqueueOptions{}, done)
		})
		_, appended := s.events.Append(ctx, "", as, event, nil)
		for what, err := range map[string]error{"enqueue": enqueued, "append": appended, "chat": say(as)} {
			if !errors.Is(err, want) {
				t.Errorf("%s with sequence %d: %v, want %v", what, sequence, err, want)
			}
		}
	}
	st, err := s.queues.Stats(ctx, "q")
	if must(t, err); st.Ready != 1 {
		t.Errorf("%+v, want one message", st)
	}
}
