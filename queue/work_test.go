package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/testkit"
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
	c := client(t, migrated.Open(t).Pool, cfg)
	return c, ensureIn(t, c, "jobs", opts)
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
	if s := statsOf(t, q); s.Ready+s.Leased+s.Delayed != 0 || s.Dead != 1 {
		t.Errorf("%+v: want one dead letter and nothing else", s)
	}
	letters, err := q.DeadLetters(t.Context(), 0, 10)
	if err != nil || len(letters) != 1 || letters[0].Reason != "a bad message: queue: not to be tried again" {
		t.Errorf("dead letters %+v, %v", letters, err)
	}
}

// TestWork_LongHandler: a handler may take longer than the visibility timeout, and no other consumer gets its message.
func TestWork_LongHandler(t *testing.T) {
	slow(t)
	t.Parallel()
	_, q := opened(t, queue.Config{}, queue.Options{})
	const visibility = 4 * time.Second
	enqueueAll(t, q, "long")
	if _, err := q.Enqueue(t.Context(), queue.Message{Payload: []byte("later"), Due: time.Now().Add(visibility + visibility/2)}); err != nil {
		t.Fatal(err)
	}
	h := newHandled(2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := q.Work(ctx, queue.WorkOptions{Visibility: visibility, Concurrency: 3}, func(_ context.Context, d *queue.Delivery) error {
		h.note(string(d.Payload))
		<-h.all
		cancel() // acknowledged all the same
		return nil
	})
	if s := statsOf(t, q); err != nil || h.times["long"] != 1 || h.times["later"] != 1 || s.Ready+s.Leased+s.Delayed+s.Dead != 0 {
		t.Errorf("%v, handled %v, %+v", err, h.times, s)
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
	if s := statsOf(t, q); s.Ready+s.Delayed != 1 || s.Leased+s.Dead != 0 {
		t.Errorf("%+v: want that the message is there for others", s)
	}
}

// TestClient_CloseGivesUp: a Close whose ctx ends does not wait for a handler that hangs, and leaves no caller waiting. A further
// call returns the same error.
func TestClient_CloseGivesUp(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	c := client(t, db.Pool, queue.Config{})
	q := ensureIn(t, c, "jobs", queue.Options{})
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
	tx := begin(t, db.Pool)
	mustExec(t, tx, `SELECT pg_advisory_xact_lock(1953064037, $1)`, q.Stream().ID())
	enqueued := make(chan error, 1)
	go func() {
		_, err := q.Enqueue(t.Context(), queue.Message{})
		enqueued <- err
	}()
	testkit.Eventually(t, "the message waits for the lock", func() bool { return waitForLocks(t, db.Pool) > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for n := range 2 {
		if err := c.Close(ctx); !errors.Is(err, queue.ErrOutcomeUnknown) {
			t.Errorf("call %d of Close: %v", n+1, err)
		}
	}
	if err := <-enqueued; !errors.Is(err, queue.ErrOutcomeUnknown) {
		t.Errorf("Enqueue: %v, want ErrOutcomeUnknown", err)
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
