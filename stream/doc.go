// Package stream is the log: messages in PostgreSQL with a position each.
//
// [Open] returns the [Client] of a process. A [Stream] is a named, append-only log: [Client.Ensure] makes it, [Stream.Append]
// appends for many callers, [Stream.Subscribe] is a loop over the messages that there are and those to come, and [Stream.Read] and its like read, by
// position or by key. [Stream.Work] has a handler deal with messages, with as many processes as take part. Making a stream costs a row: streams
// share a table, until they have so many messages, or needs such, that they get tables of their own. Guarantees:
//
//   - An answer means committed. Answered messages survive a kill of this
//     process and of PostgreSQL.
//   - A message is stored once, however often its batch had to be sent: each
//     batch is marked in its own transaction, and a repeated one breaks the
//     mark's primary key. While PostgreSQL is away, what was accepted waits.
//   - Visible order is position order. Positions are taken under a lock that is
//     held until the commit, so a reader that has seen p will never find a new
//     message below p. Gaps are possible, and mean nothing.
//   - Retry is safe. A request that carries a [RequestID] can be repeated by any
//     process, also while it is under way: its messages are stored once, and it
//     is answered the same. See [Appender.AppendAs].
//   - All messages of one Append are stored, side by side, or none.
//   - Memory is bounded: Submit waits while the gathering batch is full, and a
//     subscription that lags reads for itself.
//
// [Stream.AppendTx] appends with a transaction of the application's own: the message
// is stored if that commits. It keeps the order as well, and delays nobody.
//
// A [Group] keeps the position of a reader, its offset. Nothing of all this is updated or
// deleted in place, so a long transaction elsewhere makes nothing slow.
//
// A stream can have partitions, which are streams of their own: written side by
// side, each with its own order. A message goes to the partition of its key. Processes that [Stream.Work] in
// one group share the partitions out, one owner each at a time.
//
// [Stream.SetRetention] gives a stream a [Retention], by age, size, or what its groups have
// read, and a [RetentionWorker] applies it: a stream's own table is in segments, ranges of
// positions, which are dropped whole; in the table that streams share, messages are
// deleted. A reader that asks for dropped messages gets a [TooOldError], and never
// goes past them unawares.
//
// # Parts
//
// A Client is made of parts, for programs that manage their lifecycles themselves, such as servers with thousands of streams: an [Appender] or
// [PartitionedAppender] writes to one stream (group commit), and [Appender.Submit] calls back instead of blocking; a [Hub] follows streams, with a [Subscription]
// for each reader; [Groups] writes the offsets of a process together; a [Member] is what Work runs; a [Coordinator] shares out anything that has
// numbers, with fencing tokens; a [RetentionWorker] drops what need not be kept. A part with a Run works as long as the ctx of that; one with Start and Stop
// needs no goroutine while it has nothing to do. [Ensure], [Lookup], [List] and [Drop] need no Client.
//
// All need the schema that package migrate makes.
package stream
