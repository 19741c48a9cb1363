package queue

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tidewire/tidewire/stream"
)

// Assigner divides the numbers from 0 to numbers - 1 evenly among all members, in any
// process, that use the same name. It divides them again when a member joins, leaves or
// dies. For each number that this member is given it calls own in a new goroutine; the
// number stays with the member until own returns, which it does soon after asked is closed
// or ctx ends. The Assigner returns when its ctx has ended and own has returned for all
// numbers, or with an error that will not go away. If two members are given the same
// partition at a time, only one of them gets the partition's lease, so order is kept.
type Assigner func(ctx context.Context, name string, numbers int, own func(ctx context.Context, number int, asked <-chan struct{})) error

// shareByStream is the Assigner of package stream.
func (n *Node) shareByStream(ctx context.Context, name string, numbers int, own func(ctx context.Context, number int, asked <-chan struct{})) error {
	s, err := stream.NewCoordinator(n.queue.pool, stream.CoordinatorConfig{
		Name: name, Numbers: numbers, Stream: n.queue.Stream(), Lease: n.cfg.Lease, Log: n.cfg.Log,
		Own: func(ctx context.Context, o *stream.Assignment) { own(ctx, o.Number, o.Revoked()) },
	})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// shareName is unique to this queue: a later queue of the same name does not share its partitions.
func (n *Node) shareName() string {
	return fmt.Sprintf("queue %s %d", n.queue.name, n.queue.members[0].id)
}

// assignPartitions runs the Assigner for the partitions, while there are Consumers
// that ask for messages.
func (n *Node) assignPartitions(ctx context.Context) {
	run := n.cfg.Assign
	if run == nil {
		run = n.shareByStream
	}
	for n.awaitConsumers(ctx, true) {
		sharing, stop := context.WithCancel(ctx)
		var share sync.WaitGroup
		share.Go(func() {
			if err := run(sharing, n.shareName(), len(n.parts), n.ownPartition); err != nil {
				n.fail(n.queue.explain("share the partitions of", err))
				stop()
			}
		})
		n.awaitConsumers(sharing, false)
		stop()
		share.Wait()
	}
}

// awaitConsumers waits until there are Consumers that ask for messages (want is
// true), or none, and reports whether it did before ctx ended.
func (n *Node) awaitConsumers(ctx context.Context, want bool) bool {
	tick := time.NewTicker(max(n.cfg.StallAfter/2, time.Millisecond))
	defer tick.Stop()
	for ctx.Err() == nil {
		if n.asked() == want {
			return true
		}
		select {
		case <-n.members:
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return false
}

// asked reports whether any Consumer asks for messages, or has used all its credits.
func (n *Node) asked() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for _, c := range n.consumers {
		if c.active(now) || c.outstanding >= c.cfg.Credits {
			return !n.closed
		}
	}
	return false
}

// ownPartition consumes from a partition until asked is closed, and returns when
// the partition is released.
func (n *Node) ownPartition(ctx context.Context, number int, asked <-chan struct{}) {
	p := n.parts[number]
	left := p.openPartition()
	select {
	case <-asked:
	case <-ctx.Done():
	}
	// A part that has begun to leave forgets its messages: it must not get the
	// partition again before its lease is over, even if PostgreSQL is away for
	// long.
	p.leavePartition(n.cfg.Drain)
	select {
	case <-left:
	case <-n.work.Done():
	}
}
