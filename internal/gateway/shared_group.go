package gateway

import (
	"context"
	"errors"
	"slices"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/wire"
	"github.com/tidewire/tidewire/websocket"
)

// memberSource is the source of a subscription that is a member of a group whose members share the partitions of a
// stream.
type memberSource struct {
	engine.Membership
	sub       *subscriber
	stream    string
	filter    *filter
	unsent    unsent
	partition int   // of what is unsent
	held      int64 // bytes of memory for the partitions
}

// Position implements source: there is one position for each partition.
func (f *memberSource) Position() int64 { return -1 }

// follow sends changes at once, and messages as there are credits for them.
func (f *memberSource) follow() error {
	for {
		busy, err := f.step()
		if err != nil {
			return err
		}
		if busy {
			continue
		}
		select {
		case <-f.Ready():
		case <-f.sub.credits.more:
		case <-f.sub.ctx.Done():
			return f.sub.ctx.Err()
		}
	}
}

// step does what there is to do, and reports whether there was something.
func (f *memberSource) step() (busy bool, err error) {
	most := f.sub.credits.some(maxBatch)
	sent := 0
	defer func() { f.sub.credits.giveBack(most - sent) }()
	if most > 0 {
		if err := f.sub.session.conn.admit(f.sub.ctx); err != nil {
			return false, err
		}
	}
	wanted := most
	switch {
	case len(f.unsent.messages) > 0:
		wanted = 0
	case most > 0 && f.filter != nil:
		wanted = maxBatch
	}
	share, err := f.Poll(f.sub.ctx, wanted)
	switch {
	case err != nil:
		return false, err
	case len(share.Messages) > 0:
		f.partition = share.Partition
		f.unsent.fill(share.Messages, f.filter)
	case !share.Empty():
		return true, f.tell(share)
	case len(f.unsent.messages) == 0 || most == 0:
		return false, nil
	}
	sent, err = f.send(most)
	return true, err
}

// send sends messages that were read, at most most.
func (f *memberSource) send(most int) (sent int, err error) {
	messages := f.unsent.take(most)
	p := page{size: len(messages), passed: f.unsent.passed(messages), write: func(w *wire.Writer, n int) {
		writeOf(w, f.stream, f.sub.name, f.partition, &messages[n])
	}}
	for i := range messages {
		p.bytes += messageBytes(&messages[i])
	}
	return p.size, f.sub.passing.after(f.partition, p.passed, func() error { return f.sub.send(&p) })
}

// tell tells the client a change of the partitions that it owns.
func (f *memberSource) tell(share engine.Share) error {
	memory := f.sub.session.conn.memory
	w := wire.Writer{Encoding: f.sub.encoding}
	switch {
	case len(share.Assigned) > 0:
		n := int64(len(share.Assigned)) * followOverhead
		memory.Take(budget.Follow, n)
		f.held += n
		writeAssigned(&w, f.stream, f.sub.name, share.Assigned)
	case len(share.Revoked) > 0:
		n := int64(len(share.Revoked)) * followOverhead
		memory.Release(budget.Follow, n)
		f.held -= n
		if slices.Contains(share.Revoked, f.partition) {
			f.unsent.drop() // its next owner gets it
		}
		for _, partition := range share.Revoked {
			f.sub.passing.forget(partition)
		}
		writeRevoked(&w, f.stream, f.sub.name, share.Revoked)
	default:
		writeParked(&w, f.stream, f.sub.name, *share.Parked)
	}
	return f.sub.session.push(f.sub.ctx, websocket.AppendFrame(nil, opcode(w.Encoding), w.Buf))
}

// Close gives the partitions back.
func (f *memberSource) Close() {
	f.unsent.drop()
	f.Membership.Close()
	f.sub.session.conn.memory.Release(budget.Follow, f.held)
}

// memberOf are the memberships of the connection in a group of a stream: one for each subscription.
func (s *session) memberOf(stream, group string) (all []engine.Membership) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.subscriptions {
		if sub.member != nil && sub.of == (membershipOf{stream, group}) {
			all = append(all, sub.member)
		}
	}
	return all
}

// membershipOf names the group that a subscription is a member of.
type membershipOf struct{ stream, group string }

// commitOwned commits for the partition of a member.
func (s *session) commitOwned(r *request, position int64) {
	members := s.memberOf(r.Stream, r.Group)
	partition := int(r.Partition)
	if r.ID == nil {
		err := asOwner(members, func(m engine.Membership) error { return m.CommitLater(partition, position) })
		if err != nil {
			s.fail(r.asked(), err, codeNotStored)
		}
		return
	}
	s.inBackground(func(ctx context.Context) {
		offset, err := query(ctx, sessionQuery{s, r}, func() (offset int64, err error) {
			err = asOwner(members, func(m engine.Membership) error {
				offset, err = m.Commit(ctx, partition, position)
				return err
			})
			return offset, err
		})
		if err != nil {
			s.fail(r.asked(), err, codeNotStored)
			return
		}
		s.ok(r.asked(), reply{Position: &offset, Partition: &partition})
	})
}

// asOwner calls do for the one of the members that owns the partition, or returns engine.ErrFenced.
func asOwner(members []engine.Membership, do func(engine.Membership) error) error {
	for _, m := range members {
		if err := do(m); !errors.Is(err, engine.ErrFenced) {
			return err
		}
	}
	return engine.ErrFenced
}
