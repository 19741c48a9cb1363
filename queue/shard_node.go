package queue

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/stream"
)

// part is a Node's part in one member of the queue: all that has to do with one
// journal and one stream.
type shardNode struct {
	node  *Node
	queue *shard
	cfg   *NodeConfig

	// group gathers what is to be recorded; its Run is the only one that writes
	// to the journal. Adding never waits: what there is to add is bounded by
	// what was delivered.
	group   *pg.Group[batch]
	brake   writeBackoff
	readNow chan struct{} // one slot: there may be something to read
	rearm   chan struct{} // one slot: the clock is to look again

	mu    *sync.Mutex // the Node's; guards the fields below
	state state       // the journal, as far as read
	head  int64       // the stream reaches as far as this, or further
	empty span        // positions that hold no message, as was seen: the most there were side by side

	token    int64     // of the lease, or 0
	deadline time.Time // until then the lease lasts for sure, by our own clock
	renewAt  time.Time
	dbNow    time.Time // PostgreSQL's clock, at most, at heardAt
	heardAt  time.Time

	unread     []segment          // what we have and did not read, in order
	ready      []*item            // read, never delivered by us, in order
	again      []*item            // to be delivered again
	readyBytes int                // of both
	average    int                // of payloads, as last read
	deferred   map[int64]struct{} // of positions that have a row of their own
	fetch      []sideRow          // of those, the ones to be read
	fetching   int                // and how many are being read
	proving    int                // suspects whose next delivery is being recorded
	flight     map[*Delivery]struct{}
	partition  *partition // nil: there is no order of keys

	pending batch // goes with the next write; nobody waits for it
	times   schedule
	nudged  bool // the group was told, and has not been through since
	waiting int  // settlements that somebody waits for

	polls     bool // it is time to ask for what was enqueued
	finishing bool // gives up everything
	alone     bool // nobody else wrote to the journal of late; commit's alone

	follower *stream.Follower // nil without a Hub; read's alone, and so the next
	doubtful bool             // something was enqueued that is not at hand, or may have been

	on       pg.Borrower // commit's alone, and so the next
	recorder *recorder
	apart    time.Time // until then it writes alone: somebody keeps a lock that it needs
}

// item is a message between the stream and the one who acknowledges it.
type item struct {
	stream.Message
	token    int64 // lease under which we have it
	attempts int   // how often it was delivered
	recorded int   // how often as a row of the journal says that this node wrote
	suspect  bool  // a node died that had it
	deferred bool  // has a row of its own
	reason   string
	rest     time.Time // not to be delivered before, in a partition
}

func newShardNode(n *Node, m *shard) *shardNode {
	p := &shardNode{
		node: n, queue: m, mu: &n.mu, on: pg.NewBorrower(m.pool),
		group:   pg.NewGroup(&batch{}, &batch{}, math.MaxInt, math.MaxInt).Linger(n.cfg.Linger),
		readNow: make(chan struct{}, 1), rearm: make(chan struct{}, 1),
		deferred: make(map[int64]struct{}), flight: make(map[*Delivery]struct{}),
	}
	p.brake.off = make(chan struct{}, 1)
	p.cfg = partConfig(n.cfg, len(n.queue.members))
	if n.queue.ordered() {
		p.partition = newPartition()
	}
	return p
}

// begin reads the journal for the first time.
func (n *shardNode) begin(ctx context.Context) error {
	for failed := 0; ; failed++ {
		attempt, cancel := context.WithTimeout(ctx, n.cfg.Timeout)
		s, a, err := n.queue.load(attempt)
		cancel()
		if err == nil {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.state, n.dbNow, n.heardAt = *s, a.now, time.Now()
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
		if !n.retry(err) {
			return err
		}
		n.cfg.Log.Warn("journal not read, trying again", "queue", n.queue.Name(), "error", err)
		if pg.Backoff(ctx, failed) != nil {
			return nil
		}
	}
}

// retry reports whether what failed may succeed later.
func (n *shardNode) retry(err error) bool {
	return pg.Retryable(err) || errors.Is(err, context.DeadlineExceeded)
}

// finish voids what is still delivered, and has the last write give up
// everything. Later acknowledgements get ErrLeaseLost. The caller holds mu.
func (n *shardNode) finish() {
	n.finishing = true
	n.giveUpAll()
	n.nudge()
	pg.Signal(n.brake.off)
}

// giveUpAll voids what is delivered, and gives back what was tried more often
// than the journal knows; the end of the lease, which is to follow, gives up the
// rest.
func (n *shardNode) giveUpAll() {
	for d := range n.flight {
		n.void(d)
		n.giveBack(d.item)
	}
	for _, it := range n.again {
		n.giveBack(it)
	}
	n.again = nil
	n.dropProofs()
	if n.partition != nil {
		for _, it := range n.partition.clear() {
			n.giveBack(it)
		}
	}
}

// nudge has the group go through what there is to write. The caller holds mu.
func (n *shardNode) nudge() {
	n.nudged = true
	n.group.Add(context.Background(), 1, 0, func(*batch) {}) // it never waits
}
