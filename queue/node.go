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
	// Lease is for how long the Node keeps what it has claimed after it was last
	// heard of, by PostgreSQL's clock. It is renewed at a third. Others take
	// over that much, and PollJournal, after a Node died. Defaults to 15 s.
	Lease time.Duration
	// Ahead is the most positions after the end of the stream that the Node
	// claims, so that what is written there next is delivered without asking
	// anybody. Defaults to 256.
	Ahead int
	// IdleAfter is for how long there is nothing to do until the Node gives up
	// its lease, and writes nothing until there is. Defaults to Lease.
	IdleAfter time.Duration
	// StallAfter is for how long a Consumer with free credits need not have
	// called Receive until nothing is claimed for it any more, and what was is
	// given up. Defaults to 5 s.
	StallAfter time.Duration
	// Poll is how often the stream is read for what other processes wrote, give
	// or take a quarter. Defaults to 2 s, or 10 s with a Hub.
	Poll time.Duration
	// PollJournal is how often the journal is read for what other nodes gave up, and
	// for messages that are due, give or take a quarter. Defaults to 4 s.
	PollJournal time.Duration
	// LaterEvery is how long AckLater waits for company. Defaults to 100 ms.
	LaterEvery time.Duration
	// Linger is for how long what is to be recorded waits for company, as does
	// who waits for it: for fewer commits at low rates. Defaults to none.
	Linger time.Duration
	// BufferBytes is the memory for messages read and not delivered from which
	// no more are read. One read may exceed it. Defaults to 16 MiB.
	BufferBytes int
	// RotateRows is the number of rows from which the journal is begun anew; up
	// to half more, so that nodes do not do so in step, and not before it has as
	// many rows as the queue has ranges of messages that are not done. The row
	// that replaces them is written, and they are deleted, under the queue's lock:
	// some milliseconds. Defaults to 2,000.
	RotateRows int
	// Drain is for how long Run, when it stops, waits for what was delivered
	// to be acknowledged. Defaults to 10 s.
	Drain time.Duration
	// Timeout bounds one round trip to PostgreSQL, of which a second may be spent
	// waiting for the queue's lock. A session of Tidewire that holds that
	// lock for longer than Timeout, and hears nothing from its client, is ended.
	// Defaults to 10 s.
	Timeout time.Duration
	// Hub, if not nil, tells the Node what has been enqueued, and gives it from memory
	// what Enqueuers with the same Hub have. Without it the Node hears of
	// what Enqueuers of the same Queue enqueue, and else polls.
	Hub *stream.Hub
	// Assign is how the partitions of an ordered queue are shared out among the nodes
	// with Consumers that ask. Defaults to a stream.Coordinator with the same Lease,
	// evenly.
	Assign Assigner
	// Appender is how Enqueue appends.
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

// Node is a process's part in a queue: it holds a lease, under which it claims
// positions for all its Consumers, reads their messages, hands them out and
// records what became of them. Of a queue with priorities or partitions it does so
// for each. A process needs one Node for each queue.
//
// It writes on connections that all who write to the pool share, and takes one more
// while it reads, for each priority or partition.
//
// Safe for concurrent use.
type Node struct {
	cfg      NodeConfig
	queue    *Queue
	enqueuer *Enqueuer
	parts    []*shardNode // one for each member of the queue

	work    context.Context // of what is to be recorded; ends with Abandon, or with what ended the Node as its cause
	abandon context.CancelCauseFunc
	failed  chan error    // one slot: what ended the Node
	drained chan struct{} // one slot: nothing is delivered any more
	members chan struct{} // one slot: the Consumers are others
	litter  chan struct{} // one slot: a journal has deleted rows
	broken  chan struct{} // closed when it fails, because its queue is gone for one

	mu        sync.Mutex // guards the fields below, and those of the parts
	consumers []*Consumer
	turn      int // of the Consumer to be woken, and the partition to be looked at, first
	closed    bool
	err       error
	stats     NodeStats // but for JournalRows
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

// Run takes part in the queue until ctx ends. Then it delivers nothing more,
// waits up to Drain for what was delivered, records all acknowledgements,
// gives up what is left, which others may claim at once, and ends its lease.
// While PostgreSQL is away, that takes as long as the lease, at most: what is
// not recorded by then is void. Only what was enqueued and is not committed is
// waited for until it is: see Abandon. Call it once.
//
// It returns ErrNotFound when the queue is dropped, or another error of
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
	defer joinLooker(n)()
	if n.queue.ordered() {
		reading.Go(func() { n.shareLanes(ctx) })
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

// Abandon makes the Node give up without a word to anybody: nothing more is
// recorded, acknowledgements that wait get ErrOutcomeUnknown, and other nodes take
// over once the lease is over. Run still returns when its ctx ends.
func (n *Node) Abandon() {
	n.abandon(nil)
	n.enqueuer.Abandon()
}

// close has Consumers return ErrClosed, or err.
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

// drain waits for what was delivered.
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

// finish has all parts give up everything.
func (n *Node) finish() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.parts {
		p.finish()
	}
}

// fail ends the Node for good. One that is stopping does not wait for what cannot be recorded
// any more, as a partition that is to be given back.
func (n *Node) fail(err error) {
	select {
	case n.failed <- err:
	default:
	}
	n.abandon(err)
}

// Dropped tells the Node that its queue is gone: Run returns ErrNotFound, as it does when the
// Node finds that out by itself. It does not wait.
func (n *Node) Dropped() { n.fail(n.queue.explain("serve", ErrNotFound)) }

// reason returns why the Node failed: because the queue is gone, if it is, whatever PostgreSQL
// said to one who came across it while it was dropped.
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

// rearm has all that goes by the clock look again. The caller holds mu.
func (n *Node) rearm() {
	for _, p := range n.parts {
		pg.Signal(p.rearm)
	}
}

// wakeConsumers wakes those that wait, as many as there are messages for, not
// always the same first. The caller holds mu.
func (n *Node) wakeConsumers() {
	if n.closed {
		return
	}
	messages := n.available(time.Now())
	for i := range n.consumers {
		if messages == 0 {
			return
		}
		if c := n.consumers[(n.turn+i)%len(n.consumers)]; c.wants() {
			pg.Signal(c.wake)
			messages--
		}
	}
	n.turn++
}
