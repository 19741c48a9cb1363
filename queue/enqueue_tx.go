package queue

import (
	"context"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
)

// EnqueueTx enqueues the messages in the caller's own transaction: they are stored if
// and when that commits. The transaction may stay idle for any time and delays no other
// writer; the messages get their positions at the commit. Everything else, including
// the errors of the commit, is as for stream.Stream.AppendTx. Messages may have
// different priorities, and keys of different partitions. None may be Unique.
//
// With synchronous replication the caller's COMMIT waits for the standbys. If that wait is canceled, the
// COMMIT still succeeds, with a warning that only OnNotice of the connection's configuration gets.
//
// With REPEATABLE READ and SERIALIZABLE a transaction may leave a gap of some thousand positions, which Stats
// counts as ready until a Node has passed over them.
//
// Nodes find the messages when they poll. Nodes of this process find them at
// once if the caller calls Notify after its commit; Nodes with a stream.Hub, if
// Hub.Notify is called for all Streams.
//
// Errors: ErrInvalid, after which the transaction may continue if this call has
// enqueued nothing else; ErrNotFound and PostgreSQL's own.
func (q *Queue) EnqueueTx(ctx context.Context, tx pgx.Tx, msgs ...Message) error {
	if err := noneUnique(msgs); err != nil {
		return err
	}
	byMember := make([][]Message, len(q.members))
	anyPartition := rand.IntN(len(q.members))
	for i := range msgs {
		to, ok, err := q.route(&msgs[i])
		if err != nil {
			return err
		}
		if !ok {
			to = anyPartition
		}
		byMember[to] = append(byMember[to], msgs[i])
	}
	for i, some := range byMember {
		if len(some) == 0 && len(msgs) > 0 {
			continue
		}
		plain, err := withDues(some)
		if err == nil {
			err = q.members[i].stream.AppendTx(ctx, tx, plain.messages...)
			plain.giveBack()
		}
		if err != nil {
			return enqueueError(err)
		}
	}
	return nil
}

// Notify makes the Nodes of this process read messages that were not enqueued by their Enqueuers: those of a
// committed EnqueueTx. If the Queue is from a Client, it reaches the Nodes of other processes as well.
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
