package queue

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/stream"
)

// maxPage is the maximum number of messages of one read.
const maxPage = 1000

// read reads the messages of the positions that the part has claimed, until ctx ends.
func (n *shardNode) read(ctx context.Context) {
	var changed <-chan struct{}
	if n.cfg.Hub != nil {
		n.follower = n.cfg.Hub.Follow(n.queue.stream)
		defer n.follower.Close()
		changed = n.follower.Changed()
	}
	for failed := 0; ; {
		select {
		case <-n.readNow:
		case <-changed:
		case <-ctx.Done():
			return
		}
		more, err := true, error(nil)
		for more && ctx.Err() == nil {
			if err = n.readDeferred(ctx); err == nil {
				more, err = n.readOnce(ctx)
			}
			if err == nil {
				failed = 0
				continue
			}
			if ctx.Err() != nil {
				return
			}
			if !n.retry(err) {
				n.node.fail(n.queue.explain("read", err))
				return
			}
			n.cfg.Log.Warn("messages of the queue not read, trying again", "queue", n.queue.Name(), "error", err)
			pg.Backoff(ctx, failed) // its error is ctx's
			failed++
			more = true
		}
	}
}

// readOnce reads one page, and reports whether there may be more.
func (n *shardNode) readOnce(ctx context.Context) (more bool, err error) {
	n.mu.Lock()
	token, waits := n.token, len(n.node.consumers) > 0 && !n.node.closed && n.looks()
	if len(n.unread) == 0 || n.readyBytes >= n.cfg.BufferBytes {
		idle := len(n.unread) == 0 && waits && n.demand(time.Now()) > n.atHand()
		n.mu.Unlock()
		if !idle {
			return false, nil
		}
		if n.follower != nil {
			n.sawHead(n.follower.End())
		}
		if !n.asks() {
			return false, nil
		}
		return false, n.asked(n.readHead(ctx))
	}
	first, limit, stored := n.unread[0], n.pageSize(), n.unread[0].lo <= n.head
	n.mu.Unlock()
	limit = int(min(int64(limit), first.size()))
	msgs, ask := n.recent(first.lo-1, limit)
	if len(msgs) == 0 {
		if !ask && !stored {
			return false, nil
		}
		ctx, cancel := context.WithTimeout(ctx, n.cfg.Timeout)
		defer cancel()
		var full bool
		msgs, full, err = n.queue.readPage(ctx, first.lo-1, limit, readBytes)
		if old, gone := errors.AsType[*stream.TooOldError](err); gone {
			n.heardGone(token, old.Oldest)
			return true, nil
		}
		if err == nil && full { // there may be more messages than were claimed, and no further notice comes
			err = n.readHead(ctx)
		}
		if n.asked(err) != nil {
			return false, err
		}
	}
	return n.heardMessages(token, first.lo, msgs, limit), nil
}

// recent returns messages after that position that are in memory, and whether PostgreSQL has
// to be queried.
func (n *shardNode) recent(after int64, limit int) (msgs []stream.Message, ask bool) {
	if n.follower == nil {
		return nil, true
	}
	msgs, ask = n.follower.Recent(after, limit)
	n.doubtful = n.doubtful || ask
	return msgs, n.asks()
}

// asks reports whether PostgreSQL has to be queried for new messages: messages were enqueued
// that are not in memory, or the poll is due.
func (n *shardNode) asks() bool {
	if n.follower == nil {
		return true
	}
	n.doubtful = n.follower.Hinted() || n.doubtful
	n.mu.Lock()
	defer n.mu.Unlock()
	n.doubtful = n.doubtful || n.polls
	n.polls = false
	return n.doubtful
}

// asked notes that PostgreSQL has answered, unless err says that it has not.
func (n *shardNode) asked(err error) error {
	n.doubtful = err != nil
	return err
}

