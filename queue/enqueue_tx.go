package queue

import (
	"context"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
)

// EnqueueTx enqueues the messages in the caller's own transaction: they are
// stored if and when that commits. It may be idle for as long as it likes, and
// delays nobody; the messages get their positions at the commit. All else, also
// what committing may fail with, is as stream.Stream.AppendTx has it. Messages may have
// different priorities, and keys of different partitions. None may be Unique.
//
// With synchronous replication it is the caller's COMMIT that waits for the standbys. If somebody cancels that
// wait it succeeds all the same, with a warning that only OnNotice of the connection's configuration gets.
//
// Nodes hear of them when they poll. Those of this process do at once if the
// caller calls Notify after its commit; those that follow a stream.Hub if
// Hub.Notify is called for all Streams.
//
// Errors: ErrInvalid, with which the transaction may go on
// if nothing else was enqueued by this call; ErrNotFound and PostgreSQL's own.
func (q *Queue) EnqueueTx(ctx context.Context, tx pgx.Tx, msgs ...Message) error {
	if err := noneUnique(msgs); err != nil {
		return err
	}
	byMember := make([][]Message, len(q.members))
	anyLane := rand.IntN(len(q.members))
	for i := range msgs {
		to, ok, err := q.route(&msgs[i])
		if err != nil {
			return err
		}
		if !ok {
			to = anyLane
		}
		byMember[to] = append(byMember[to], msgs[i])
	}
	for i, some := range byMember {
		if len(some) == 0 && len(msgs) > 0 {
			continue
		}
		plain, err := withDues(some)
		if err == nil {
			err = q.members[i].stream.AppendTx(ctx, tx, plain...)
		}
		if err != nil {
			return enqueueError(err)
		}
	}
	return nil
}

// Notify has the Nodes of this process look for messages that were enqueued by
// other means than their Enqueuers: by an EnqueueTx that is committed. That of a Client's Queue reaches the Nodes
// of other processes as well.
func (q *Queue) Notify() {
	if q.client != nil {
		for _, s := range q.Streams() {
			q.client.cfg.Hub.Notify(s)
		}
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for n := range q.nodes {
		n.mu.Lock()
		for _, p := range n.parts {
			p.polls = true
			pg.Signal(p.readNow)
		}
		n.mu.Unlock()
	}
}
