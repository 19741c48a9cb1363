// Package queue is competing consumers on a stream: each message goes to one of
// them, and again to another until one acknowledges it.
//
// A [Queue] is a stream of the same name. A [Producer] enqueues; a [Node] takes
// part for a process, with one [Consumer] for each of its workers. What holds:
//
//   - An answered Enqueue is stored, and will be delivered. An answered Ack is
//     recorded: the message is never handed out again. Both survive a kill of
//     this process and of PostgreSQL.
//   - Delivery is at least once. A message is handed out again when its time
//     runs out, when it is refused, when its Consumer closes, or when its Node
//     dies; then the delivery before is void, and its Ack gets [ErrLeaseLost].
//   - Within what a Node claims, messages are handed out in the order of
//     positions for the first time. There is no order between nodes.
//   - While nothing is refused or delayed, no row is updated or deleted for a
//     message; a long transaction elsewhere makes nothing slow.
//   - A Node with nothing to do writes nothing.
//
// # How it works
//
// A node claims ranges of positions: one row for as many messages as its
// Consumers have credits for. A range may reach beyond the end of the stream;
// what is written there is then delivered without asking anybody.
//
// Who has which positions is in the journal, whose rows are written under one
// lock and have an order. The state of the queue is a fold over them:
//
//	position   from      to        by
//	free       the start claimed   claim behind the top, or of what was given up
//	claimed    claimed   done      acknowledgement; gap; put aside
//	claimed    claimed   free      given up; the node stopped
//	claimed    claimed   free      its node's lease ended: tried once more
//	free       free      done      purge
//	aside      done      aside     refused, or not due yet; due again: claimed
//	aside      aside     gone      acknowledged
//	aside      aside     dead      refused too often; Redrive: aside again
//
// Each node folds for itself. A call says up to where it knows the journal; the
// database checks its lease, by its own clock and behind the lock, and that the
// journal holds nothing of the node's own that it does not know; it writes, and
// returns what is new. So one round trip records acknowledgements, claims, and
// renews the lease, and a call that is repeated because its answer was lost, or
// that was stuck and comes late, changes nothing.
//
// Deliveries and their times are in the memory of the node. The number of
// attempts survives it roughly: the death of a node counts as one for all that
// it had claimed up to the end of the stream.
//
// All need the schema that package migrate makes.
package queue