// pageSize is how many messages to read at once: about as many as the buffer
// has room for, by the average size of the last read. The caller holds mu.
func (n *shardNode) pageSize() int {
	if n.average == 0 {
		return maxPage / 10
	}
	return max(1, min(maxPage, (n.cfg.BufferBytes-n.readyBytes)/n.average))
}

// readHead reads where the stream ends, for a Node that has nothing to read.
func (n *shardNode) readHead(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Timeout)
	defer cancel()
	head, err := n.queue.stream.Head(ctx)
	if err != nil {
		return err
	}
	n.sawHead(head)
	return nil
}

// sawHead notes that head is the last position of the stream, or a later one is.
func (n *shardNode) sawHead(head int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.head = max(n.head, head)
	n.wantMore()
}

// wantMore starts a read or a claim, if there is something to get and Consumers
// want it. The caller holds mu.
func (n *shardNode) wantMore() {
	if n.node.closed {
		return
	}
	if len(n.unread) > 0 && n.unread[0].lo <= n.head && n.readyBytes < n.cfg.BufferBytes {
		pg.Signal(n.readNow)
	}
	now := time.Now()
	if !n.nudged && (n.wantsLease(now) || n.token != 0 && n.wantsClaim(now)) {
		n.nudge()
	}
}

// wantsClaim reports whether there is something to claim.
func (n *shardNode) wantsClaim(now time.Time) bool {
	var r request
	n.planClaims(&r, now)
	return !r.empty()
}

// heardMessages makes the messages ready that were read from position from on,
// at most limit. Positions without a message that are lower than the last one
// stay empty. It reports whether there may be more to read.
func (n *shardNode) heardMessages(token, from int64, msgs []stream.Message, limit int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if token != n.token {
		return true // the lease is another one, and so are our positions
	}
	if len(msgs) == 0 {
		return false
	}
	last := msgs[len(msgs)-1].Position
	n.head = max(n.head, last)
	bytes := 0
	for _, m := range msgs {
		bytes += len(m.Payload)
	}
	n.average = bytes/len(msgs) + 100
	n.noteEmpty(from, msgs)
	var rest []segment
	for _, g := range n.unread { // parts of it may have been released meanwhile
		part := g.over(span{max(g.lo, from), min(g.hi, last)})
		if part.lo > part.hi {
			rest = append(rest, g)
			continue
		}
		if g.lo < part.lo {
			rest = append(rest, g.over(span{g.lo, part.lo - 1}))
		}
		if g.hi > part.hi {
			rest = append(rest, g.over(span{part.hi + 1, g.hi}))
		}
		msgs = n.fill(part, msgs)
	}
	n.unread = rest
	n.times.busy = time.Now()
	n.node.changed()
	return len(n.unread) > 0 && n.unread[0].lo <= n.head
}

// noteEmpty remembers the largest range of positions between messages: they hold no message, and
// never will.
func (n *shardNode) noteEmpty(from int64, msgs []stream.Message) {
	var most span
	for _, m := range msgs {
		if s := (span{from, m.Position - 1}); s.size() > most.size() {
			most = s
		}
		from = m.Position + 1
	}
	both := coalesce([]span{n.empty, most})
	switch last := both[len(both)-1]; {
	case len(both) == 1:
		n.empty = last
	case most.size() >= n.empty.size(), n.state.done(n.empty.hi):
		n.empty = most
	}
}

// heardGone marks the positions before oldest as done: their messages were
// dropped from the stream, by a retention policy that existed before the stream
// became a queue's.
func (n *shardNode) heardGone(token, oldest int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.head = max(n.head, oldest-1)
	if token != n.token {
		return
	}
	var rest []segment
	gone := int64(0)
	for _, g := range n.unread {
		if lost := (span{g.lo, min(g.hi, oldest-1)}); lost.lo <= lost.hi {
			n.pending.gaps = append(n.pending.gaps, lost)
			gone += lost.size()
			g.lo = lost.hi + 1
		}
		if g.lo <= g.hi {
			rest = append(rest, g)
		}
	}
	n.unread = rest
	n.later(0)
	n.cfg.Log.Warn("messages were dropped from the stream before they were delivered", "queue", n.queue.Name(), "positions", gone, "oldest", oldest)
	n.node.changed()
}

