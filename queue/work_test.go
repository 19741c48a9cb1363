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
	all   chan struct{} // closed when that many were handled
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

// TestWork_Settles: nil acknowledges a message, after an error or a panic it is delivered again, and ErrDead makes it a dead
// letter. A settled message is not delivered again.
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

// TestWork_LongHandler: a handler may take longer than the visibility timeout, and no other consumer
// gets its message.
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

// TestWork_StopGivesBack: handlers that do not return in time are ended, and their messages go to others, still at their first
// attempt.
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
	if err := c.Close(t.Context()); err != nil { // until then others may wait for messages that the Node has claimed
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

// TestClient_CloseBesideAHandler: a Close whose ctx ends does not wait for a handler that hangs, and a further call returns the same
// error.
func TestClient_CloseBesideAHandler(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	c, err := queue.Open(t.Context(), db.Pool, queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	q, err := c.Ensure(t.Context(), "jobs", queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	enqueueAll(t, q, "hangs")
	hangs, release, worked := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		worked <- q.Work(context.Background(), queue.WorkOptions{}, func(context.Context, *queue.Delivery) error {
			close(hangs)
			<-release
			return nil
		})
	}()
	<-hangs
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for n := range 2 {
		if err := c.Close(ctx); !errors.Is(err, queue.ErrOutcomeUnknown) {
			t.Errorf("call %d of Close: %v", n+1, err)
		}
	}
	close(release)
	<-worked // it returns
}

// TestWork_ShortVisibility: a Visibility that is too short to be extended has messages handled again, and does no other harm.
func TestWork_ShortVisibility(t *testing.T) {
	t.Parallel()
	_, q := opened(t, queue.Config{}, queue.Options{MaxAttempts: queue.MaxAttempts, RetryMin: time.Millisecond, RetryMax: time.Millisecond})
	enqueueAll(t, q, "short")
	h := newHandled(2)
	ctx, cancel := context.WithCancel(t.Context())
	worked := make(chan error, 1)
	go func() {
		worked <- q.Work(ctx, queue.WorkOptions{Visibility: 1}, func(ctx context.Context, d *queue.Delivery) error {
			h.note(string(d.Payload))
			<-ctx.Done() // its lease is lost
			return ctx.Err()
		})
	}()
	<-h.all
	cancel()
	if err := <-worked; err != nil {
		t.Error(err)
	}
}

// TestEnsure_Limits: names and options out of their limits are ErrInvalid.
func TestEnsure_Limits(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	for name, opts := range map[string]queue.Options{
		"a\x00b": {}, "\xff": {}, "": {}, "attempts": {MaxAttempts: queue.MaxAttempts + 1}, "pause": {RetryMax: queue.MaxRetry + time.Millisecond}, "first pause": {RetryMin: 1<<63 - 1},
	} {
		if _, err := queue.Ensure(t.Context(), db.Pool, name, opts); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("%q %+v: %v", name, opts, err)
		}
	}
	for _, name := range []string{"a\x00b", "\xff", ""} {
		if err := queue.Drop(t.Context(), db.Pool, name); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("drop %q: %v", name, err)
		}
	}
	if _, err := queue.Ensure(t.Context(), db.Pool, "widest", queue.Options{MaxAttempts: queue.MaxAttempts, RetryMin: 1, RetryMax: queue.MaxRetry}); err != nil {
		t.Error(err)
	}
}
