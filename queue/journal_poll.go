package queue

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
)

// rarely is how many times less often all parts of a Node together read journal and
// stream without a reason than the journalPoller polls them.
const rarely = 16

// partConfig returns the configuration for each part of a queue with that many members.
func partConfig(c NodeConfig, members int) *NodeConfig {
	less := time.Duration(rarely * members)
	c.PollJournal, c.Poll = less*c.PollJournal, less*c.Poll
	if members > 1 {
		c.BufferBytes = max(c.BufferBytes/members, 256<<10)
	}
	return &c
}

// pollQueues is how many queues one query polls.
const pollQueues = 1000

// journalPoller polls all queues of the Nodes of a pool in one query, at the shortest
// PollJournal or Poll of these Nodes. If a journal has grown, the part reads it. If a queue
// was dropped, its Node ends, even without Consumers or partitions.
type journalPoller struct {
	pool  *pgxpool.Pool
	life  context.Context // ends when the last Node has left
	end   context.CancelFunc
	ended chan struct{}
	rearm chan struct{} // one slot: the Nodes have changed

	mu    sync.Mutex
	nodes []*Node
}

var journalPollers pg.PerPool[*journalPoller]

// joinJournalPoller polls the Node's queue until leave.
func joinJournalPoller(n *Node) (leave func()) {
	pool := n.queue.pool
	l := journalPollers.Join(pool, func() *journalPoller {
		l := &journalPoller{pool: pool, ended: make(chan struct{}), rearm: make(chan struct{}, 1)}
		l.life, l.end = context.WithCancel(context.Background())
		go l.run()
		return l
	})
	l.mu.Lock()
	l.nodes = append(l.nodes, n)
	l.mu.Unlock()
	pg.Signal(l.rearm)
	return func() {
		l.mu.Lock()
		l.nodes = slices.DeleteFunc(slices.Clone(l.nodes), func(other *Node) bool { return other == n })
		l.mu.Unlock()
		if journalPollers.Leave(pool) {
			l.end()
			<-l.ended
		}
	}
}

func (l *journalPoller) run() {
	defer close(l.ended)
	began := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for failing := false; ; {
		select {
		case <-timer.C:
			began = time.Now()
			log, err := l.look()
			if err != nil && !failing && l.life.Err() == nil {
				log.Warn("queues not polled", "error", err) // once, until it works again
			}
			failing = err != nil
		case <-l.rearm:
		case <-l.life.Done():
			return
		}
		timer.Reset(max(0, pg.Jitter(l.every())-time.Since(began)))
	}
}

// every is the interval between polls.
func (l *journalPoller) every() time.Duration {
	every := 24 * time.Hour
	for _, n := range l.all() {
		every = min(every, n.cfg.PollJournal, n.cfg.Poll)
	}
	return every
}

func (l *journalPoller) all() []*Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.nodes
}

// looked is one part that is polled.
type looked struct {
	of   *shardNode
	id   int32
	head int64 // of the stream, as far as the part knows
	dues int   // how many due times the part has noted
}

// look polls once, and returns the log of a Node as well.
func (l *journalPoller) look() (log *slog.Logger, err error) {
	var all []looked
	var others []*shardNode
	for _, n := range l.all() {
		log = n.cfg.Log
		some, other := n.lookedAt()
		all, others = append(all, some...), append(others, other...)
	}
	for some := range slices.Chunk(all, pollQueues) {
		unseen, err := l.lookAt(some)
		if err != nil {
			return log, err
		}
		others = append(others, unseen...)
	}
	for some := range slices.Chunk(others, pollQueues) {
		if err := l.endDropped(some); err != nil {
			return log, err
		}
	}
	return log, nil
}

// endDropped ends the Nodes of queues that are gone.
func (l *journalPoller) endDropped(parts []*shardNode) error {
	ctx, cancel := context.WithTimeout(l.life, parts[0].cfg.Timeout)
	defer cancel()
	ids := make([]int32, len(parts))
	for i, p := range parts {
		ids[i] = p.queue.id
	}
	there, err := existing(ctx, l.pool, ids)
	if err != nil {
		return err
	}
	for _, p := range parts {
		if !there[p.queue.id] {
			p.node.Dropped()
		}
	}
	return nil
}

