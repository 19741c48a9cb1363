// Package queue is a message queue with competing consumers on a stream: each
// message is delivered to one of them, and delivered again until one
// acknowledges it.
//
// [Open] returns the [Client] of a process. A [Queue] is a stream of the same name: [Client.Ensure] makes it, [Queue.Enqueue]
// enqueues for many callers, and [Queue.Work] calls a handler with each message. [Queue.Consume] is for programs that settle
// deliveries themselves. [Queue.EnqueueAs] can be repeated. Guarantees:
//
//   - An answered Enqueue is stored, and will be delivered. An answered Ack is
//     recorded: the message is never delivered again. Both survive a kill of
//     this process and of PostgreSQL.
//   - Delivery is at least once. A message is delivered again when its time
//     runs out, when it is nacked, when its Consumer closes, or when its Node
//     dies. The earlier delivery is then void, and its Ack returns [ErrLeaseLost].
//   - Within the positions that a Node claims, first deliveries are in position
//     order. There is no order between nodes.
//   - While nothing is nacked or delayed, no row is updated or deleted for a
//     message, so a long transaction elsewhere slows nothing down.
//   - An idle Node writes nothing, except for one row every three seconds if
//     it shares partitions with other nodes.
//
// # Priorities, and the order of keys
//
// With [Options].Priorities (priority scheduling) a free Consumer gets the
// messages of the highest priority that its Node has or can claim. Lower
// priorities wait until there are none. Other nodes may have claimed messages
// of a higher priority, at most as many as they have credits.
//
// With [Options].Partitions messages with the same key are delivered in the order of their
// positions, the next only after the one before was acknowledged, and that is recorded, or
// became a dead letter. A message that is nacked, or not due yet, keeps its place: it
// blocks its own key, and no other. This holds even if nodes die. Messages that wait for a
// busy key are in the memory of the Node. When that memory is full, the partition stops
// until one of its keys is free. [NodeConfig].Assign assigns partitions to nodes. A node
// that must release a partition stops claiming there and waits, up to Drain, until its
// deliveries are settled.
//
// A queue with priorities or partitions consists of shards, NAME/0 and so on, and
// is used by its own name only. The positions of its messages are unique in the
// whole queue.
//
// # How it works
//
// A node claims ranges of positions: one row for as many messages as its
// Consumers have credits for (link credit). A range may reach beyond the end of
// the stream: messages that are written there later are delivered without
// another claim.
//
// The journal records which node has which positions. Its rows are written under
// one lock, so they are ordered. The state of the queue is a fold over them
// (event sourcing):
//
//	position   from      to        by
//	free       the start claimed   claim after the top, or of released positions
//	claimed    claimed   done      acknowledgement; gap; deferred
//	claimed    claimed   free      released; the node stopped
//	claimed    claimed   free      its node's lease ended
//	claimed    claimed   claimed   number of attempts recorded
//	free       free      done      purge
//	deferred   done      deferred  nacked, or not due yet; when due: claimed again
//	deferred   deferred  gone      acknowledged
//	deferred   deferred  dead      nacked too often; Redrive: deferred again
//
// Each node computes the fold itself. A write says up to which row its node has
// read the journal. The database takes the lock, then checks the node's lease
// by its own clock, and checks that the journal has no rows of this node that
// the node has not read (optimistic concurrency). It writes, and returns the
// new rows. So one round trip records acknowledgements, claims positions, and
// renews the lease. A write that is repeated because its answer was lost, or
// that was delayed and arrives late, changes nothing.
//
// Deliveries and their deadlines are only in the memory of the node.
//
// # Operation
//
// [Queue.Stats] and [Queue.Peek] show what a queue holds. [Queue.FindDead] finds dead letters; [Queue.Redrive], [Queue.RedriveStep],
// [Queue.PurgeDead] and [Queue.PurgeStep] deliver them again or remove them. [Queue.Alter] changes options, and running nodes take them.
//
// # Attempts
//
// An attempt is a delivery that a program has begun: by [Delivery.Begin] if the Consumer has
// [ConsumerOptions].ExplicitBegin, else when Receive returns it. It counts when it ends
// without an Ack: nacked, timed out, or returned by a Close. It is then recorded together
// with other rows, usually within [NodeConfig].LaterEvery. After a time-out, or if its
// Consumer was Lost, the message waits as after a Nack without a delay. A delivery that had
// not begun is no attempt: its message is delivered again at once. After 100 of these,
// further deliveries are attempts, so that a message that nobody can begin becomes a dead letter.
//
// An attempt that is under way when its Node dies is counted if Begin was called
// LaterEvery before: then it was recorded. But its message may be the reason why the
// process died. So all messages that a dead Node had claimed are suspect: each further
// delivery of them is recorded before it is made. A message that kills every process
// that receives it is therefore delivered MaxAttempts times, plus once, or 100 times more
// often if no program begins it, and is then a dead letter.
//
// # Parts
//
// A Client is made of parts. Programs that manage lifecycles themselves can use them directly: an [Enqueuer] enqueues to one
// queue, and [Enqueuer.Submit] calls back instead of blocking; a [Node] consumes one queue for a process, with one [Consumer] for
// each of its workers.
//
// All need the schema that package migrate makes.
package queue
