package postgres

import (
	"errors"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/testkit"
)

// TestQueues_Alter: another server takes the options, and a queue keeps its priorities.
func TestQueues_Alter(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	one, two := startEngine(t, db), startEngine(t, db)
	ctx := t.Context()
	must(t, one.queues.Create(ctx, "q", &engine.QueueOptions{Priorities: 2, RetryMin: time.Hour, RetryMax: time.Hour}), two.enqueue(ctx, "q"))
	c, err := two.queues.Consume(ctx, "q", engine.ConsumeOptions{}) // a node polls while it has consumers
	must(t, err)
	defer c.Close()
	want := engine.QueueOptions{MaxAttempts: 3, RetryMin: time.Millisecond, RetryMax: time.Second, Priorities: 2}
	got, err := one.queues.Alter(ctx, "q", engine.QueueOptions{MaxAttempts: 3, RetryMin: time.Millisecond, RetryMax: time.Second})
	if must(t, err); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, err = two.queues.Options(ctx, "q"); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	open, _ := two.queues.open.peek("q")
	testkit.Eventually(t, "the other node has the options", func() bool { return engineOptions(open.Options()) == want })
	var field *engine.FieldError
	if _, err := one.queues.Alter(ctx, "q", engine.QueueOptions{Partitions: 3}); !errors.As(err, &field) || field.Field != "partitions" {
		t.Errorf("partitions: %v", err)
	}
	if _, err := one.queues.Alter(ctx, "q", engine.QueueOptions{MaxAttempts: -1}); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("attempts: %v", err)
	}
}
