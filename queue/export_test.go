package queue

import (
	"testing"
	"time"
)

// HandedOutAt is when a delivery whose time was not extended was handed out.
func HandedOutAt(d *Delivery) time.Time { return d.deadline.Add(-d.consumer.cfg.Visibility) }

// Leases is how many leases nobody has ended.
func Leases(t *testing.T, q *Queue) int {
	t.Helper()
	s, _, err := q.load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(s.leases)
}
