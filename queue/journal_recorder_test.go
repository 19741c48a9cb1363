package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/queue"
)

// severalQueues makes n queues, each with a Node and a Consumer, on one pool.
func severalQueues(t *testing.T, pool *pgxpool.Pool, n int) (queues []*queue.Queue, nodes []*queue.Node, consumers []*queue.Consumer) {
	t.Helper()
	for i := range n {
		q, err := queue.Ensure(t.Context(), pool, fmt.Sprint("queue-", i), queue.Options{})
		if err != nil {
			t.Fatal(err)
		}
		node, _ := start(t, q, queue.NodeConfig{})
		c := node.Consume(queue.ConsumerOptions{Credits: 10})
		t.Cleanup(c.Close)
		queues, nodes, consumers = append(queues, q), append(nodes, node), append(consumers, c)
	}
	return queues, nodes, consumers
}

// work receives and acknowledges messages until that many different ones are
// acknowledged. It checks that a message that was acknowledged is not delivered again.
func work(ctx context.Context, c *queue.Consumer, messages int) error {
	done := make(map[string]bool)
	for len(done) < messages {
		ds, err := c.Receive(ctx)
		if err != nil {
			return err
		}
		for _, d := range ds {
			if done[string(d.Payload)] {
				return fmt.Errorf("%s is delivered again, attempt %d", d.Payload, d.Attempt)
			}
			switch err := d.Ack(ctx); {
			case err == nil:
				done[string(d.Payload)] = true
			case !errors.Is(err, queue.ErrLeaseLost):
				return err
			}
		}
	}
	return nil
}

// workAll processes that many messages in each queue, and fails if one is acknowledged twice.
func workAll(t *testing.T, nodes []*queue.Node, consumers []*queue.Consumer, messages int) {
	t.Helper()
	var working sync.WaitGroup
	for i, n := range nodes {
		working.Go(func() {
			for _, text := range numbered(messages) {
				msg := queue.Message{Payload: []byte(text)}
				if _, err := n.Enqueue(context.Background(), msg); err != nil {
					t.Errorf("queue %d: %v", i, err)
				}
			}
		})
		working.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			if err := work(ctx, consumers[i], messages); err != nil {
				t.Errorf("queue %d: %v", i, err)
			}
		})
	}
	working.Wait()
}

// nothingLeft checks that all messages of the queues are done.
func nothingLeft(t *testing.T, queues []*queue.Queue) {
	t.Helper()
	for i, q := range queues {
		stats, err := q.Stats(t.Context())
		if err != nil || stats.Ready+stats.Leased+stats.Delayed+stats.Dead > 0 {
			t.Errorf("queue %d: %+v, %v; want nothing left", i, stats, err)
		}
	}
}

// recordTracer counts the statements that record for several queues.
type recordTracer struct{ count atomic.Int64 }

func (r *recordTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (r *recordTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (r *recordTracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		if strings.Contains(q.SQL, "record_together") {
			if queues, ok := q.Arguments[0].([]int32); ok && len(queues) > 1 {
				r.count.Add(1)
			}
		}
	}
	return ctx
}

func (r *recordTracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (r *recordTracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// TestNodes_RecordTogether uses 20 queues on one pool.
func TestNodes_RecordTogether(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	cfg, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	tracer := &recordTracer{}
	cfg.ConnConfig.Tracer = tracer
	cfg.MaxConns = 12
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	queues, nodes, consumers := severalQueues(t, pool, 20)
	workAll(t, nodes, consumers, 40)
	nothingLeft(t, queues)
	if tracer.count.Load() == 0 {
		t.Error("no two queues have shared a transaction")
	}
}

// TestNodes_RecordBesideLocked: another session keeps the locks of two queues.
func TestNodes_RecordBesideLocked(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	queues, nodes, consumers := severalQueues(t, db.Pool, 6)
	workAll(t, nodes, consumers, 3)
	var ids []int32
	for _, q := range queues[:2] {
		var id int32
		if err := db.Pool.QueryRow(t.Context(), `SELECT id FROM tidewire.stream WHERE name = $1`, q.Name()).Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	// On a separate connection: a small pool has only one for all readers.
	conn, err := pgx.Connect(t.Context(), db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if _, err := tx.Exec(t.Context(), `SELECT pg_advisory_xact_lock(1953064037, $1)`, -id); err != nil {
			t.Fatal(err)
		}
	}
	var held sync.WaitGroup
	held.Go(func() { workAll(t, nodes[:2], consumers[:2], 3) })
	workAll(t, nodes[2:], consumers[2:], 20)
	tx.Rollback(context.Background())
	held.Wait()
	nothingLeft(t, queues)
}

// TestNodes_RecordWhileSessionsEnd ends sessions that write, again and again: what was
// acknowledged is not delivered again.
func TestNodes_RecordWhileSessionsEnd(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	queues, nodes, consumers := severalQueues(t, db.Pool, 8)
	stop := endSessions(t, db)
	workAll(t, nodes, consumers, 25)
	stop()
	nothingLeft(t, queues)
}

// endSessions ends sessions that write until stop, each time after something was committed: a slow machine commits nothing between two ends
// that follow a clock.
func endSessions(t *testing.T, db pgtest.DB) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var ending sync.WaitGroup
	ending.Go(func() {
		for before := ""; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
			var now string
			err := db.Pool.QueryRow(context.Background(), `SELECT (SELECT count(*) FROM tidewire.shared_message) || ' ' || (SELECT coalesce(sum(sequence), 0) FROM tidewire.queue_journal)`).Scan(&now)
			if err == nil && now != before {
				before = now
				_, err = db.Pool.Exec(context.Background(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
					WHERE datname = current_database() AND application_name = 'tidewire writer' AND pid <> pg_backend_pid()`)
			}
			if err != nil {
				t.Error(err)
			}
		}
	})
	return func() { cancel(); ending.Wait() }
}
