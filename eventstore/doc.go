// Package eventstore stores events with a type and tags in PostgreSQL, and
// appends events under a condition. It implements the Dynamic Consistency Boundary
// (DCB), as specified at dcb.events: a query with each append defines what has to be
// consistent, instead of the stream that an event belongs to.
//
// [Open] returns the [Client] of a process; [Client.Ensure] creates or opens a [Store]. [Store.AppendIf] appends under a
// condition. [Store.Decide] reads, decides and appends, and retries after a conflict. [Store.QueryStream] iterates over
// stored events, and [Store.Subscribe] follows the store.
//
// # Guarantees
//
//   - AppendIf stores all its events if no event matches its condition at the
//     moment at which they get their positions. This holds for any number of
//     concurrent callers, Stores and processes.
//   - Positions are in the order of commits: a reader that has seen position p will
//     never find a new event below it.
//   - A successful append is committed. A conflict names an event that is committed.
//     While PostgreSQL is unavailable, appends wait. If a connection is lost during
//     COMMIT, the Store finds out the result. Events with ids, or AppendAs, make
//     also the caller's own retries safe.
//   - A read is a snapshot of one moment, even if it needs several statements: it
//     returns events up to the position at which the store ended when the first
//     statement ran.
//   - A projection that begins with a snapshot reaches the same state as without it.
//
// # How a condition is checked
//
// Every append takes the store's advisory lock in PostgreSQL, and holds it until its
// commit. A Store gathers its callers into one such transaction (group commit), which
// is one round trip. Four stages check a condition, and each stage starts at the
// position that the stage before has reached:
//
//  1. While one batch commits, one query checks the conditions of
//     the next batch, without the lock. A match is final. "No match" is valid up to
//     the last batch that the query saw.
//  2. The Store's own last events are compared in memory.
//  3. The earlier calls of the same batch are compared. A call that might conflict with
//     one of them waits for the next transaction, after that call is committed.
//  4. In PostgreSQL: if the store's sequence has moved past the known
//     position, because other processes have written, a function checks the events after
//     that position, in a statement that began after the lock was taken.
//
// Stages 1 and 4 give up on a condition that would need many rows of the index, such as
// two tags that very many events have, but none has both. Such a call goes back to its
// caller. The caller's goroutine checks it without the lock,
// within Config.CheckTimeout, and hands it over again. So the time under the lock is
// bounded for all conditions.
//
// The results of stages 1 and 2 are used only while PostgreSQL still has the last batch
// of the history that they saw.
package eventstore
