// Package stream is the log: messages in PostgreSQL with a position each.
//
// A [Stream] is a named, append-only log: [Ensure] makes it, an [Appender] appends
// for many callers, and [Stream.Read] and its like read, by position or by key.
// Making one costs a row: streams share a table, until they have so many messages, or
// needs such, that they get tables of their own. What holds:
//
//   - An answer means committed. What was answered survives a kill of this
//     process and of PostgreSQL.
//   - A message is stored once, however often its batch had to be sent: each
//     batch is marked in its own transaction, and a repeated one breaks the
//     mark's primary key. While PostgreSQL is away, what was accepted waits.
//   - Visible order is position order. Positions are taken under a lock that is
//     held until the commit, so who has seen p will never find a new message
//     below p. Gaps are possible, and mean nothing.
//   - Retry is safe. A request that carries a [RequestID] can be repeated by any
//     process, also while it is under way: its messages are stored once, and it
//     is answered the same. See [Appender.AppendAs].
//   - All messages of one Append are stored, side by side, or none.
//   - Memory is bounded: Submit waits while the gathering batch is full, and a
//     subscription that lags reads for itself.
//
// [AppendTx] appends with a transaction of the application's own: the message
// is stored if that commits. It keeps the order as well, and delays nobody.
//
// A [Hub] follows streams for a process: a [Subscription] delivers every
// message once, from any position or time on, first those there are and then
// those to come. A [Group] keeps the position of a reader, its offset; [Groups]
// writes those of the whole process together. Nothing of this is updated or
// deleted in place, so a long transaction elsewhere makes nothing slow.
//
// A stream can have partitions, which are streams of their own: written side by
// side, each with its own order. A [PartitionedAppender] sends messages to the
// partition of their key. The [Member]s of a group share the partitions out, one
// owner each at a time; [Coordinator] does that for anything that has numbers.
//
// [SetRetention] gives a stream a [Retention], by age, size, or what its groups have
// read, and a [RetentionWorker] applies it: a stream's own table is in segments, ranges of
// positions, which are dropped whole; in the table that streams share, messages are
// deleted. A reader that asks for dropped messages gets a [TooOldError], and never
// goes past them unawares.
//
// Beside the named streams there is one table that the ingest strategies fill,
// public.messages, with two ways in.
//
//   - [Writer] is what an Appender writes with, and promises the same. It takes
//     the table's lock, writes a whole [Batch] and commits, in one round trip.
//   - [Inserter] is the textbook: INSERT, one row or many, from any number of
//     connections, no lock. Each row is stored once, but in no promised order.
//
// All need the schema that package migrate makes.
package stream
