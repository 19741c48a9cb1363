package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/stream"
)

// NodeConfig configures a Node.
type NodeConfig struct {
	// Lease is how long the Node keeps its claims after it last renewed them, by
	// PostgreSQL's clock. It renews at a third of that. After a Node died, other
	// Nodes take over within Lease and PollJournal. Defaults to 15 s.
	Lease time.Duration
	// Ahead is the maximum number of positions after the end of the stream that
	// the Node claims, so that messages that are written there next are
	// delivered without another claim. Defaults to 256.
	Ahead int
	// IdleAfter is how long the Node is idle before it ends its lease; it then
	// writes nothing until there is work. Defaults to Lease.
	IdleAfter time.Duration
	// StallAfter is the time without a call of Receive or a settlement after
	// which a Consumer with free credits counts as stalled: nothing more is
	// claimed for it, and its undelivered messages are released. Defaults to 5
	// s.
	StallAfter time.Duration
	// Poll is the interval at which the stream is read for messages of other
	// processes, with a jitter of a quarter. Defaults to 2 s, or 10 s with a
	// Hub.
	Poll time.Duration
	// PollJournal is the interval at which the journal is read for positions that
	// other nodes released, and for messages that are due, with a jitter of a
	// quarter. Defaults to 4 s.
	PollJournal time.Duration
	// LaterEvery is how long AckLater waits for more to be recorded with it. Defaults to 100 ms.
	LaterEvery time.Duration
	// Linger is how long a write to the journal waits for more to be recorded
	// with it; the callers wait as well. It saves commits at low rates.
	// Defaults to none.
	Linger time.Duration
	// BufferBytes limits the memory for messages that are read and not
	// delivered: above it nothing more is read. One read may exceed it.
	// Defaults to 16 MiB.
	BufferBytes int
	// RotateRows is the number of rows from which the journal is compacted into
	// one row. A random part, up to half, is added, so that nodes do not compact
	// at the same time. The journal is not compacted before it has as many rows as
	// the queue has ranges of messages that are not done. The new row is written,
	// and the old ones are deleted, under the queue's lock, which takes some
	// milliseconds. Defaults to 2,000.
	RotateRows int
	// Drain is how long Run, when it stops, waits for deliveries to be
	// acknowledged. Defaults to 10 s.
	Drain time.Duration
	// Timeout bounds one round trip to PostgreSQL, of which a second may be spent
	// waiting for the queue's lock. A session of Tidewire that holds that
	// lock for longer than Timeout, and hears nothing from its client, is ended.
	// Defaults to 10 s.
	Timeout time.Duration
	// Hub, if not nil, notifies the Node of new messages, and gives it those from
	// Enqueuers with the same Hub from memory. Without it the Node is notified only by
	// Enqueuers of the same Queue, and otherwise polls.
	Hub *stream.Hub
	// Assign assigns the partitions of an ordered queue to the nodes whose Consumers
	// ask for messages. Defaults to a stream.Coordinator with the same Lease, which
	// divides them evenly.
	Assign Assigner
	// Appender configures how Enqueue appends.
	Appender stream.AppenderConfig
	// Log receives a line when PostgreSQL is away. Defaults to none.
	Log *slog.Logger
}

