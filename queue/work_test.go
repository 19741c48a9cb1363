package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/queue"
)

// handled counts how often each message was handled.
type handled struct {
	mu    sync.Mutex
	times map[string]int
	want  int
	all   chan struct{} // closed when so many were
}

func newHandled(want int) *handled {
	return &handled{times: make(map[string]int), want: want, all: make(chan struct{})}
}

func (h *handled) note(text string) (times int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.times[text]++
	if h.want--; h.want == 0 {
		close(h.all)
	}
	return h.times[text]
}

// opened is a queue of a Client that is closed when the test ends.
func opened(t *testing.T, cfg queue.Config, opts queue.Options) (*queue.Client, *queue.Queue) {
	t.Helper()
	db := migrated.Open(t)
	c, err := queue.Open(t.Context(), db.Pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	q, err := c.Ensure(t.Context(), "jobs", opts)
	if err != nil {
		t.Fatal(err)
	}
	return c, q
}

func enqueueAll(t *testing.T, q *queue.Queue, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if _, err := q.Enqueue(t.Context(), queue.Message{Payload: []byte(text)}); err != nil {
			t.Error(err)
		}
	}
}

// TestWork_Settles: nil is an acknowledgement, an error and a panic have a message tried again, and ErrDead makes it a dead letter. A settled delivery does not
// come again.
func TestWork_Settles(t *testing.T) {
	t.Parallel()
	_, q := opened(t, queue.Config{}, queue.Options{RetryMin: time.Millisecond, RetryMax: time.Millisecond})
	enqueueAll(t, q, append(numbered(50), "fails", "panics", "dies")...)
	h := newHandled(50 + 2 + 2 + 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	worked := make(chan error, 1)
	go func() {
		worked <- q.Work(ctx, queue.WorkOptions{Concurrency: 7}, func(_ context.Context, d *queue.Delivery) error {
			text := string(d.Payload)
			switch times := h.note(text); {
			case text == "fails" && times == 1:
				return errors.New("not now")
			case text == "panics" && times == 1:
				panic("oh")
			case text == "dies":
				return fmt.Errorf("a bad message: %w", queue.ErrDead)
			}
			return nil
		})
	}()
	select {
	case <-h.all:
	case err := <-worked:
		t.Fatalf("it has ended: %v", err)
	}
	cancel()
	if err := <-worked; err != nil {
		t.Error(err)
	}
	if s, err := q.Stats(t.Context()); err != nil || s.Ready+s.Leased+s.Delayed != 0 || s.Dead != 1 {
		t.Errorf("%+v, %v: want one dead letter and nothing else", s, err)
	}
	letters, err := q.DeadLetters(t.Context(), 0, 10)
	if err != nil || len(letters) != 1 || letters[0].Reason != "a bad message: queue: not to be tried again" {
		t.Errorf("dead letters %+v, %v", letters, err)
	}
}

// TestWork_LongHandler: a handler may take longer than the visibility, and nobody else gets its message.
func TestWork_LongHandler(t *testing.T) {
	t.Parallel()
	_, q := opened(t, queue.Config{}, queue.Options{})
	enqueueAll(t, q, "long")
	h := newHandled(1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const visibility = 6 * time.Second
	err := q.Work(ctx, queue.WorkOptions{Visibility: visibility}, func(context.Context, *queue.Delivery) error {
		h.note("long")
		time.Sleep(visibility + visibility/3)
		cancel() // acknowledged all the same
		return nil
	})
	if s, stats := q.Stats(t.Context()); err != nil || stats != nil || h.times["long"] != 1 || s.Ready+s.Leased+s.Delayed+s.Dead != 0 {
		t.Errorf("%v, %v, handled %d times, %+v", err, stats, h.times["long"], s)
	}
}

// TestWork_StopGivesBack: handlers that do not end in time are ended, and their messages are for others, at their first attempt.
func TestWork_StopGivesBack(t *testing.T) {
	t.Parallel()
	c, q := opened(t, queue.Config{}, queue.Options{MaxAttempts: 2})
	enqueueAll(t, q, "slow")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := q.Work(ctx, queue.WorkOptions{Grace: 10 * time.Millisecond}, func(ctx context.Context, _ *queue.Delivery) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}); err != nil {
		t.Error(err)
	}
	if err := c.Close(t.Context()); err != nil { // till then others may wait for what the Node has claimed
		t.Error(err)
	}
	if s, err := q.Stats(t.Context()); err != nil || s.Ready+s.Delayed != 1 || s.Leased+s.Dead != 0 {
		t.Errorf("%+v, %v: want that the message is there for others", s, err)
	}
}

// TestWork_Dropped: the queue is gone, and Work says so.
func TestWork_Dropped(t *testing.T) {
	t.Parallel()
	c, q := opened(t, queue.Config{Node: queue.NodeConfig{Poll: 100 * time.Millisecond}}, queue.Options{})
	worked := make(chan error, 1)
	go func() {
		worked <- q.Work(t.Context(), queue.WorkOptions{}, func(context.Context, *queue.Delivery) error { return nil })
	}()
	if err := c.Drop(t.Context(), q.Name()); err != nil {
		t.Fatal(err)
	}
	if err := <-worked; !errors.Is(err, queue.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
