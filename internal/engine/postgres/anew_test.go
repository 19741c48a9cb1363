package postgres

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
)

// startEngine runs an engine on a database that is migrated, until the test ends.
func startEngine(t *testing.T, db pgtest.DB) *Engine {
	t.Helper()
	e, err := Open(t.Context(), Config{Pool: db.Pool, URL: db.URL, Stores: true, Rooms: true, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	e.Run(context.Background())
	t.Cleanup(func() { e.Stop(context.Background()) })
	return e
}

// answered returns what done is called with.
func answered(call func(done func(engine.Place, error)) error) error {
	answer := make(chan error, 1)
	if err := call(func(_ engine.Place, err error) { answer <- err }); err != nil {
		return err
	}
	return <-answer
}

func (e *Engine) publish(ctx context.Context, name string) error {
	return answered(func(done func(engine.Place, error)) error {
		return e.streams.Publish(ctx, name, nil, []engine.Message{{Payload: []byte("x")}}, done)
	})
}

func (e *Engine) enqueue(ctx context.Context, name string) error {
	return answered(func(done func(engine.Place, error)) error {
		return e.queues.Enqueue(ctx, name, nil, []engine.Message{{Payload: []byte("x")}}, engine.EnqueueOptions{}, done)
	})
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// TestStores_StreamDroppedUnderLoad: publishers get no other error than
// ErrNotFound.
func TestStores_StreamDroppedUnderLoad(t *testing.T) {
	t.Parallel()
	s := startEngine(t, migrated.Open(t))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	_, err := s.streams.Create(ctx, "s", nil)
	must(t, err)
	var publishers sync.WaitGroup
	stop := make(chan struct{})
	stored := make(chan struct{}, 1)
	for range 4 {
		publishers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				switch err := s.publish(ctx, "s"); {
				case err == nil:
					select {
					case stored <- struct{}{}:
					default:
					}
				case !errors.Is(err, engine.ErrNotFound):
					t.Errorf("publish: %v", err)
					return
				}
			}
		})
	}
	for range 5 {
		select {
		case <-stored:
		case <-ctx.Done():
		}
		_, err := s.streams.Create(ctx, "s", nil)
		must(t, s.streams.Drop(ctx, "s"), err)
		_, err = s.streams.Create(ctx, "s", nil)
		must(t, err)
	}
	close(stop)
	publishers.Wait()
}

// TestStores_QueueMadeElsewhere: another server creates a queue from a stream
// that is open here; in the end publishing fails here too.
func TestStores_QueueMadeElsewhere(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	s, other := startEngine(t, db), startEngine(t, db)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, name := range []string{"x", "plain"} {
		_, err := s.streams.Create(ctx, name, nil)
		must(t, err)
		_, err = s.streams.open.get(ctx, name)
		must(t, err)
	}
	plain, _ := s.streams.open.peek("plain")
	must(t, other.queues.Create(ctx, "x", nil))
	var err error
	testkit.Eventually(t, "publishing to the stream of a queue fails", func() bool {
		err = s.publish(ctx, "x")
		return err != nil
	})
	if !errors.Is(err, engine.ErrQueueStream) {
		t.Errorf("published to the stream of a queue: %v", err)
	}
	if now, _ := s.streams.open.peek("plain"); now != plain {
		t.Error("another stream was opened again")
	}
}

// TestStreamStore_ClosesIdle publishes while the store closes streams as soon as they are
// idle for a moment.
func TestStreamStore_ClosesIdle(t *testing.T) {
	t.Parallel()
	s := startEngine(t, migrated.Open(t))
	_, err := s.streams.Create(t.Context(), "orders", &engine.StreamOptions{})
	must(t, err, s.publish(t.Context(), "orders"))
	start := time.Now()
	s.streams.closeIdle(start, time.Hour)
	s.streams.closeIdle(start.Add(time.Hour-1), time.Hour)
	if len(s.streams.open.all()) != 1 {
		t.Error("closed before its time")
	}
	if s.streams.idleAfter() != idleAfter {
		t.Error("one is many")
	}
	if s.streams.maxOpen = 0; s.streams.idleAfter() != idleAfterMany {
		t.Error("more than may be open are not many")
	}
	s.streams.closeIdle(start.Add(time.Hour), time.Hour)
	if len(s.streams.open.all()) != 0 {
		t.Error("still open")
	}
	ctx, stop := context.WithCancel(t.Context())
	var closing sync.WaitGroup
	closing.Go(func() {
		for ctx.Err() == nil {
			s.streams.closeIdle(time.Now(), time.Microsecond)
		}
	})
	for range 200 {
		must(t, s.publish(t.Context(), "orders"))
	}
	stop()
	closing.Wait()
}
