// Package eventstore keeps events with a type and tags in PostgreSQL, and
// appends to them under a condition: a Dynamic Consistency Boundary, as
// specified at dcb.events. A query with each append says what
// must be decided consistently, and not the stream that an event belongs to.
//
// [Open] returns the [Client] of a process; [Client.Ensure] makes a [Store] and returns it. [Store.AppendIf] appends under a condition, [Store.Decide] reads, decides and
// appends until nothing has come in between, [Store.QueryStream] is a loop over events, and [Store.Subscribe] follows them.
//
// # What is promised
//
//   - AppendIf stores its events, all of them, if no event matches its
//     condition at the moment at which they get their positions, however many
//     callers, Stores and processes append at once.
//   - Positions are in the order of commits: a reader that has seen position p will
//     never find a new event below it.
//   - An answer means committed. A rejection names an event that is committed.
//     While PostgreSQL is away, appends wait; a connection lost during COMMIT is
//     settled. Events with ids, or AppendAs, make even a caller's own retry safe.
//   - A read is as of one moment, however many statements it takes: those below
//     the position at which the store ended when the first was read.
//   - A projection that begins with a snapshot comes to the state that it would
//     come to without.
//
// # How a condition is checked
//
// Every append takes the store's advisory lock, in PostgreSQL, and holds it to
// its commit; a Store gathers its callers into one such transaction, which is
// one round trip. Four things decide, and each only has to look after the
// position up to which those before it have looked:
//
//  1. append_checker.go: while one batch commits, the conditions of the next are
//     looked up by one query, without the lock. A match is final. No match is
//     true up to the last batch that the query saw.
//  2. tail.go: the Store's own last events, in memory.
//  3. append_writer.go: the earlier calls of the same batch. A call that might conflict with
//     one of them waits for the next transaction, when that one is committed.
//  4. tidewire.events_N_append: if the store's sequence has moved past what is
//     known, because others have written, it looks after that, by a statement
//     begun after the lock was taken.
//
// 1 and 4 give up on a condition for which they would have to look at many rows
// of the index, such as two tags that very many events have, but none has both.
// append_slow_check.go: such a call goes back to its caller, whose goroutine looks it up
// without the lock, within Config.CheckTimeout, and hands it over again. So the
// time under the lock is bounded whatever the conditions are.
//
// The findings of 1 and 2 are relied on only while PostgreSQL still has the
// batch at which the history that they saw has ended.
package eventstore
