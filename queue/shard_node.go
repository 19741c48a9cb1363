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

// shardNode is the part of a Node for one member of the queue: everything that
// concerns one journal and one stream.
type shardNode struct {
	node  *Node
	queue *shard
	cfg   *NodeConfig

	// group collects what is to be recorded (group commit); only its Run writes
	// to the journal. Add never waits: the amount of work is bounded by the
	// number of deliveries.
	group        *pg.Group[batch]
	writeBackoff writeBackoff
	readNow      chan struct{} // one slot: there may be something to read
	rearm        chan struct{} // one slot: the clock has to check its times again

	mu    *sync.Mutex // the Node's; guards the fields below
	state state       // the journal, as far as read
	head  int64       // the stream ends here or later
	empty span        // the largest range of positions that are known to be empty

	token    int64     // of the lease, or 0
	deadline time.Time // until then the lease is valid for certain, by our own clock
	renewAt  time.Time
	dbNow    time.Time // PostgreSQL's clock at heardAt was this, or later
	heardAt  time.Time

	unread         []segment          // claimed and not read yet, in order
	ready          []*item            // read, never delivered by us, in order
	again          []*item            // to be delivered again
	readyBytes     int                // of both
	average        int                // of payloads, as last read
	deferred       map[int64]struct{} // positions of claimed messages that are deferred
	fetch          []sideRow          // of those, the messages that are still to be read
	fetching       int                // of those, how many are being read
	recordingFirst int                // suspect messages whose next delivery is being recorded
	flight         map[*Delivery]struct{}
	partition      *partition // nil: there is no order of keys

	pending batch // recorded with the next write; no caller waits for it
	times   schedule
	nudged  bool // the group was notified, and has not finished since
	waiting int  // settlements that callers wait for

	polls     bool // it is time to query for new messages
	finishing bool // releases everything
	alone     bool // no other node wrote to the journal recently; used by commit only

	follower *stream.Follower // nil without a Hub; it and the next field are used by read only
	doubtful bool             // messages were, or may have been, enqueued that are not in memory

	on         pg.Borrower // used by commit only, as the next two
	recorder   *recorder
	aloneUntil time.Time // until then it writes alone: another session keeps a lock that it needs
}

// item is a message that was read from the stream and is not settled.
type item struct {
	stream.Message
	token    int64 // lease under which it was claimed
	tally          // with the delivery that is under way
	recorded tally // the tally that PostgreSQL has
	suspect  bool  // a node that had it died
	deferred bool  // has a row in queue_side
	reason   string
	rest     time.Time // in a partition: not delivered before this time
}

func newShardNode(n *Node, m *shard) *shardNode {
	p := &shardNode{
		node: n, queue: m, mu: &n.mu, on: pg.NewBorrower(m.pool),
		group:   pg.NewGroup(&batch{}, &batch{}, math.MaxInt, math.MaxInt).Linger(n.cfg.Linger),
		readNow: make(chan struct{}, 1), rearm: make(chan struct{}, 1),
		deferred: make(map[int64]struct{}), flight: make(map[*Delivery]struct{}),
	}
	p.writeBackoff.off = make(chan struct{}, 1)
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

// retry reports whether an operation that failed with err may succeed later.
func (n *shardNode) retry(err error) bool {
	return pg.Retryable(err) || errors.Is(err, context.DeadlineExceeded)
}

// finish voids the deliveries that are not settled, and makes the last write
// release everything. Later acknowledgements get ErrLeaseLost. The caller holds
// mu.
func (n *shardNode) finish() {
	n.finishing = true
	n.giveUpAll()
	n.nudge()
	pg.Signal(n.writeBackoff.off)
}

// giveUpAll voids the deliveries, and releases the messages that were delivered
// more often than the journal says. The end of the lease, which has to follow,
// releases the rest.
func (n *shardNode) giveUpAll() {
	for d := range n.flight {
		n.void(d)
		n.giveBack(d.item)
	}
	for _, it := range n.again {
		n.giveBack(it)
	}
	n.again = nil
	n.dropRecordFirst()
	if n.partition != nil {
		for _, it := range n.partition.clear() {
			n.giveBack(it)
		}
	}
}

// nudge makes the group run commit. The caller holds mu.
func (n *shardNode) nudge() {
	n.nudged = true
	n.group.Add(context.Background(), 1, 0, func(*batch) {}) // Add never waits
}
