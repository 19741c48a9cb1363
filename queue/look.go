package queue

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// rarely is how many times less often the parts of a family look by themselves,
// all together.
const rarely = 16

// familyConfig is what the parts of a family of so many go by.
func familyConfig(c NodeConfig, members int) *NodeConfig {
	less := time.Duration(rarely * members)
	c.Look, c.Poll = less*c.Look, less*c.Poll
	c.BufferBytes = max(c.BufferBytes/members, 256<<10)
	return &c
}

// look looks at all parts of a family in one query, as often as a Node looks, or
// polls if that is more often, so that a family at rest costs no more than an
// ordinary queue. A part whose journal has grown then looks by itself.
func (n *Node) look(ctx context.Context) {
	every := min(n.cfg.Look, n.cfg.Poll)
	timer := time.NewTimer(jitter(every))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if err := n.lookOnce(ctx); err != nil && ctx.Err() == nil {
			n.cfg.Log.Warn("queue not looked at, trying again", "queue", n.queue.name, "error", err)
		}
		timer.Reset(jitter(every))
	}
}

// sight is how one part stands, as look_at_queues tells it.
type sight struct {
	id   int32
	last *int64     // row of the journal
	due  *time.Time // of the next message aside
	head *int64     // of the stream, if it is another
	now  time.Time  // PostgreSQL's clock
}

func (n *Node) lookOnce(ctx context.Context) error {
	ids, heads := n.lookedAt()
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Timeout)
	defer cancel()
	rows, err := n.queue.pool.Query(ctx, lookSQL, ids, heads)
	if err != nil {
		return err
	}
	sights, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s sight, err error) {
		return s, row.Scan(&s.id, &s.last, &s.due, &s.head, &s.now)
	})
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range sights {
		for _, p := range n.parts {
			if p.queue.id == s.id {
				p.saw(s)
			}
		}
	}
	n.changed()
	return nil
}

// lookedAt returns what there is to look at: nothing without Consumers, and no
// lanes of others.
func (n *Node) lookedAt() (ids []int32, heads []int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.consumers) == 0 {
		return nil, nil
	}
	for _, p := range n.parts {
		if p.looks() {
			ids, heads = append(ids, p.queue.id), append(heads, p.head)
		}
	}
	return ids, heads
}

// saw takes in a sight. The caller holds mu.
func (n *part) saw(s sight) {
	now := time.Now()
	n.dbNow, n.heardAt = s.now, now // at least as late now
	if s.head != nil {
		n.head = max(n.head, *s.head)
	}
	n.times.due = time.Time{}
	if s.due != nil {
		n.times.due = now.Add(max(0, s.due.Sub(s.now)))
	}
	if s.last == nil || *s.last > n.state.seen || len(n.expired(now)) > 0 {
		n.times.look = time.Time{}
	}
	n.wantMore()
	signal(n.rearm)
}

// looks reports whether the part has a reason to look at its journal.
func (n *part) looks() bool { return n.lane == nil || n.lane.ours }

// wakeUp has all parts look and read now: there was no Consumer for long. The
// caller holds mu.
func (n *Node) wakeUp() {
	for _, p := range n.parts {
		p.times.look, p.times.poll = time.Time{}, time.Time{}
	}
	n.rearm()
	signal(n.members)
}
