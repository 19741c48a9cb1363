package queue_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// replicatedTimeout ends attempts in the tests where nothing else ends the waits of their commits.
const replicatedTimeout = 300 * time.Millisecond

// TestAnswersWhenReplicated: while the standby receives nothing, no call is answered as recorded, however the waits of the
// commits end. When the standby continues, the call is answered, and its data is on the standby. A caller that repeats a call
// gets no success before the standby has the effect of the first call.
func TestAnswersWhenReplicated(t *testing.T) {
	slow(t)
	t.Parallel()
	p := pgtest.StartPair(t, openMigrated)
	ways := slices.Sorted(maps.Keys(pgtest.WaitsEnd))
	turns := 1 // each call once, the waits end in another way each time; in a long run each call with each way
	if os.Getenv(testkit.LongVariable) != "" {
		turns = len(ways)
	}
	for turn := range turns {
		t.Run(fmt.Sprint(turn), func(t *testing.T) {
			calls := turn
			answers := func(what string, do func(context.Context) error) {
				t.Helper()
				calls++
				p.Answers(t, pgtest.WaitsEnd[ways[calls%len(ways)]], what, do)
			}
			answersWhenReplicated(t, p, fmt.Sprint("jobs", turn), answers)
		})
	}
	after := p.Promote(t)
	if all, err := queue.List(t.Context(), after); err != nil || len(all) != turns {
		t.Fatalf("after the promotion: %v, %v", all, err)
	}
	for turn := range turns {
		q, err := queue.Lookup(t.Context(), after, fmt.Sprint("jobs", turn))
		if err != nil {
			t.Fatal(err)
		}
		if s, err := q.Stats(t.Context()); err != nil || !s.Paused || s.Ready+s.Leased+s.Delayed+s.Dead != 0 {
			t.Errorf("after the promotion: %+v, %v; want it paused and empty", s, err)
		}
	}
}

// answersWhenReplicated makes a queue, has messages enqueued and settled, and purges and pauses it.
func answersWhenReplicated(t *testing.T, p pgtest.Pair, name string, answers func(string, func(context.Context) error)) {
	family := name + "family"
	for _, part := range []string{family + "/0", family + "/1"} { // so that the waits are those for the family
		if _, err := stream.Ensure(t.Context(), p.Pool, part, stream.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, opts := range map[string]queue.Options{name: {}, family: {Partitions: 2}} {
		answers("ensure "+name, repeated(func(ctx context.Context) error {
			_, err := queue.Ensure(ctx, p.Pool, name, opts)
			return err
		}))
	}
	q, err := queue.Lookup(t.Context(), p.Pool, name)
	if err != nil {
		t.Fatal(err)
	}
	cfg := queue.NodeConfig{Timeout: replicatedTimeout, Lease: time.Minute}
	cfg.Appender.Writer.Timeout = replicatedTimeout
	n, stop := start(t, q, cfg)
	enqueue(t, n, "acked", "again", "dead")
	ds := receive(t, n.Consume(queue.ConsumerOptions{Credits: 3, Visibility: time.Minute}), 3)
	answers("ack", ds[0].Ack)
	answers("nack", func(ctx context.Context) error { return ds[1].Nack(ctx, queue.NackOptions{Delay: time.Hour}) })
	answers("dead letter", func(ctx context.Context) error { return ds[2].Nack(ctx, queue.NackOptions{Dead: true}) })
	stop()
	one, other := enqueuer(t, q, cfg.Appender), enqueuer(t, q, cfg.Appender)
	answers("enqueue", func(ctx context.Context) error { _, err := one.Enqueue(ctx, queue.Message{}); return err })
	both := make(chan error, 2)
	answers("unique", func(ctx context.Context) error {
		for _, e := range []*queue.Enqueuer{one, other} {
			go func() {
				_, err := e.Enqueue(ctx, queue.Message{Unique: queue.Unique{Key: "k", Period: stream.KeepRequests}})
				if errors.Is(err, queue.ErrDuplicate) {
					err = nil
				}
				both <- err
			}()
		}
		return <-both
	})
	if err := <-both; err != nil {
		t.Fatal(err)
	}
	if s, err := q.Stats(t.Context()); err != nil || s.Ready != 2 || s.Leased != 0 || s.Delayed != 1 || s.Dead != 1 {
		t.Errorf("%+v, %v; want 2 ready, 1 delayed, 1 dead", s, err)
	}
	answers("redrive", repeated(func(ctx context.Context) error { _, err := q.Redrive(ctx); return err }))
	answers("purge", repeated(func(ctx context.Context) error { _, err := q.Purge(ctx, queue.PurgeOptions{Dead: true}); return err }))
	answers("pause", repeated(q.Pause))
	answers("drop", repeated(func(ctx context.Context) error {
		err := queue.Drop(ctx, p.Pool, family)
		if errors.Is(err, queue.ErrNotFound) { // the first call has succeeded
			return nil
		}
		return err
	}))
}

// repeated does something until it succeeds, as a caller does who has lost the answer.
func repeated(do func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			attempt, cancel := context.WithTimeout(ctx, replicatedTimeout)
			err := do(attempt)
			cancel()
			if !pg.Retryable(err) && !errors.Is(err, context.DeadlineExceeded) {
				return err
			}
		}
	}
}