func (c NodeConfig) withDefaults() NodeConfig {
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{
		{&c.Lease, 15 * time.Second}, {&c.StallAfter, 5 * time.Second}, {&c.PollJournal, 4 * time.Second},
		{&c.LaterEvery, 100 * time.Millisecond}, {&c.Drain, 10 * time.Second}, {&c.Timeout, 10 * time.Second},
	} {
		if *d.value <= 0 {
			*d.value = d.def
		}
	}
	if c.IdleAfter <= 0 {
		c.IdleAfter = c.Lease
	}
	if c.Poll <= 0 {
		if c.Poll = 2 * time.Second; c.Hub != nil {
			c.Poll = 10 * time.Second
		}
	}
	if c.Ahead <= 0 {
		c.Ahead = 256
	}
	if c.BufferBytes <= 0 {
		c.BufferBytes = 16 << 20
	}
	if c.RotateRows <= 0 {
		c.RotateRows = 2_000
	}
	c.RotateRows += rand.IntN(c.RotateRows/2 + 1)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Node consumes a queue for a process: it holds a lease, under which it claims
// positions for all its Consumers, reads their messages, delivers them and records
// the outcomes. In a queue with priorities or partitions it does so for each of
// these. A process needs one Node for each queue.
//
// It writes on connections that it shares with all writers to the pool, and uses
// one more while it reads, for each priority or partition.
//
// Safe for concurrent use.
type Node struct {
	cfg      NodeConfig
	queue    *Queue
	enqueuer *Enqueuer
	parts    []*shardNode // one for each member of the queue

	work    context.Context // for writes to the journal; ends with Abandon, or with the error that ended the Node as its cause
	abandon context.CancelCauseFunc
	failed  chan error    // one slot: the error that ended the Node
	drained chan struct{} // one slot: no deliveries are left
	members chan struct{} // one slot: the Consumers have changed
	litter  chan struct{} // one slot: a journal has deleted rows
	broken  chan struct{} // closed when the Node fails, for example because its queue was dropped

	mu        sync.Mutex  // guards the fields below, and those of the parts
	consumers []*Consumer // the least recently served first
	turn      int         // index of the partition that is served first
	closed    bool
	err       error
	stats     NodeStats // except JournalRows
}

// NewNode returns a Node of the queue, which reads and writes through the
// queue's pool. It does nothing until Run.
func NewNode(q *Queue, cfg NodeConfig) *Node {
	n := &Node{
		cfg: cfg.withDefaults(), queue: q,
		enqueuer: NewEnqueuer(q, EnqueuerConfig{Appender: cfg.Appender}),
		failed:   make(chan error, 1), drained: make(chan struct{}, 1),
		members: make(chan struct{}, 1), litter: make(chan struct{}, 1), broken: make(chan struct{}),
	}
	n.work, n.abandon = context.WithCancelCause(context.Background())
	for _, m := range q.members {
		n.parts = append(n.parts, newShardNode(n, m))
	}
	return n
}

// Enqueue is Enqueuer.Enqueue, until Run has returned.
func (n *Node) Enqueue(ctx context.Context, msgs ...Message) (Enqueued, error) {
	n.enqueuer.Start()
	at, err := n.enqueuer.Enqueue(ctx, msgs...)
	if errors.Is(err, ErrNotFound) {
		n.Dropped()
	}
	return at, err
}

// Run serves the queue until ctx ends. It then delivers nothing more, waits up
// to Drain until the deliveries are settled, records all acknowledgements,
// releases the rest, which other nodes may claim at once, and ends its lease.
// While PostgreSQL is away, it stops after Drain, Lease and Timeout at the
// latest: what is not recorded by then is void. It waits for enqueued messages
// without a limit, until they are committed: see Abandon. Call it once.
//
// It returns ErrNotFound if the queue was dropped, or another error of
// PostgreSQL that will not go away; else nil.
func (n *Node) Run(ctx context.Context) error {
	defer n.abandon(nil)
	n.queue.attach(n)
	defer n.queue.detach(n)
	serving, stopServing := context.WithCancel(ctx)
	defer stopServing()
	var producing sync.WaitGroup
	producing.Go(func() { <-serving.Done(); n.enqueuer.Stop() })
	err := n.begin(serving)
	if err == nil {
		err = n.serve(serving, stopServing)
	}
	stopServing()
	n.close(err)
	producing.Wait()
	return err
}

// begin reads the journals for the first time.
func (n *Node) begin(ctx context.Context) error {
	for _, p := range n.parts {
		if err := p.begin(ctx); err != nil {
			return err
		}
	}
	return nil
}

// serve runs all parts of the Node, and stops them one after the other.
func (n *Node) serve(ctx context.Context, stopServing func()) (err error) {
	gathering, stopGathering := context.WithCancel(context.Background())
	defer stopGathering()
	var reading, writing sync.WaitGroup
	for _, p := range n.parts {
		reading.Go(func() { p.read(ctx) })
		writing.Go(func() { p.clock(gathering) })
		writing.Go(func() {
			defer p.on.Close()
			p.recorder = joinRecorder(p.queue.pool)
			defer p.recorder.leave()
			p.group.Run(gathering, n.work, p.commit)
		})
	}
	reading.Go(func() { n.tend(ctx) })
	defer joinJournalPoller(n)()
	if n.queue.ordered() {
		reading.Go(func() { n.assignPartitions(ctx) })
	}
	select {
	case <-ctx.Done():
	case err = <-n.failed:
		err = n.reason(err)
	}
	stopServing()
	n.close(err)
	reading.Wait()
	n.drain()
	giveUp := time.AfterFunc(n.cfg.Lease+n.cfg.Timeout, func() { n.abandon(nil) })
	defer giveUp.Stop()
	n.finish()
	stopGathering()
	writing.Wait()
	return err
}

// Abandon stops the Node without telling the other nodes: nothing more is
// recorded, waiting acknowledgements get ErrOutcomeUnknown, and other nodes take
// over once the lease is over. Run still goes on until its ctx ends.
func (n *Node) Abandon() {
	n.abandon(nil)
	n.enqueuer.Abandon()
}

// close makes Consumers return ErrClosed, with err if it is not nil.
func (n *Node) close(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil && n.err == nil {
		close(n.broken)
	}
	n.closed = true
	if n.err = ErrClosed; err != nil {
		n.err = fmt.Errorf("%w: %w", ErrClosed, err)
	}
	for _, c := range n.consumers {
		pg.Signal(c.wake)
	}
	n.checkDrained()
}

// drain waits until the deliveries are settled, for Drain at most.
func (n *Node) drain() {
	patience := time.NewTimer(n.cfg.Drain)
	defer patience.Stop()
	select {
	case <-n.drained:
	case <-patience.C:
	case <-n.work.Done():
	}
}

// checkDrained tells drain that there is nothing to wait for. The caller holds
// mu.
func (n *Node) checkDrained() {
	if n.closed && !slices.ContainsFunc(n.parts, func(p *shardNode) bool { return len(p.flight) > 0 }) {
		pg.Signal(n.drained)
	}
}

// finish makes all parts release everything.
func (n *Node) finish() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.parts {
		p.finish()
	}
}

