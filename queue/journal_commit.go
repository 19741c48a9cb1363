package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
)

// commit writes to the journal until nothing is left to write. Only this
// goroutine writes to the journal, and reads it.
//
// If no answer to a request came, the next request settles it: it has the same
// batch again, and is rejected as stale if the first one was written. If it is
// not rejected, the first one will never be written. Until then the batch is in
// doubt.
func (n *shardNode) commit(ctx context.Context, b *batch) {
	doubt := false
	lock := n.lockWait()
	for failed, slowed := 0, false; ; {
		if err := n.beforeTakeover(ctx); err != nil {
			n.cfg.Log.Warn("end of the queue's stream not read before a takeover", "queue", n.queue.Name(), "error", err)
		}
		n.mu.Lock()
		sent := time.Now()
		r, due := n.plan(b, sent, doubt)
		n.mu.Unlock()
		r.doubt = doubt
		if !due {
			break
		}
		if n.writeBackoff.on() && !slowed && b.empty() {
			if slowed = n.slow(ctx); slowed {
				continue
			}
			break // the next call has what is to be recorded
		}
		slowed = false
		unsent := ctx.Err() != nil
		a, err := n.send(ctx, r, &lock)
		if err == nil {
			failed, lock = 0, n.lockWait()
			if err = n.heard(b, r, a, sent, doubt); err == nil {
				doubt = false
				n.rotate(ctx)
				continue
			}
		}
		if ctx.Err() != nil || !n.retry(err) {
			n.giveUp(ctx, b, err, doubt || ctx.Err() != nil && !unsent)
			break
		}
		if lock.GoesOn(err) {
			continue
		}
		doubt = true
		n.cfg.Log.Warn("journal not written, trying again", "queue", n.queue.Name(), "error", err)
		n.freeLock(ctx, err)
		pg.Backoff(ctx, failed) // its error is ctx's, which the next send returns
		failed++
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nudged = false
	pg.Signal(n.rearm)
}

func (n *shardNode) lockWait() pg.LockWait {
	return pg.LockWait{Bound: n.cfg.Timeout, AtATime: min(lockPatience, n.cfg.Timeout)}
}

// send makes the request on one of the connections that all writers share: if possible,
// together with the requests of other queues.
func (n *shardNode) send(ctx context.Context, r request, lock *pg.LockWait) (*answer, error) {
	if n.alone && r.plain() && time.Now().After(n.aloneUntil) {
		ctx, cancel := context.WithTimeout(ctx, n.cfg.Timeout)
		defer cancel()
		a, finished, err := n.recorder.record(ctx, n.queue, r)
		if a != nil || err != nil {
			return a, err
		}
		defer finished()
	}
	a, err := n.sendAlone(ctx, r, lock)
	if pg.Code(err) == pg.CodeLockNotAvailable {
		n.aloneUntil = time.Now().Add(aloneFor)
	}
	return a, err
}

// aloneFor is for how long a queue writes alone after it had to wait for a lock:
// together with others, it would delay them each time.
const aloneFor = 10 * time.Second

// sendAlone makes the request in a separate transaction.
func (n *shardNode) sendAlone(ctx context.Context, r request, lock *pg.LockWait) (*answer, error) {
	if err := lock.Hold(ctx, &n.on); err != nil {
		return nil, err
	}
	defer n.on.Release()
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Timeout)
	defer cancel()
	s := n.on.Session()
	if err := s.Connect(ctx); err != nil {
		return nil, err
	}
	a, err := n.sendBy(ctx, bySession(s, lock.Next()), r)
	if err != nil {
		err = s.Recover(ctx, err)
	}
	return a, err
}

