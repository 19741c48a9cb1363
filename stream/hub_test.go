package stream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
)

// never is a poll interval longer than any test.
const never = time.Hour

// runHub starts a Hub, which is stopped when the test ends.
func runHub(t *testing.T, pool *pgxpool.Pool, cfg stream.HubConfig) (h *stream.Hub, stop func()) {
	t.Helper()
	h = stream.NewHub(pool, cfg)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { h.Run(ctx) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return h, stop
}

func subscribe(t *testing.T, h *stream.Hub, s *stream.Stream, start stream.Start) *stream.Subscription {
	t.Helper()
	sub, err := h.Subscribe(t.Context(), s, start)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sub.Close)
	return sub
}

// next calls Next with a timeout that only a hang exceeds.
func next(t *testing.T, sub *stream.Subscription) []stream.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	page, err := sub.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return page
}

// notified starts an Appender that notifies the Hub.
func notified(t *testing.T, pool *pgxpool.Pool, s *stream.Stream, h *stream.Hub) *stream.Appender {
	t.Helper()
	return run(t, pool, s, stream.AppenderConfig{OnCommit: func(int64) { h.Notify(s) }})
}

// TestHub_ReadsOnceForAll counts the reads of the stream: they are at most about
// two for each commit, independent of the number of subscriptions.
func TestHub_ReadsOnceForAll(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	pool, reads := countingPool(t, db.URL, "AS candidate")
	h, _ := runHub(t, pool, stream.HubConfig{Poll: never, NoListen: true})
	a := notified(t, db.Pool, s, h)
	const followers, messages = 50, 40
	var following sync.WaitGroup
	for range followers {
		sub := subscribe(t, h, s, stream.After(0))
		following.Go(func() {
			for sub.Position() < messages {
				next(t, sub)
			}
		})
	}
	for range messages {
		mustAppend(t, a, stream.Message{})
	}
	following.Wait()
	// One before each commit and one after it, at most, and one at the start.
	if n := reads.count.Load(); n > 2*messages+2 {
		t.Errorf("%d reads for %d commits", n, messages)
	}
}

// TestHub_IdleAsksForNoStream lets 1,000 subscriptions of 50 streams wait, one of which
// ends with a gap: the only query is whether any stream has grown.
func TestHub_IdleAsksForNoStream(t *testing.T) {
	t.Parallel()
	db := setup(t)
	pool, looks := countingPool(t, db.URL, "growth_seq")
	h, _ := runHub(t, pool, stream.HubConfig{Poll: 10 * time.Millisecond})
	ctx, stop := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	var last *stream.Stream
	for n := range 50 {
		last = ensureOn(t, db.Pool, fmt.Sprint(n))
		if n == 0 {
			exec(t, db.Pool, `SELECT tidewire.own_stream(1000)`)
			exec(t, db.Pool, `SELECT setval('tidewire.stream_1000_position_seq', 7)`)
		}
		for range 20 {
			sub := subscribe(t, h, last, stream.After(0))
			waiting.Go(func() {
				if page, err := sub.Next(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("Next: %v, %v", page, err)
				}
			})
		}
	}
	// Transactions of others that are under way may make more looks necessary.
	testkit.Eventually(t, "ten looks with nothing else", func() bool {
		from, others := looks.count.Load(), looks.others.Load()
		testkit.Eventually(t, "looks", func() bool { return looks.count.Load() >= from+10 })
		return looks.others.Load() == others
	})
	stop()
	waiting.Wait()
	sub := subscribe(t, h, last, stream.After(0))
	mustAppend(t, run(t, db.Pool, last, stream.AppenderConfig{}), stream.Message{})
	if page := next(t, sub); len(page) != 1 {
		t.Errorf("page %v, want what was appended", page)
	}
}

