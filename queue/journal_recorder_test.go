package queue_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/queue"
)

// together are queues of one pool, each with a Node and a Consumer.
type together struct {
	queues    []*queue.Queue
	nodes     []*queue.Node
	consumers []*queue.Consumer
}

func severalQueues(t *testing.T, pool *pgxpool.Pool, n int) (all together) {
	t.Helper()
	for i := range n {
		q, err := queue.Ensure(t.Context(), pool, fmt.Sprint("queue-", i), queue.Options{})
		if err != nil {
			t.Fatal(err)
		}
		node, _ := start(t, q, queue.NodeConfig{})
		all.queues, all.nodes = append(all.queues, q), append(all.nodes, node)
		all.consumers = append(all.consumers, node.Consume(queue.ConsumerOptions{Credits: 10}))
	}
	return all
}

// work processes that many messages in the queues from first up to end. A message that was acknowledged must not be delivered
// again.
func (g together) work(t *testing.T, first, end, messages int) {
	t.Helper()
	var working sync.WaitGroup
	for i := first; i < end; i++ {
		working.Go(func() {
			for _, text := range numbered(messages) {
				if _, err := g.nodes[i].Enqueue(t.Context(), keyed("", text)); err != nil {
					t.Errorf("queue %d: %v", i, err)
				}
			}
		})
		working.Go(func() {
			done := make(map[string]bool)
			for len(done) < messages {
				ds, err := g.consumers[i].Receive(t.Context())
				if err != nil {
					t.Errorf("queue %d: %v", i, err)
					return
				}
				for _, d := range ds {
					if done[string(d.Payload)] {
						t.Errorf("queue %d: %s is delivered again, attempt %d", i, d.Payload, d.Attempt)
					}
					switch err := d.Ack(t.Context()); {
					case err == nil:
						done[string(d.Payload)] = true
					case !errors.Is(err, queue.ErrLeaseLost):
						t.Errorf("queue %d: %v", i, err)
					}
				}
			}
		})
	}
	working.Wait()
}

func (g together) wantNothingLeft(t *testing.T) {
	t.Helper()
	for i, q := range g.queues {
		if s := statsOf(t, q); s.Ready+s.Leased+s.Delayed+s.Dead > 0 {
			t.Errorf("queue %d: %+v; want nothing left", i, s)
		}
	}
}

// TestNodes_RecordTogether: queues of one pool share transactions, also while another session keeps the locks of some of them.
func TestNodes_RecordTogether(t *testing.T) {
	slow(t)
	t.Parallel()
	db := migrated.Open(t)
	var shared atomic.Int64 // transactions
	g := severalQueues(t, tracedPool(t, db.URL, func(_ *pgx.Conn, queries ...*pgx.QueuedQuery) {
		for _, q := range queries {
			if strings.Contains(q.SQL, "record_together") {
				if queues, ok := q.Arguments[0].([]int32); ok && len(queues) > 1 {
					shared.Add(1)
				}
			}
		}
	}), 12)
	for range 10 {
		if g.work(t, 0, 12, 5); shared.Load() > 0 {
			break
		}
	}
	if shared.Load() == 0 {
		t.Error("no two queues have shared a transaction")
	}
	tx := begin(t, db.Pool)
	for _, q := range g.queues[:2] {
		mustExec(t, tx, `SELECT pg_advisory_xact_lock(1953064037, $1)`, -q.Stream().ID())
	}
	var held sync.WaitGroup
	held.Go(func() { g.work(t, 0, 2, 3) })
	g.work(t, 2, 6, 10)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	held.Wait()
	g.wantNothingLeft(t)
}

// TestNodes_RecordWhileSessionsEnd ends sessions that write, each time after something was committed: what was acknowledged is
// not delivered again.
func TestNodes_RecordWhileSessionsEnd(t *testing.T) {
	slow(t)
	t.Parallel()
	db := migrated.Open(t)
	g := severalQueues(t, tracedPool(t, db.URL, func(*pgx.Conn, ...*pgx.QueuedQuery) {}), 6)
	var worked atomic.Bool
	var working sync.WaitGroup
	working.Go(func() { g.work(t, 0, 6, 6); worked.Store(true) })
	for !worked.Load() {
		before := count(t, db.Pool, journaled)
		testkit.Eventually(t, "something is committed", func() bool { return worked.Load() || count(t, db.Pool, journaled) > before })
		count(t, db.Pool, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'tidewire writer' AND pid <> pg_backend_pid()`)
	}
	working.Wait()
	g.wantNothingLeft(t)
}

// journaled grows with each message and each row of a journal.
const journaled = `SELECT (SELECT count(*) FROM tidewire.shared_message) + (SELECT coalesce(sum(sequence), 0) FROM tidewire.queue_journal)`