// fill makes the messages of a segment ready and returns those after it.
func (n *shardNode) fill(g segment, msgs []stream.Message) []stream.Message {
	at := g.lo
	gap := func(to int64) {
		if at <= to {
			n.pending.gaps = append(n.pending.gaps, span{at, to})
			n.later(n.cfg.LaterEvery)
		}
	}
	for len(msgs) > 0 && msgs[0].Position <= g.hi {
		m := msgs[0]
		msgs = msgs[1:]
		if m.Position < at {
			continue // released meanwhile
		}
		gap(m.Position - 1)
		at = m.Position + 1
		n.arrive(&item{Message: m, token: n.token, tally: g.tally, recorded: g.tally, suspect: g.suspect})
	}
	gap(g.hi)
	return msgs
}

// arrive makes a message ready, or defers it until it is due. A message whose
// key orders it keeps its place instead, and waits in memory.
func (n *shardNode) arrive(it *item) {
	now := n.dbNow.Add(time.Since(n.heardAt))
	if n.buryLarge(it) {
		return
	}
	due := dueTime(it.Headers)
	switch {
	case !due.After(now):
	case n.keeps(it):
		it.rest = time.Now().Add(due.Sub(now))
	default:
		later := due // only a deferred message allocates its due time
		put := it.put()
		put.Due = &later
		n.pending.settled = append(n.pending.settled, &settlement{item: it, put: put})
		n.later(n.cfg.LaterEvery)
		return
	}
	n.queueUp(it)
}

// held is about how much memory an item takes.
func (it *item) held() int { return len(it.Payload) + len(it.Headers) + len(it.Key) + 200 }

// shed releases the messages for which the Consumers have no credits any more,
// from the end, which would be delivered last. The caller holds mu.
func (n *shardNode) shed(now time.Time) {
	if n.token == 0 || n.partition != nil { // no other node could deliver messages of our partition
		return
	}
	demand := n.demand(now)
	n.shedUnread(n.ahead()-min(demand, int64(n.cfg.Ahead)), n.head+1, math.MaxInt64)
	surplus := n.shedUnread(n.atHand()-demand, 0, n.head)
	for _, list := range []*[]*item{&n.ready, &n.again} {
		for ; surplus > 0 && len(*list) > 0; surplus-- {
			it := (*list)[len(*list)-1]
			*list = (*list)[:len(*list)-1]
			n.readyBytes -= it.held()
			n.giveBack(it)
		}
	}
}

// shedUnread releases up to surplus positions from lo to hi that were not read,
// and returns how much of the surplus is left.
func (n *shardNode) shedUnread(surplus, lo, hi int64) int64 {
	for i := len(n.unread) - 1; i >= 0 && surplus > 0; i-- {
		g := n.unread[i]
		cut := span{max(g.lo, lo), min(g.hi, hi)}
		if cut.lo > cut.hi {
			continue
		}
		cut.lo = max(cut.lo, cut.hi-surplus+1)
		surplus -= cut.size()
		n.pending.free = append(n.pending.free, g.over(cut))
		var rest []segment
		for _, part := range subtract([]span{g.span}, []span{cut}) {
			rest = append(rest, g.over(part))
		}
		n.unread = slices.Replace(n.unread, i, i+1, rest...)
		n.later(0)
	}
	return surplus
}

// giveBack releases one message, to be delivered by any node. The caller holds
// mu.
func (n *shardNode) giveBack(it *item) {
	if it.token != n.token {
		return
	}
	if it.deferred {
		n.pending.settled = append(n.pending.settled, &settlement{item: it, put: it.put()})
	} else {
		n.pending.free = append(n.pending.free, segment{span: span{it.Position, it.Position}, tally: it.tally})
	}
	n.later(0)
}