// TestHub_FindsCommitsAfterAPoll: the sequence moved, several polls ran, and
// then the transaction committed without a notification.
func TestHub_FindsCommitsAfterAPoll(t *testing.T) {
	t.Parallel()
	db, s := ensureOwn(t)
	pool, polls := countingPool(t, db.URL, "stream_heads")
	h, _ := runHub(t, pool, stream.HubConfig{Poll: 10 * time.Millisecond})
	sub := subscribe(t, h, s, stream.After(0))
	for n := range 3 {
		tx := begin(t, db.Pool, "")
		exec(t, tx, `SELECT tidewire.take_positions(1000, 'tidewire.stream_1000_position_seq', 1, 1, $1)`, n)
		exec(t, tx, `INSERT INTO tidewire.stream_1000 (position, payload) VALUES (currval('tidewire.stream_1000_position_seq'), '')`)
		until := polls.count.Load() + 3
		testkit.Eventually(t, "polls", func() bool { return polls.count.Load() >= until })
		commitTx(t, tx)
		if page := next(t, sub); len(page) != 1 || page[0].Position != int64(n+1) {
			t.Errorf("page %v, want position %d", page, n+1)
		}
	}
}

func TestHub_PagesAreBounded(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	h, _ := runHub(t, db.Pool, stream.HubConfig{PageMessages: 5, PageBytes: 2000, TailBytes: 2000})
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	small, large := stream.Message{Payload: make([]byte, 10)}, stream.Message{Payload: make([]byte, 5000)}
	headers := stream.Message{Headers: bytes.Join([][]byte{[]byte(`{"a":"`), []byte(`"}`)}, bytes.Repeat([]byte("h"), 900))}
	var msgs []stream.Message
	for range 3 {
		msgs = append(msgs, slices.Repeat([]stream.Message{small}, 12)...)
		msgs = append(msgs, large, small, large, large, headers, headers, headers)
	}
	mustAppend(t, a, msgs...)
	for range 2 { // from the table, and perhaps from the tail
		sub := subscribe(t, h, s, stream.After(0))
		for at := int64(1); at <= int64(len(msgs)); {
			page := next(t, sub)
			size := 0
			for _, m := range page {
				if m.Position != at || len(m.Payload) != len(msgs[at-1].Payload) {
					t.Fatalf("position %d with %d bytes, want %d with %d", m.Position, len(m.Payload), at, len(msgs[at-1].Payload))
				}
				size += len(m.Payload) + len(m.Headers)
				at++
			}
			if len(page) > 5 || size > 2000 && len(page) > 1 {
				t.Errorf("page of %d messages and %d bytes", len(page), size)
			}
		}
	}
}

func TestHub_DroppedStream(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	h, _ := runHub(t, db.Pool, stream.HubConfig{Poll: 10 * time.Millisecond})
	other := ensureOn(t, db.Pool, "other")
	waiting, kept := subscribe(t, h, s, stream.After(0)), subscribe(t, h, other, stream.AtEnd())
	changed, stop := h.Watch(s)
	defer stop()
	must(t, stream.Drop(t.Context(), db.Pool, "orders"))
	if page, err := waiting.Next(t.Context()); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("Next: %v, %v, want ErrNotFound", page, err)
	}
	<-changed
	if _, err := h.Subscribe(t.Context(), s, stream.AtEnd()); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("Subscribe: %v, want ErrNotFound", err)
	}
	mustAppend(t, run(t, db.Pool, other, stream.AppenderConfig{}), stream.Message{})
	if page := next(t, kept); len(page) != 1 {
		t.Errorf("the other stream delivers %v", page)
	}
}

