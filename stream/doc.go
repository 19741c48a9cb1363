// Package stream is the log: messages in PostgreSQL with a position each.
//
// [Open] returns the [Client] of a process. A [Stream] is a named, append-only log: [Client.Ensure] creates
// it, [Stream.Append] appends for many callers, [Stream.Subscribe] loops over the existing and the future
// messages, and [Stream.Read] and similar methods read by position or by key. [Stream.Work] calls a handler
// for the messages, in any number of processes. Creating a stream costs one row: small streams share a table,
// and a stream that becomes busy or large, or has a large batch, gets its own tables. Guarantees:
//
//   - An answer means committed. Answered messages survive a kill of this
//     process and of PostgreSQL.
//   - A message is stored once, however often its batch had to be sent: each transaction inserts a mark for
//     its batch, and a repeated batch violates the mark's primary key. While PostgreSQL is unavailable,
//     accepted messages wait in memory.
//   - Visible order is position order. Positions are allocated under a lock that is held until the commit, so
//     a reader that has seen p will never find a new message below p. Gaps between positions are possible,
//     and have no meaning.
//   - Retry is safe. Any process can repeat a request that carries a [RequestID], also while the first
//     attempt is under way: its messages are stored once, and every attempt gets the same result. See
//     [Stream.AppendAs].
//   - An Append stores all of its messages, at consecutive positions, or none.
//   - Memory is bounded: Submit waits while the open batch is full, and a subscription that lags reads from
//     PostgreSQL, one page at a time.
//
// [Stream.AppendTx] appends in a transaction of the application (transactional outbox): the message is stored
// if that transaction commits. It keeps the order as well, and does not delay other writers.
//
// A [Group] (consumer group) keeps the position of a reader, its offset. Rows of these tables are not updated
// or deleted in place, so a long transaction elsewhere does not slow them down.
//
// A stream can have partitions, which are separate streams: written in parallel, each with its own order. A
// message goes to the partition of its key. Processes that call [Stream.Work] for one group divide the
// partitions among them; each partition has one owner at a time.
//
// [Stream.SetRetention] gives a stream a [Retention], by age, by size, or up to the offsets of its groups,
// and a [RetentionWorker] applies it: a stream's own table consists of segments, ranges of positions, which
// are dropped whole; in the shared table, messages are deleted. A reader that asks for dropped messages gets
// a [TooOldError], and never skips them silently.
//
// # Parts
//
// A Client is made of parts, for programs that manage their lifecycles themselves, such as servers with
// thousands of streams: an [Appender] or [PartitionedAppender] writes to one stream (group commit), and
// [Appender.Submit] calls back instead of blocking; a [Hub] follows streams, with a [Subscription] for each
// reader; [Groups] writes the offsets of a process together (group commit); a [Member] is what Work runs; a
// [Coordinator] assigns anything that is numbered to processes, with fencing tokens; a [RetentionWorker]
// drops messages past their retention. A part with Run works until its ctx ends; one with Start and Stop has
// no goroutine while it is idle. [Ensure], [Lookup], [List] and [Drop] need no Client.
//
// All need the schema that package migrate creates.
package stream
