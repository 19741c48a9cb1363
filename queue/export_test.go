package queue

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// DeliveredAt is when a delivery whose time was not extended was delivered.
func DeliveredAt(d *Delivery) time.Time { return d.deadline.Add(-d.consumer.cfg.Visibility) }

// Floor is the position up to which the log of the queue's first stream is done with: messages up to there are
// acknowledged or deferred.
func Floor(t *testing.T, q *Queue) int64 {
	t.Helper()
	s, _, err := q.members[0].load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s.floor()
}

// Leases returns how many leases are not ended.
func Leases(t *testing.T, q *Queue) int {
	t.Helper()
	all := 0
	for _, m := range q.members {
		s, _, err := m.load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all += len(s.leases)
	}
	return all
}

// RecordedAttempts is how often a message of the log was delivered, as the journal
// says.
func RecordedAttempts(t *testing.T, q *Queue, position int64) int {
	t.Helper()
	s, _, err := q.members[0].load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g, _ := s.find(position)
	return g.attempts
}

// Waiting returns how many Consumers wait for messages.
func Waiting(n *Node) (waiting int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.consumers {
		if c.waiting {
			waiting++
		}
	}
	return waiting
}

// CountWrites counts the calls of queue_write that are made for the Queue from
// now on. Call it before there are Nodes.
func CountWrites(q *Queue) *atomic.Int64 {
	var calls atomic.Int64
	for _, m := range q.members {
		m.sent = func() { calls.Add(1) }
	}
	return &calls
}

// MustExec executes a statement, also in a transaction of the test.
func MustExec(t testing.TB, on interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, sql string, args ...any) {
	t.Helper()
	if _, err := on.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
