// Package queue is competing consumers on a stream: each message goes to one of
// them, and again to another until one acknowledges it.
//
// [Open] returns the [Client] of a process. A [Queue] is a stream of the same name: [Client.Ensure] makes it, [Queue.Enqueue]
// enqueues for many callers, and [Queue.Work] has a handler deal with each message. [Queue.Consume] is for programs
// that settle deliveries themselves. Guarantees:
//
//   - An answered Enqueue is stored, and will be delivered. An answered Ack is
//     recorded: the message is never delivered again. Both survive a kill of
//     this process and of PostgreSQL.
//   - Delivery is at least once. A message is delivered again when its time
//     runs out, when it is refused, when its Consumer closes, or when its Node
//     dies; then the delivery before is void, and its Ack gets [ErrLeaseLost].
//   - Within what a Node claims, messages are delivered in the order of
//     positions for the first time. There is no order between nodes.
//   - While nothing is refused or delayed, no row is updated or deleted for a
//     message; a long transaction elsewhere makes nothing slow.
//   - A Node with nothing to do writes nothing, but for one row every three
//     seconds if it shares out partitions with others.
//
// # Priorities, and the order of keys
//
// With [Options].Priorities a free Consumer gets what has the highest priority,
// of all that its Node has or can claim; as long as there is some, the lower
// ones wait. Other nodes may have claimed higher ones, as many as they have
// credits.
//
// With [Options].Partitions messages with the same key are delivered in the order of
// their positions, the next only after the one before was acknowledged, and that
// is recorded, or became a dead letter. One that is refused, or not due yet,
// keeps its place and holds up its key, and no other. This holds over the death
// of nodes. Messages that wait after busy keys are in the memory of the Node; when that
// is full, the partition stands still until one of its keys goes on. Partitions are shared
// out among nodes by [NodeConfig].Assign; one that is to hand over a partition claims
// nothing more there and waits, up to Drain, for what it has delivered.
//
// Such a queue consists of several, NAME/0 and so on, and is used by its own name
// alone. Positions of its messages are numbers of the queue's own.
//
// # How it works
//
// A node claims ranges of positions: one row for as many messages as its
// Consumers have credits for. A range may reach beyond the end of the stream;
// what is written there is then delivered without asking anybody.
//
// The journal says which node has which positions. Its rows are written under one
// lock and have an order. The state of the queue is a fold over them:
//
//	position   from      to        by
//	free       the start claimed   claim after the top, or of what was given up
//	claimed    claimed   done      acknowledgement; gap; deferred
//	claimed    claimed   free      given up; the node stopped
//	claimed    claimed   free      its node's lease ended
//	claimed    claimed   claimed   delivered so many times
//	free       free      done      purge
//	deferred   done      deferred  refused, or not due yet; due again: claimed
//	deferred   deferred  gone      acknowledged
//	deferred   deferred  dead      refused too often; Redrive: deferred again
//
// Each node folds for itself. A call says up to where it knows the journal; the
// database checks its lease, by its own clock and after the lock, and that the
// journal holds nothing of the node's own that it does not know; it writes, and
// returns what is new. So one round trip records acknowledgements, claims, and
// renews the lease, and a call that is repeated because its answer was lost, or
// that was stuck and comes late, changes nothing.
//
// Deliveries and their times are in the memory of the node.
//
// # Attempts
//
// An attempt is a delivery to a Consumer. It counts when it ends without an Ack:
// refused, out of time, or given back by a Close; also if the Consumer never looked
// at it. It is recorded then, in company, within [NodeConfig].LaterEvery as a rule.
// One that is under way when its Node dies is not counted, and what a Node had
// claimed and not delivered is as it was. But a message may be why a process died.
// So what a dead Node had claimed is suspect: of these each delivery is recorded
// before it is made. A message that kills whoever gets it is therefore delivered
// MaxAttempts times, and once more, and is a dead letter then.
//
// # Parts
//
// A Client is made of parts, for programs that manage their lifecycles themselves: an [Enqueuer] enqueues to one queue, and [Enqueuer.Submit] calls
// back instead of blocking; a [Node] takes part in one queue for a process, with one [Consumer] for each of its workers.
//
// All need the schema that package migrate makes.
package queue
