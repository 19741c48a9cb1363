package postgres

import (
	"errors"
	"testing"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/stream"
)

// TestRequests_Window: all parts promise the same window.
func TestRequests_Window(t *testing.T) {
	t.Parallel()
	if engine.KeepRequests > stream.KeepRequests || engine.KeepRequests > eventstore.KeepRequests {
		t.Errorf("requests are promised for %v, kept for %v and %v", engine.KeepRequests, stream.KeepRequests, eventstore.KeepRequests)
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
