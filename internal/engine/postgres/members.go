package postgres

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/stream"
)

// parkedEvery is how often a member looks whether the offset of a parked partition was moved.
const parkedEvery = 3 * time.Second

// member is engine.Membership on a stream.Member. Each partition has a goroutine that waits until there may be
// messages; Poll reads one partition after the other, so that a member holds one page, however many partitions it
// owns.
type member struct {
	ready  chan struct{} // one slot
	leave  context.CancelFunc
	left   chan struct{} // closed when all partitions are given back
	share  *stream.Member
	failed error // why it has ended; set before left is closed

	mu      sync.Mutex
	owned   map[int]*ownedPart
	changes []engine.Share // not polled yet
	waiting []*ownedPart   // may have messages, in the order of their turns
}

// ownedPart is a partition that a member owns.
type ownedPart struct {
	*stream.Owned
	ctx  context.Context      // ends when it is not owned any more
	sub  *stream.Subscription // Wait and TryNext are called in turn: see read
	turn chan error           // the result of Poll: nil if there is nothing more for now
	// moved is signalled when the offset of the group was moved.
	moved chan struct{} // one slot
	told  bool          // its Assigned was polled
}

// Join implements engine.Streams.
func (s *streams) Join(ctx context.Context, name, group string) (engine.Membership, error) {
	found, err := s.finder.find(ctx, name)
	if err != nil {
		return nil, engineError(err)
	}
	m := &member{ready: make(chan struct{}, 1), left: make(chan struct{}), owned: make(map[int]*ownedPart)}
	m.share, err = s.groups.Join(ctx, s.hub, found, group, stream.MemberConfig{Own: m.own, Lease: s.lease, Log: s.log})
	if err != nil {
		return nil, engineError(err)
	}
	s.joining.Lock()
	defer s.joining.Unlock()
	if s.work.Err() != nil {
		return nil, stream.ErrClosed
	}
	var work context.Context
	work, m.leave = context.WithCancel(s.work)
	s.followers.Go(func() { m.run(work) })
	return m, nil
}

// awaitFollowers waits for the users of the hub. After work has ended, no member begins.
func (s *streams) awaitFollowers() {
	s.joining.Lock()
	defer s.joining.Unlock()
	s.followers.Wait()
}

// run is a member until it leaves.
func (m *member) run(ctx context.Context) {
	err := m.share.Run(ctx)
	if err == nil {
		err = stream.ErrClosed
	}
	m.failed = err
	close(m.left)
	pg.Signal(m.ready)
}

// own reads one partition as long as this member owns it.
func (m *member) own(ctx context.Context, owned *stream.Owned) error {
	p := &ownedPart{Owned: owned, ctx: ctx, turn: make(chan error, 1), moved: make(chan struct{}, 1)}
	defer m.drop(p)
	for begun := false; ; begun = true {
		sub, err := owned.Subscribe(ctx)
		if err != nil {
			return err
		}
		p.sub = sub
		if !begun {
			m.change(p, engine.Share{Assigned: []engine.PartitionAt{{Partition: p.Number, Position: sub.Position()}}})
		}
		err = m.read(p)
		sub.Close()
		if old, is := errors.AsType[*stream.TooOldError](err); is {
			m.change(p, engine.Share{Parked: &engine.Parked{Partition: p.Number, Oldest: old.Oldest}})
			err = p.park(func(offset int64) bool { return offset != sub.Position() })
		}
		if large, is := errors.AsType[*stream.TooLargeError](err); is {
			m.change(p, engine.Share{Parked: &engine.Parked{
				Partition: p.Number, Oldest: large.Position + 1, TooLarge: &engine.TooLargeError{Position: large.Position, Size: large.Size},
			}})
			err = p.park(func(offset int64) bool { return offset >= large.Position })
		}
		if err != nil {
			return err
		}
	}
}

// park waits until the offset of the group was moved to where messages go on.
func (p *ownedPart) park(goesOn func(offset int64) bool) error {
	for {
		select {
		case <-p.moved:
		case <-time.After(parkedEvery):
		case <-p.ctx.Done():
			return p.ctx.Err()
		}
		sub, err := p.Subscribe(p.ctx)
		if err != nil {
			return err
		}
		sub.Close()
		if goesOn(sub.Position()) {
			return nil
		}
	}
}

// read takes turns for a partition until reading fails. Only one of this goroutine and Poll uses the subscription
// at a time.
func (m *member) read(p *ownedPart) error {
	for {
		if err := p.sub.Wait(p.ctx); err != nil {
			return err
		}
		m.mu.Lock()
		m.waiting = append(m.waiting, p)
		m.mu.Unlock()
		pg.Signal(m.ready)
		select {
		case err := <-p.turn:
			if err != nil {
				return err
			}
		case <-p.ctx.Done():
			return m.withdraw(p)
		}
	}
}

