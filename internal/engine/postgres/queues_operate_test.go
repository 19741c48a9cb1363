package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/testkit"
)

// buryAll enqueues messages with these keys and makes them dead letters.
func buryAll(t *testing.T, s *Engine, name string, keys ...string) {
	t.Helper()
	var messages []engine.Message
	for _, key := range keys {
		messages = append(messages, engine.Message{Key: key, Payload: []byte(key)})
	}
	placed(t, func(done func(engine.Place, error)) error {
		return s.queues.Enqueue(t.Context(), name, nil, messages, engine.EnqueueOptions{}, done)
	})
	c, err := s.queues.Consume(t.Context(), name, engine.ConsumeOptions{})
	must(t, err)
	defer c.Close()
	c.SetCredits(len(keys))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for n := 0; n < len(keys); {
		ds, err := c.Receive(ctx, len(keys))
		must(t, err)
		for _, d := range ds {
			must(t, errors.Join(s.queues.Nack(ctx, []engine.Lease{d.Lease}, engine.Nack{Delay: time.Millisecond, Reason: "bad " + d.Key})...))
			n++
		}
	}
}

// TestQueues_DeadLetters: operators find dead letters, redrive some and purge others, by positions and in steps.
func TestQueues_DeadLetters(t *testing.T) {
	t.Parallel()
	s := startEngine(t, migrated.Open(t))
	ctx := t.Context()
	must(t, s.queues.Create(ctx, "q", &engine.QueueOptions{MaxAttempts: 1}))
	buryAll(t, s, "q", "a", "b", "a", "c", "a")
	letters, next, err := s.queues.DeadLetters(ctx, "q", engine.DeadFilter{Key: "a"}, 0, 10)
	must(t, err)
	if len(letters) != 3 || next != 0 || letters[0].Reason != "bad a" || letters[0].Attempts != 1 || letters[0].Died.IsZero() || string(letters[2].Payload) != "a" {
		t.Errorf("%+v, next %d", letters, next)
	}
	if n, err := s.queues.Redrive(ctx, "q", nil); err != nil || n != 0 {
		t.Errorf("no positions: redriven %d, %v", n, err)
	}
	if n, err := s.queues.Redrive(ctx, "q", []int64{letters[0].Position, 999}); err != nil || n != 1 {
		t.Errorf("redriven %d, %v, want 1", n, err)
	}
	if n, err := s.queues.PurgeDead(ctx, "q", []int64{letters[1].Position}); err != nil || n != 1 {
		t.Errorf("purged %d, %v, want 1", n, err)
	}
	step, err := s.queues.RedriveStep(ctx, "q", engine.DeadFilter{Reason: "bad"}, 0, 1)
	if must(t, err); step.Changed != 1 || step.Next == 0 {
		t.Errorf("%+v, want one redriven, and more", step)
	}
	step, err = s.queues.PurgeDeadStep(ctx, "q", engine.DeadFilter{}, step.Next, 10)
	if must(t, err); step.Changed != 2 || step.Next != 0 {
		t.Errorf("%+v, want two purged, and no more", step)
	}
	st, err := s.queues.Stats(ctx, "q")
	if must(t, err); st.Dead != 0 || st.Delayed+st.Leased != 2 {
		t.Errorf("%+v, want two to be delivered again", st)
	}
	if _, _, err := s.queues.DeadLetters(ctx, "q", engine.DeadFilter{}, 0, engine.MaxDeadStep+1); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("too many: %v", err)
	}
	if _, err := s.queues.RedriveStep(ctx, "none", engine.DeadFilter{}, 0, 1); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("no queue: %v", err)
	}
}

// TestQueues_PausePeekPurge: a paused queue delivers nothing; its messages are seen and removed.
func TestQueues_PausePeekPurge(t *testing.T) {
	t.Parallel()
	s := startEngine(t, migrated.Open(t))
	ctx := t.Context()
	must(t, s.queues.Create(ctx, "q", nil), s.queues.Pause(ctx, "q"), s.enqueue(ctx, "q"), s.enqueue(ctx, "q"))
	st, err := s.queues.Stats(ctx, "q")
	if must(t, err); !st.Paused {
		t.Errorf("%+v, want it paused", st)
	}
	if messages, err := s.queues.Peek(ctx, "q", 10); err != nil || len(messages) != 2 || string(messages[0].Payload) != "x" || messages[0].Time.IsZero() {
		t.Errorf("%+v, %v", messages, err)
	}
	if n, err := s.queues.Purge(ctx, "q", true); err != nil || n != 2 {
		t.Errorf("purged %d, %v, want 2", n, err)
	}
	must(t, s.queues.Resume(ctx, "q"), s.enqueue(ctx, "q"))
	c, err := s.queues.Consume(ctx, "q", engine.ConsumeOptions{})
	must(t, err)
	defer c.Close()
	c.SetCredits(1)
	receiving, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err = c.Receive(receiving, 1)
	must(t, err)
}

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