// sendBy uses record, which is cheaper, if no other node has written to the journal
// recently: when nodes write in turn, record would fail every time.
func (n *shardNode) sendBy(ctx context.Context, by line, r request) (*answer, error) {
	if n.alone && r.plain() {
		if a, err := n.queue.record(ctx, by, r); a != nil || err != nil {
			return a, err
		}
	}
	a, err := n.queue.write(ctx, by, r)
	if err == nil {
		n.alone = !slices.ContainsFunc(a.news, func(e entry) bool { return e.token != r.own })
	}
	return a, err
}

// freeLock ends a session of Tidewire that holds the queue's lock and waits for
// a frozen client. If this fails, the next attempt fails too.
func (n *shardNode) freeLock(ctx context.Context, err error) {
	if pg.Code(err) != pg.CodeLockNotAvailable {
		return
	}
	ended, err := pg.FreeLock(ctx, n.queue.pool, -n.queue.id, n.cfg.Timeout)
	if ended || err != nil {
		n.cfg.Log.Warn("queue lock held too long", "queue", n.queue.Name(), "ended", ended, "error", err)
	}
}

// beforeTakeover reads the end of the stream: positions of a dead node after it
// had no message that could be delivered, so they do not become suspect.
func (n *shardNode) beforeTakeover(ctx context.Context) error {
	n.mu.Lock()
	due := len(n.node.consumers) > 0 && !n.finishing && len(n.expired(time.Now())) > 0
	n.mu.Unlock()
	if !due {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Timeout)
	defer cancel()
	head, err := n.queue.stream.Head(ctx)
	if err == nil {
		n.sawHead(head)
	}
	return err
}