func TestHub_Stops(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	h, stop := runHub(t, db.Pool, stream.HubConfig{})
	subs := []*stream.Subscription{subscribe(t, h, s, stream.After(0)), subscribe(t, h, s, stream.After(0))}
	var waiting sync.WaitGroup
	for _, sub := range subs {
		waiting.Go(func() {
			if page, err := sub.Next(t.Context()); !errors.Is(err, stream.ErrClosed) {
				t.Errorf("Next: %v, %v, want ErrClosed", page, err)
			}
		})
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	third := subscribe(t, h, s, stream.After(0))
	if page, err := third.Next(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Next: %v, %v, want the context's error", page, err)
	}
	subs[0].Close()
	subs[0].Close()
	stop()
	waiting.Wait()
	if _, err := h.Subscribe(t.Context(), s, stream.After(0)); !errors.Is(err, stream.ErrClosed) {
		t.Errorf("Subscribe: %v, want ErrClosed", err)
	}
}

// TestHub_ContinuesAfterDeletedMessages a subscription finds its next messages
// deleted, while another one has read on.
func TestHub_ContinuesAfterDeletedMessages(t *testing.T) {
	t.Parallel()
	db, s := ensureOwn(t)
	h, _ := runHub(t, db.Pool, stream.HubConfig{})
	mustAppend(t, run(t, db.Pool, s, stream.AppenderConfig{}), make([]stream.Message, 3)...)
	if page := next(t, subscribe(t, h, s, stream.After(2))); page[0].Position != 3 {
		t.Errorf("page %v, want position 3", page)
	}
	exec(t, db.Pool, `DELETE FROM tidewire.stream_1000`)
	if page := next(t, subscribe(t, h, s, stream.After(0))); len(page) != 1 || page[0].Position != 3 {
		t.Errorf("page %v, want what the Hub has kept", page)
	}
}

// TestNextUpTo_NeverMore than most messages are returned, from memory and from
// PostgreSQL.
func TestNextUpTo_NeverMore(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	h, _ := runHub(t, db.Pool, stream.HubConfig{TailBytes: 2000})
	a := notified(t, db.Pool, s, h)
	const total = 40
	for n := range total {
		mustAppend(t, a, stream.Message{Payload: fmt.Append(nil, n)})
	}
	for _, most := range []int{1, 3, 7, total + 1} {
		sub := subscribe(t, h, s, stream.After(0))
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for last := int64(0); last < total; last = sub.Position() {
			page, err := sub.NextUpTo(ctx, most)
			if err != nil || len(page) == 0 || len(page) > most {
				t.Fatalf("up to %d: %d messages, %v", most, len(page), err)
			}
			for i, m := range page {
				if m.Position != last+1+int64(i) {
					t.Fatalf("up to %d: after %d came %d", most, last+int64(i), m.Position)
				}
			}
		}
	}
	if _, err := subscribe(t, h, s, stream.After(0)).NextUpTo(t.Context(), 0); !errors.Is(err, stream.ErrInvalid) {
		t.Errorf("up to 0: %v, want ErrInvalid", err)
	}
}

// TestSubscription_TryNext returns what is there, and nothing at the end; Wait returns when there is more.
func TestSubscription_TryNext(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	h, _ := runHub(t, db.Pool, stream.HubConfig{Poll: 20 * time.Millisecond})
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	ctx := t.Context()
	sub, err := h.Subscribe(ctx, s, stream.After(0))
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	if page, err := sub.TryNext(ctx, 10); err != nil || len(page) != 0 {
		t.Fatalf("of an empty stream: %d messages, %v", len(page), err)
	}
	want := int64(0)
	for round := range 20 {
		first := mustAppend(t, a, stream.Message{Payload: []byte("a")}, stream.Message{Payload: []byte("b")}, stream.Message{Payload: []byte("c")})
		if want == 0 {
			want = first
		}
		for want < first+3 {
			must(t, sub.Wait(ctx))
			page, err := sub.TryNext(ctx, 2)
			if err != nil || len(page) > 2 {
				t.Fatalf("round %d: %d messages, %v", round, len(page), err)
			}
			for _, m := range page {
				if m.Position != want {
					t.Fatalf("round %d: position %d, want %d", round, m.Position, want)
				}
				want++
			}
		}
		if page, err := sub.TryNext(ctx, 2); err != nil || len(page) != 0 {
			t.Fatalf("at the end: %d messages, %v", len(page), err)
		}
	}
	short, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
	defer cancel()
	for err = nil; err == nil; { // it may return without a reason
		if err = sub.Wait(short); err == nil {
			_, err = sub.TryNext(short, 1)
		}
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait at the end: %v", err)
	}
	sub.Close()
	if err := sub.Wait(ctx); !errors.Is(err, stream.ErrClosed) {
		t.Errorf("Wait after Close: %v", err)
	}
	if _, err := sub.TryNext(ctx, 1); !errors.Is(err, stream.ErrClosed) {
		t.Errorf("TryNext after Close: %v", err)
	}
}
