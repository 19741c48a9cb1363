package queue

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/testkit"
)

// TestNack_PartitionLeavesAtOnce nacks the last delivery of a partition that has to be
// released: the release does not wait for Drain.
func TestNack_PartitionLeavesAtOnce(t *testing.T) {
	t.Parallel()
	q := testQueueOf(t, Options{Partitions: 1})
	asked, left := make(chan struct{}), make(chan struct{})
	n := NewNode(q, NodeConfig{
		Lease: time.Hour, PollJournal: time.Minute, Poll: time.Minute, Drain: 30 * time.Second,
		Assign: func(ctx context.Context, _ string, _ int, own func(context.Context, int, <-chan struct{})) error {
			own(ctx, 0, asked)
			close(left)
			<-ctx.Done()
			return nil
		},
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() {
		if err := n.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	c := n.Consume(ConsumerOptions{})
	if _, err := n.Enqueue(ctx, Message{Key: "a"}); err != nil {
		t.Fatal(err)
	}
	ds, err := c.Receive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	close(asked)
	testkit.Eventually(t, "the partition is to be released", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return !n.parts[0].partition.leaveBy.IsZero() && len(n.parts[0].rearm) == 0 // and its clock has heard of it
	})
	if err := ds[0].Nack(ctx, NackOptions{Delay: time.Nanosecond}); err != nil {
		t.Error(err)
	}
	select {
	case <-left:
	case <-time.After(15 * time.Second):
		t.Error("the partition is not given back")
	}
}