// giveUp answers the settlements that will not be recorded, or not in time. Those that are not in
// doubt are not recorded; if the queue was dropped they get ErrLeaseLost.
func (n *shardNode) giveUp(ctx context.Context, b *batch, err error, doubt bool) {
	if ctx.Err() == nil {
		err = n.queue.explain("write to", err)
		n.node.fail(err)
	} else if cause := context.Cause(ctx); errors.Is(cause, ErrNotFound) {
		err = cause
	} else {
		doubt = true
	}
	if doubt {
		err = errors.Join(ErrOutcomeUnknown, err)
	} else if errors.Is(err, ErrNotFound) {
		err = fmt.Errorf("%w: %w", ErrLeaseLost, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	b.take(&n.pending)
	b.resolve(func(*settlement) (error, bool) { return err, true })
	b.clear()
}

// heard applies the answer to a request.
func (n *shardNode) heard(b *batch, r request, a *answer, sent time.Time, doubt bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a.outcome == lost {
		return n.loadAnew(b, a)
	}
	before, last := spansOf(n.state.owned(r.own)), n.state.last[r.own].sequence
	effect := !b.empty() && a.outcome != stale || changesLeases(r.own, a.news)
	for _, e := range a.news {
		if err := n.state.apply(e); err != nil {
			return err
		}
	}
	n.dbNow, n.heardAt = a.now, time.Now() // PostgreSQL's clock is at least this far now
	switch {
	case a.outcome == written || a.outcome == conflicting:
		n.said(b)
		n.leased(r, sent)
	case doubt && n.state.last[r.own].sequence > last:
		n.said(b) // by an earlier attempt
	}
	if a.outcome == leaseOver || n.ended() {
		n.lose(b)
	}
	effect = n.adopt(before) || effect
	effect = n.heardDeferred(a) || effect
	if r.writes() {
		n.writeBackoff.note(effect)
	}
	n.times.heard(a, n.cfg)
	n.node.changed()
	return nil
}

// loadAnew applies the whole journal, after a failover has lost rows that were read. The claims of the Node are void:
// the journal says which node has the messages now. The caller holds mu.
func (n *shardNode) loadAnew(b *batch, a *answer) error {
	n.cfg.Log.Error("a failover has lost rows of the journal: the messages that they acknowledged or claimed are delivered again, unless they were lost too",
		"queue", n.queue.Name(), "entry", n.state.seen)
	n.lose(b)
	for _, e := range a.news {
		if err := n.state.apply(e); err != nil {
			return err
		}
	}
	n.dbNow, n.heardAt = a.now, time.Now()
	n.polls, n.times.look = true, time.Time{}
	n.node.changed()
	return nil
}

// changesLeases reports whether a lease ended, or that of own began or was renewed.
func changesLeases(own int64, news []entry) bool {
	return slices.ContainsFunc(news, func(e entry) bool {
		return e.kind == kindEnd || e.kind == kindLease && e.token == own
	})
}

// said answers the batch once it is written.
func (n *shardNode) said(b *batch) {
	now := time.Now()
	b.resolve(func(s *settlement) (error, bool) {
		if s.item.deferred {
			delete(n.deferred, s.item.Position)
		}
		if s.put == nil || s.put.Dead {
			n.keyDone(s.item)
		}
		switch {
		case s.put == nil:
		case s.put.Dead:
			n.node.stats.DeadLettered++
		default:
			n.times.dueBy(s.put, now)
		}
		return nil, true
	})
	for _, t := range b.tried {
		n.tried(t)
	}
	for _, g := range b.free {
		n.node.stats.Released += n.filled(g.span)
	}
	b.clear()
}

// leased updates the lease once a request is written.
func (n *shardNode) leased(r request, sent time.Time) {
	if r.own == 0 {
		return
	}
	if _, lasts := n.state.leases[r.own]; n.partition != nil && !lasts && !r.ends() { // another node has the partition's lease
		n.drop()
		return
	}
	for _, e := range r.entries {
		if e.kind == kindLease || e.kind == kindLeaseExclusive {
			// Measured from before the request was sent, so that the lease ends here before
			// it ends in the database. Renewals have jitter, so that queues that began at the
			// same time do not renew at the same time.
			n.deadline, n.renewAt = sent.Add(n.cfg.Lease), sent.Add(pg.Jitter(n.cfg.Lease/3))
		}
	}
	if r.ends() {
		n.drop()
	}
}

// ended reports whether another node ended the lease.
func (n *shardNode) ended() bool {
	_, lasts := n.state.leases[n.token]
	return n.token != 0 && !n.deadline.IsZero() && !lasts
}

// adopt adds the positions that the Node has claimed since before, and reports
// whether there are any.
func (n *shardNode) adopt(before []span) bool {
	if n.token == 0 {
		return false
	}
	fresh := subtract(spansOf(n.state.owned(n.token)), before)
	if len(fresh) == 0 {
		return false
	}
	for _, s := range fresh {
		n.node.stats.Claimed += n.filled(s)
		for at := s.lo; at <= s.hi; {
			g, _ := n.state.find(at)
			part := g.over(span{at, min(g.hi, s.hi)})
			n.unread = insertSegment(n.unread, part)
			at = part.hi + 1
		}
	}
	n.times.busy = time.Now()
	pg.Signal(n.readNow)
	return true
}

// lose voids everything that the part has claimed. The settlements in the batch
// will not be recorded.
func (n *shardNode) lose(b *batch) {
	n.cfg.Log.Warn("lease on a queue lost, its deliveries are void", "queue", n.queue.Name(), "delivered", len(n.flight))
	for d := range n.flight {
		n.void(d)
	}
	b.resolve(func(*settlement) (error, bool) { return ErrLeaseLost, true })
	b.clear()
	n.drop()
}

// drop forgets everything that belonged to the lease.
func (n *shardNode) drop() {
	n.token, n.deadline, n.renewAt = 0, time.Time{}, time.Time{}
	n.unread, n.ready, n.again, n.readyBytes, n.fetch = nil, nil, nil, 0, nil
	n.fetching, n.recordingFirst = 0, 0
	clear(n.deferred)
	if n.partition != nil {
		n.partition.clear()
		n.partition.giveBack()
	}
	n.rejectOtherLeases(&n.pending)
	n.pending.clear()
}
