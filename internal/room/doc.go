// Package room broadcasts chat messages to the members of a room.
//
// A message is encoded once and appended to its room's log, a run of bytes in
// shared segments. A member is little more than an offset into that log: now
// and then the room's flusher offers each member's socket all that it has not
// seen, in one write of the shared bytes. There is no queue, no copy and no
// encoding per member, so a delivery costs a few nanoseconds beside its share of
// a write.
//
// # Order
//
// All members see the messages of a room in the same order. A sender does not
// get its own messages: its write is split around them.
//
// # Flushes
//
// The flusher goes round the members, and gives each what has been said up to
// its turn. After a round it pauses for a third of what that took, at most five
// milliseconds: what is said in a quiet room leaves at once, and a busy room
// gathers. In a large room several goroutines share the members.
//
// # Lag
//
// Writes never block. A member whose socket takes nothing is passed over,
// and tried again at each round. It lags by what it has not been sent, and by
// what it has been sent and its system has not acknowledged. Past a bound in
// bytes or time it misses what is said, until it has taken most of that; then it
// is told how many messages it missed, and goes on with the newest. Or, if it
// asked for that, its connection is closed.
//
// # Presence
//
// A member that watches is told who is in the room: a list of the names once,
// and then what has changed, four times a second at most. These frames too are
// encoded once, and stand in a log that the watchers share; but one that lags
// gets a new list instead of a gap. A room without watchers keeps no names.
package room
