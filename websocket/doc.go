// Package websocket is a server's side of RFC 6455 for many small messages on
// many connections, and enough of a client to test and to measure it. It
// negotiates no extension.
//
// # Read many, answer once
//
// One [Conn.Read] returns all messages that one read of the socket brought, in
// the buffer they were read into. [Conn.Queue] only encodes. The next Read
// flushes before it waits, so all answers leave in one write. A goroutine that sends
// without reading, or is not the reading one, calls [Conn.Flush]; what
// many connections get alike is encoded once and goes to [Conn.WriteShared].
// Once its buffers are there, a connection allocates nothing per message.
//
// # Lanes
//
// Three lanes leave a connection. What Queue encodes, answers above all, goes
// first. The frames of WriteShared come next. WriteBulk sends large messages in
// chunks, and looks at the other two after each; it keeps little under way, by
// credit that the peer's pongs give, since nothing overtakes what already lies in
// the peer's buffer. None of them starves: after what was queued when a chunk
// ended, the next chunk follows.
//
// # States
//
//	open         Read, Queue, Flush, WriteShared
//	  | StartClose, or the peer broke a rule: a Close frame is sent
//	closing      Read; Queue and WriteShared return ErrClosed
//	  | the peer's Close frame arrives
//	answered     Read returns *CloseError
//	  | Close
//	closed       everything returns an error
//
// If the peer closes first, Read returns *CloseError while the connection is
// open for writing: what is owed to the peer can still be queued, and Close sends
// it before the answer. Close goes through all the states that are left, within
// CloseTimeout. Abort, a peer that takes nothing for WriteTimeout, and Close when
// it is done all lead to closed. Every Conn must be ended by Close or Abort, also
// after an error.
//
// # Guarantees
//
//   - Frames leave whole and, on each lane, in the order of the calls.
//   - Messages that arrived whole before an error or a Close frame are returned
//     before it, and answers queued for them are sent before the Close frame.
//   - A payload that Read returned stays as it is until the next Read, whatever
//     other goroutines do to the Conn.
//   - Only one goroutine at a time may call Read; everything else is safe from
//     any. Queue, Flush, WriteShared and StartClose never wait for the peer. Read,
//     WriteBulk, Close and Abort may wait, the last for a write under way to notice.
//   - A Conn starts at most one goroutine: while the socket does not take what was
//     flushed, or, where the connection is no plain TCP or Unix socket (TLS, for
//     one), for each flush. Close and Abort wait for it.
//
// # Memory
//
// While it is idle a connection on a plain socket holds no buffer at all; another
// one holds 4 KiB. Buffers come from a pool when bytes arrive or are queued. At
// most, a connection holds
//
//   - for reading, ReadBuffer and, while a larger message arrives, up to four
//     times what has arrived of it, never for the length that a header claims;
//     32 bytes for each message of one Read;
//   - for writing, MaxUnsent, or one frame if that is larger, in buffers of up to
//     twice the size; 64 KiB of the live lane while chunks are written. What
//     WriteBulk sends it does not copy.
//
// [Config.Memory] is told of what a connection holds while it waits for its peer:
// the buffer of a message that is not complete, and buffers of what the socket does
// not take. [Conn.Evict] has a connection give them back.
//
// A peer that asks without listening is not read from while more than half of
// MaxUnsent is unsent. One that pings without listening is answered only its
// latest ping.
package websocket
