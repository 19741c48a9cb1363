package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// client opens a Client that is closed when the test ends.
func client(t *testing.T, pool *pgxpool.Pool, cfg queue.Config) *queue.Client {
	t.Helper()
	c, err := queue.Open(t.Context(), pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		c.Close(ctx) // a test that closes it looks at the error
	})
	return c
}

func ensureIn(t *testing.T, c *queue.Client, name string, opts queue.Options) *queue.Queue {
	t.Helper()
	q, err := c.Ensure(t.Context(), name, opts)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// TestClient_NotRunning: without a Client or a start, calls fail at once.
func TestClient_NotRunning(t *testing.T) {
	t.Parallel()
	q := setupShared(t, queue.Options{})
	_, enqueued := q.Enqueue(t.Context(), queue.Message{})
	_, consumed := q.Consume(queue.ConsumerOptions{})
	_, part := queue.NewEnqueuer(q, queue.EnqueuerConfig{}).Enqueue(t.Context(), queue.Message{})
	_, unique := queue.NewEnqueuer(q, queue.EnqueuerConfig{}).Enqueue(t.Context(), only("k", "x", time.Minute))
	for what, err := range map[string]error{
		"Enqueue": enqueued, "Consume": consumed, "Work": q.Work(t.Context(), queue.WorkOptions{}, nil), "an Enqueuer": part, "a unique message": unique,
	} {
		if !errors.Is(err, queue.ErrNotRunning) {
			t.Errorf("%s: %v, want ErrNotRunning", what, err)
		}
	}
	q.Notify() // does nothing
}

// TestClient_OlderSchema: for a database that is not migrated the error says what to do.
func TestClient_OlderSchema(t *testing.T) {
	t.Parallel()
	if _, err := queue.Open(t.Context(), pgtest.Open(t).Pool, queue.Config{}); !errors.Is(err, migrate.ErrOlder) {
		t.Errorf("got %v", err)
	}
}

// TestClient_Close: Close ends everything and accepts nothing more; unsettled deliveries go to others at once.
func TestClient_Close(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	c := client(t, db.Pool, queue.Config{Node: queue.NodeConfig{Drain: time.Millisecond}})
	q := ensureIn(t, c, "jobs", queue.Options{RetryMin: time.Millisecond, RetryMax: time.Millisecond})
	enqueueAll(t, q, "held")
	held, err := q.Consume(queue.ConsumerOptions{Credits: 1, Visibility: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := held.Receive(t.Context()); err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	ended := make(chan error, 1)
	handled := make(chan struct{})
	go func() {
		ended <- q.Work(t.Context(), queue.WorkOptions{}, func(context.Context, *queue.Delivery) error { close(handled); return nil })
	}()
	enqueueAll(t, q, "handled")
	<-handled
	for range 2 {
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := <-ended; err != nil {
		t.Errorf("Work: %v", err)
	}
	_, enqueued := q.Enqueue(t.Context(), queue.Message{})
	_, consumed := q.Consume(queue.ConsumerOptions{})
	for what, err := range map[string]error{"Enqueue": enqueued, "Consume": consumed, "Work": q.Work(t.Context(), queue.WorkOptions{}, nil)} {
		if !errors.Is(err, queue.ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", what, err)
		}
	}
	again := ensureIn(t, client(t, db.Pool, queue.Config{}), "jobs", queue.Options{RetryMin: time.Millisecond, RetryMax: time.Millisecond})
	working, stop := context.WithCancel(t.Context())
	defer stop()
	if err := again.Work(working, queue.WorkOptions{}, func(_ context.Context, d *queue.Delivery) error {
		if string(d.Payload) != "held" {
			t.Errorf("%s was settled, and came again", d.Payload)
		}
		stop()
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestClient_Dropped: a dropped queue is not found, and a later one of the same name is another queue.
func TestClient_Dropped(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	c := client(t, db.Pool, queue.Config{})
	for _, opts := range []queue.Options{{}, {Priorities: 2}} {
		gone := ensureIn(t, c, "again", opts)
		for i := range 2 { // a queue that was made again knows no request of the dropped one
			at, err := gone.EnqueueAs(t.Context(), stream.RequestID{Client: "p", Sequence: 1}, queue.Message{})
			if err != nil || at.Duplicate != (i > 0) {
				t.Errorf("%+v, call %d: %+v, %v", opts, i, at, err)
			}
		}
		worked := make(chan error, 1)
		go func() {
			worked <- gone.Work(t.Context(), queue.WorkOptions{}, func(context.Context, *queue.Delivery) error { return nil })
		}()
		enqueueAll(t, gone, "a")
		if err := c.Drop(t.Context(), "again"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := gone.Enqueue(t.Context(), queue.Message{}); !errors.Is(err, queue.ErrNotFound) {
				t.Errorf("%+v: enqueued to what is dropped: %v", opts, err)
			}
		}
		if err := <-worked; !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("%+v: Work: %v", opts, err)
		}
	}
	if at, err := ensureIn(t, c, "again", queue.Options{}).Enqueue(t.Context(), queue.Message{}); err != nil || at.First != 1 {
		t.Errorf("%+v, %v", at, err)
	}
}
