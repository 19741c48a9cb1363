// Package room broadcasts chat messages to the members of a room.
//
// A message is encoded once and appended to its room's log, which is a sequence
// of bytes in shared segments. A member is little more than an offset into that
// log: in rounds, the room's flusher offers each member's socket all bytes after
// its offset, in one write of the shared bytes. There is no queue, no copy and
// no encoding per member, so a delivery costs a few nanoseconds plus its share
// of a write.
//
// # Order
//
// All members see the messages of a room in the same order. A sender does not
// get its own messages: the write to it skips them.
//
// # Flushes
//
// The flusher visits the members in rounds, and sends each all messages up to
// its turn. After a round it pauses for a third of the round's duration, at
// most five milliseconds: a message in a quiet room is sent at once, and a busy
// room sends batches. In a large room several goroutines share the members.
//
// # Lag
//
// Writes never block. A member whose socket takes nothing is skipped, and tried
// again in each round. Its lag is the bytes not sent to it, plus the bytes sent
// that its kernel has not acknowledged. Above a limit in bytes or time it misses
// messages until it has read most of the bytes sent; then it gets the number of
// missed messages, and continues with the newest. If it has requested that, its
// connection is closed instead.
//
// # Presence
//
// A watcher is a member that is told who is in the room: first it gets a list
// of the names, and then batches of changes, at most four a second. These
// frames, too, are encoded once and appended to a log that the watchers share;
// but a watcher that lags gets a new list instead of a gap. A room without
// watchers keeps no names.
//
// # Listeners
//
// A listener gets the frames of a room without being a member, and without a connection. To the log it is one more reader, which never lags.
//
// # Kick
//
// Hub.Kick ends the memberships of a user. It keeps nobody out: their connections may join again.
//
// # Other nodes
//
// An Outlet takes what members on this node publish, and an Inlet brings what members on other nodes publish: see
// package cluster. To the log of a room, the Outlet is one more reader.
package room