// existing returns which of the queues, or members of families, exist.
func existing(ctx context.Context, pool *pgxpool.Pool, ids []int32) (map[int32]bool, error) {
	rows, err := pool.Query(ctx, existingSQL, ids)
	if err != nil {
		return nil, err
	}
	there := make(map[int32]bool, len(ids))
	var id int32
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error {
		there[id] = true
		return nil
	})
	return there, err
}

// queueStatus is the state of one queue that look_at_queues returns.
type queueStatus struct {
	id   int32
	last *int64     // row of the journal
	due  *time.Time // of the next deferred message
	head *int64     // of the stream, if it has changed
	now  time.Time  // PostgreSQL's clock

	maxAttempts        int // options
	retryMin, retryMax time.Duration
}

// lookAt polls parts, and returns those for which the query returned no row.
func (l *journalPoller) lookAt(all []looked) (unseen []*shardNode, err error) {
	ids, heads := make([]int32, len(all)), make([]int64, len(all))
	for i, a := range all {
		ids[i], heads[i] = a.id, a.head
	}
	ctx, cancel := context.WithTimeout(l.life, all[0].of.cfg.Timeout)
	defer cancel()
	rows, err := l.pool.Query(ctx, lookSQL, ids, heads)
	if err != nil {
		return nil, err
	}
	statuses := make(map[int32]queueStatus, len(all))
	var s queueStatus
	_, err = pgx.ForEachRow(rows, []any{&s.id, &s.last, &s.due, &s.head, &s.now, &s.maxAttempts, &s.retryMin, &s.retryMax}, func() error {
		statuses[s.id] = s
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		s, found := statuses[a.id]
		if a.of.seen(s, found, a.dues); !found {
			unseen = append(unseen, a.of)
		}
	}
	return unseen, nil
}

// seen applies the result of a poll. If no row was found, the queue was dropped or
// is being altered, and the part reads its journal to find out.
func (n *shardNode) seen(s queueStatus, found bool, dues int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if found {
		n.applyStatus(s, dues)
	} else {
		n.times.look = time.Time{}
		pg.Signal(n.rearm)
	}
	n.node.changed()
}

// lookedAt returns the parts to poll: none without Consumers, and no partitions of other
// nodes. If there are none, others has one part, whose queue is only checked for existence.
func (n *Node) lookedAt() (all []looked, others []*shardNode) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, nil
	}
	for _, p := range n.parts {
		if len(n.consumers) > 0 && p.looks() {
			all = append(all, looked{p, p.queue.id, p.head, p.times.noted})
		}
	}
	if len(all) == 0 {
		others = n.parts[:1]
	}
	return all, others
}

// applyStatus applies the status of the queue, which does not know of due times that
// were noted after the first dues. The caller holds mu.
func (n *shardNode) applyStatus(s queueStatus, dues int) {
	now := time.Now()
	n.dbNow, n.heardAt = s.now, now // at least as late now
	n.node.queue.nowHas(s.maxAttempts, s.retryMin, s.retryMax)
	if s.head != nil {
		n.head = max(n.head, *s.head)
	}
	if n.times.noted == dues {
		n.times.due = time.Time{}
	}
	if s.due != nil {
		n.times.due = earliest(n.times.due, now.Add(max(0, s.due.Sub(s.now))))
	}
	if s.last == nil || *s.last != n.state.seen || len(n.expired(now)) > 0 {
		n.times.look = time.Time{}
	}
	n.wantMore()
	pg.Signal(n.rearm)
}

// looks reports whether the part has a reason to read its journal.
func (n *shardNode) looks() bool { return n.partition == nil || n.partition.ours }

// wakeUp makes all parts read the journal and the stream now, because there was
// no Consumer for some time. The caller holds mu.
func (n *Node) wakeUp() {
	for _, p := range n.parts {
		p.times.look, p.times.poll = time.Time{}, time.Time{}
	}
	n.rearm()
	pg.Signal(n.members)
}
