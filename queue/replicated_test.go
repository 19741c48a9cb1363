package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// replicatedTimeout ends attempts in the tests where nothing else ends the waits of their commits.
const replicatedTimeout = 300 * time.Millisecond

// TestAnswersWhenReplicated: while the standby receives nothing, no call is answered as recorded, however
// the waits of the commits end. When the standby continues, the call is answered, and its data is on the
// standby.
func TestAnswersWhenReplicated(t *testing.T) {
	t.Parallel()
	for name, end := range pgtest.WaitsEnd {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pgtest.StartPair(t, openMigrated)
			q, err := queue.Ensure(t.Context(), p.Pool, "jobs", queue.Options{})
			if err != nil {
				t.Fatal(err)
			}
			cfg := queue.NodeConfig{Timeout: replicatedTimeout, Lease: time.Minute}
			cfg.Appender.Writer.Timeout = replicatedTimeout
			n, stop := start(t, q, cfg)
			enqueue(t, n, "acked", "again", "dead")
			c := n.Consume(queue.ConsumerOptions{Credits: 3, Visibility: time.Minute})
			ds := receive(t, c, 3)
			p.Answers(t, end, "ack", func(ctx context.Context) error { return ds[0].Ack(ctx) })
			p.Answers(t, end, "nack", func(ctx context.Context) error { return ds[1].Nack(ctx, queue.NackOptions{Delay: time.Hour}) })
			p.Answers(t, end, "dead letter", func(ctx context.Context) error { return ds[2].Nack(ctx, queue.NackOptions{Dead: true}) })
			stop()
			answersEnqueued(t, p, end, q)
			after := p.Promote(t)
			if q, err = queue.Lookup(t.Context(), after, "jobs"); err != nil {
				t.Fatal(err)
			}
			if s, err := q.Stats(t.Context()); err != nil || s.Ready != 2 || s.Leased != 0 || s.Delayed != 1 || s.Dead != 1 {
				t.Errorf("after the promotion: %+v, %v; want 2 ready, 1 delayed, 1 dead", s, err)
			}
		})
	}
}

// answersEnqueued enqueues a message, and a unique one by two Enqueuers.
func answersEnqueued(t *testing.T, p pgtest.Pair, end string, q *queue.Queue) {
	t.Helper()
	var cfg queue.EnqueuerConfig
	cfg.Appender.Writer.Timeout = replicatedTimeout
	one, other := runProducer(t, q, cfg), runProducer(t, q, cfg)
	p.Answers(t, end, "enqueue", func(ctx context.Context) error {
		_, err := one.Enqueue(ctx, queue.Message{})
		return err
	})
	both := make(chan error, 2)
	unique := queue.Message{Unique: queue.Unique{Key: "k", Period: stream.KeepRequests}}
	p.Answers(t, end, "unique", func(ctx context.Context) error {
		for _, producer := range []*queue.Enqueuer{one, other} {
			go func() {
				_, err := producer.Enqueue(ctx, unique)
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
}

func runProducer(t *testing.T, q *queue.Queue, cfg queue.EnqueuerConfig) *queue.Enqueuer {
	t.Helper()
	p := queue.NewEnqueuer(q, cfg)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	p.Start()
	go func() { defer close(ended); <-ctx.Done(); p.Stop() }()
	t.Cleanup(func() { cancel(); <-ended })
	return p
}

// TestAdminAnswersWhenReplicated: the same for calls that make, change and purge queues. A caller
// that repeats a call gets no success before the standby has the effect of the first call.
func TestAdminAnswersWhenReplicated(t *testing.T) {
	t.Parallel()
	for name, end := range pgtest.WaitsEnd {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pgtest.StartPair(t, openMigrated)
			answers := func(what string, do func(context.Context) error) {
				t.Helper()
				p.Answers(t, end, what, func(ctx context.Context) error { return repeat(ctx, name, do) })
			}
			for _, part := range []string{"partitions/0", "partitions/1"} { // so that the waits are those for the family
				if _, err := stream.Ensure(t.Context(), p.Pool, part, stream.Options{}); err != nil {
					t.Fatal(err)
				}
			}
			for made, opts := range map[string]queue.Options{"jobs": {}, "partitions": {Partitions: 2}} {
				answers("ensure "+made, func(ctx context.Context) error {
					_, err := queue.Ensure(ctx, p.Pool, made, opts)
					return err
				})
			}
			q, err := queue.Lookup(t.Context(), p.Pool, "jobs")
			if err != nil {
				t.Fatal(err)
			}
			n, stop := start(t, q, queue.NodeConfig{})
			enqueue(t, n, "dead")
			c := n.Consume(queue.ConsumerOptions{Credits: 1, Visibility: time.Minute})
			if err := receive(t, c, 1)[0].Nack(t.Context(), queue.NackOptions{Dead: true}); err != nil {
				t.Fatal(err)
			}
			stop()
			answers("redrive", func(ctx context.Context) error { _, err := q.Redrive(ctx); return err })
			answers("purge", func(ctx context.Context) error { _, err := q.Purge(ctx, queue.PurgeOptions{}); return err })
			answers("pause", q.Pause)
			answers("drop", func(ctx context.Context) error {
				err := queue.Drop(ctx, p.Pool, "partitions")
				if errors.Is(err, queue.ErrNotFound) { // not found: the first call has succeeded
					return nil
				}
				return err
			})
			wantAdmin(t, p.Promote(t))
		})
	}
}

// wantAdmin wants what TestAdminAnswersWhenReplicated has done.
func wantAdmin(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	all, err := queue.List(t.Context(), pool)
	if err != nil || fmt.Sprint(all) != "[jobs]" {
		t.Errorf("queues after the promotion: %v, %v", all, err)
	}
	q, err := queue.Lookup(t.Context(), pool, "jobs")
	if err != nil {
		t.Fatal(err)
	}
	if s, err := q.Stats(t.Context()); err != nil || !s.Paused || s.Ready+s.Delayed+s.Dead != 0 {
		t.Errorf("after the promotion: %+v, %v; want it paused and empty", s, err)
	}
}

// repeat does something until it succeeds, as a caller does who has lost the answer.
func repeat(ctx context.Context, ends string, do func(context.Context) error) error {
	timeout := time.Minute
	if ends == "deadline" {
		timeout = replicatedTimeout
	}
	for {
		attempt, cancel := context.WithTimeout(ctx, timeout)
		err := do(attempt)
		cancel()
		if !pg.Retryable(err) && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}

// openMigrated opens a pool that reports canceled waits for standbys, on a database that it migrates.
func openMigrated(ctx context.Context, url string) (*pgxpool.Pool, error) {
	pool, err := pg.Open(ctx, pg.PoolConfig{URL: url})
	if err == nil {
		_, err = migrate.Up(ctx, pool)
	}
	return pool, err
}