// fail ends the Node permanently. If it is stopping, it does not wait for writes that cannot
// succeed any more, such as the release of a partition.
func (n *Node) fail(err error) {
	select {
	case n.failed <- err:
	default:
	}
	n.abandon(err)
}

// Dropped tells the Node that its queue was dropped: Run returns ErrNotFound, as it does when
// the Node finds that out itself. It does not wait.
func (n *Node) Dropped() { n.fail(n.queue.explain("serve", ErrNotFound)) }

// reason returns why the Node failed: ErrNotFound if the queue was dropped, whatever error
// PostgreSQL returned while it was being dropped; else err.
func (n *Node) reason(err error) error {
	if errors.Is(err, ErrNotFound) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), n.cfg.Timeout)
	defer cancel()
	var ids []int32
	for _, m := range n.queue.members {
		ids = append(ids, m.id)
	}
	if there, unknown := existing(ctx, n.queue.pool, ids); unknown == nil && len(there) < len(ids) {
		return n.queue.explain("serve", ErrNotFound)
	}
	return err
}

// rearm makes the clocks of all parts check their times again. The caller holds mu.
func (n *Node) rearm() {
	for _, p := range n.parts {
		pg.Signal(p.rearm)
	}
}

// wakeConsumers wakes as many waiting Consumers as there are messages, the least
// recently served first. The caller holds mu.
func (n *Node) wakeConsumers() {
	if n.closed {
		return
	}
	messages := n.available(time.Now())
	for _, c := range n.consumers {
		if messages == 0 {
			return
		}
		if c.wants() {
			pg.Signal(c.wake)
			messages--
		}
	}
}

// served makes the Consumer the last one to be woken. The caller holds mu.
func (n *Node) served(c *Consumer) {
	if at := slices.Index(n.consumers, c); at >= 0 {
		copy(n.consumers[at:], n.consumers[at+1:])
		n.consumers[len(n.consumers)-1] = c
	}
}