// withdraw takes back a turn. If Poll is using the subscription, it waits for its end.
func (m *member) withdraw(p *ownedPart) error {
	m.mu.Lock()
	i := slices.Index(m.waiting, p)
	if i >= 0 {
		m.waiting = slices.Delete(m.waiting, i, i+1)
	}
	m.mu.Unlock()
	if i < 0 {
		<-p.turn
	}
	return p.ctx.Err()
}

// change notes a change of a partition.
func (m *member) change(p *ownedPart, what engine.Share) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.owned[p.Number] = p
	m.changes = append(m.changes, what)
	pg.Signal(m.ready)
}

// drop notes that a partition is not owned any more. If nobody was told that it was, nobody is told.
func (m *member) drop(p *ownedPart) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.owned[p.Number] != p {
		return
	}
	delete(m.owned, p.Number)
	if p.told {
		m.changes = append(m.changes, engine.Share{Revoked: []int{p.Number}})
		pg.Signal(m.ready)
		return
	}
	m.changes = slices.DeleteFunc(m.changes, func(c engine.Share) bool {
		return c.Parked != nil && c.Parked.Partition == p.Number || len(c.Assigned) > 0 && c.Assigned[0].Partition == p.Number
	})
}

// Ready implements engine.Membership.
func (m *member) Ready() <-chan struct{} { return m.ready }

// Poll implements engine.Membership.
func (m *member) Poll(ctx context.Context, most int) (engine.Share, error) {
	for ctx.Err() == nil {
		if changes := m.pollChanges(); !changes.Empty() {
			return changes, nil
		}
		select {
		case <-m.left:
			return engine.Share{}, engineError(m.failed)
		default:
		}
		if most == 0 {
			return engine.Share{}, nil
		}
		p := m.nextTurn()
		if p == nil {
			return engine.Share{}, nil
		}
		if page := m.take(ctx, p, most); len(page) > 0 {
			return engine.Share{Partition: p.Number, Messages: engineMessages(page)}, nil
		}
	}
	return engine.Share{}, ctx.Err()
}

// pollChanges returns the first changes of one kind, together.
func (m *member) pollChanges() (all engine.Share) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, c := range m.changes {
		switch {
		case len(c.Assigned) > 0 && len(all.Revoked) == 0:
			all.Assigned = append(all.Assigned, c.Assigned...)
			m.owned[c.Assigned[0].Partition].told = true
		case len(c.Revoked) > 0 && len(all.Assigned) == 0:
			all.Revoked = append(all.Revoked, c.Revoked...)
		case c.Parked != nil && n == 0:
			all, n = c, 1
			m.changes = m.changes[n:]
			return all
		default:
			m.changes = m.changes[n:]
			return all
		}
		n++
	}
	m.changes = nil
	return all
}

// nextTurn returns the partition whose turn it is, or nil.
func (m *member) nextTurn() *ownedPart {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.waiting) == 0 {
		return nil
	}
	p := m.waiting[0]
	m.waiting = m.waiting[1:]
	return p
}

// take reads a page of a partition, and gives its turn back. A page of a partition that was lost meanwhile is
// dropped: its next owner gets it.
func (m *member) take(ctx context.Context, p *ownedPart, most int) []stream.Message {
	reading, stop := context.WithCancel(p.ctx)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	page, err := p.sub.TryNext(reading, most)
	if err != nil && ctx.Err() != nil && p.ctx.Err() == nil {
		err = nil // the subscription can go on
	}
	valid := p.Valid() && p.ctx.Err() == nil
	p.turn <- err
	if !valid {
		return nil
	}
	return page
}

// partition returns a partition that the member owns, or nil.
func (m *member) partition(n int) *ownedPart {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.owned[n]; p != nil && p.told && p.Valid() {
		return p
	}
	return nil
}

// Commit implements engine.Membership.
func (m *member) Commit(ctx context.Context, partition int, position int64) (int64, error) {
	p := m.partition(partition)
	if p == nil {
		return 0, engine.ErrFenced
	}
	offset, err := p.Commit(ctx, position)
	pg.Signal(p.moved)
	return offset, engineError(err)
}

// CommitLater implements engine.Membership.
func (m *member) CommitLater(partition int, position int64) error {
	p := m.partition(partition)
	if p == nil {
		return engine.ErrFenced
	}
	p.CommitLater(position)
	return nil
}

// Close implements engine.Membership.
func (m *member) Close() {
	m.leave()
	<-m.left
}
