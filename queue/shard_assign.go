package queue

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tidewire/tidewire/stream"
)

// Assigner shares out the numbers from 0 to numbers - 1 among all members, in any
// process, that give the same name: evenly, and anew when one joins, leaves or
// dies. It calls own, in a goroutine of its own, for each number that this
// member is given, until own returns, which it does soon after asked is closed
// or ctx ended. It returns when its ctx has ended and own has returned for all,
// or with an error that will not go away. A partition that two members are given at a time
// does no harm: only one of them gets the partition's lease.
type Assigner func(ctx context.Context, name string, numbers int, own func(ctx context.Context, number int, asked <-chan struct{})) error

// shareByStream is the Assigner that package stream has.
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

// shareName is that of the queue and no other: another one of its name has partitions of its own.
func (n *Node) shareName() string {
	return fmt.Sprintf("queue %s %d", n.queue.name, n.queue.members[0].id)
}

// shareLanes takes part in sharing out the partitions, while there are Consumers that
// ask for messages.
func (n *Node) shareLanes(ctx context.Context) {
	run := n.cfg.Assign
	if run == nil {
		run = n.shareByStream
	}
	for n.awaitConsumers(ctx, true) {
		sharing, stop := context.WithCancel(ctx)
		var share sync.WaitGroup
		share.Go(func() {
			if err := run(sharing, n.shareName(), len(n.parts), n.ownLane); err != nil {
				n.fail(n.queue.explain("share the partitions of", err))
				stop()
			}
		})
		n.awaitConsumers(sharing, false)
		stop()
		share.Wait()
	}
}

// awaitConsumers waits until there are Consumers that ask, or none, and reports
// whether ctx lasts.
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

// asked reports whether any Consumer asks for messages, or has all that it may.
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

// ownLane consumes from a partition until it is asked for, and returns when it is
// given back.
func (n *Node) ownLane(ctx context.Context, number int, asked <-chan struct{}) {
	p := n.parts[number]
	left := p.openLane()
	select {
	case <-asked:
	case <-ctx.Done():
	}
	// Once it has begun to leave, a part forgets what it has: it must not have the
	// partition again before its lease is over, however long PostgreSQL is away.
	p.leavePartition(n.cfg.Drain)
	select {
	case <-left:
	case <-n.work.Done():
	}
}
