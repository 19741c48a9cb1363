// Package websocket implements the server side of RFC 6455 for many small
// messages on many connections, and enough of a client to test and to measure
// it. The only extension is permessage-deflate (RFC 7692), if Config.Compression is set.
//
// # Read many, answer once
//
// One [Conn.Read] returns all messages that one read of the socket brought, in the
// buffer they were read into. [Conn.Queue] only encodes. The next Read flushes
// before it waits, so all answers leave in one write. A goroutine other than the
// reading one calls [Conn.Flush] after it has queued. A message for many connections
// is encoded once and sent with [Conn.WriteShared]. Once its buffers are allocated,
// a connection allocates nothing per message.
//
// # Lanes
//
// A connection sends on three lanes with priority scheduling. The messages of
// Queue, mostly answers, go first. The frames of WriteShared come next. WriteBulk
// sends large messages in chunks, and lets the other two lanes send after each
// chunk. Link credit, which the peer's pongs give, keeps the bytes in flight few,
// since nothing overtakes bytes that are already in the peer's buffer. No lane
// starves: the next chunk follows after the messages that were queued when the
// last chunk ended.
//
// # Compression
//
// Every message is compressed alone, so [Compression.AppendFrame] compresses it once for all connections that take it
// ([Conn.TakesCompressed]). Queue compresses by itself, WriteBulk never. Nothing is compressed before [Conn.AllowCompression], which a
// server calls after it knows who the peer is. The bytes of a compressed message show how well its parts fit each
// other: do not put a secret and text of other people into one message.
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
// If the peer closes first, Read returns *CloseError while the connection is open
// for writing: answers to earlier messages can still be queued, and Close sends
// them before its Close frame. Close goes through all remaining states, within
// CloseTimeout. A connection is closed when Close returns, after Abort, and when
// the peer reads nothing for WriteTimeout. Every Conn must be ended by Close or
// Abort, also after an error.
//
// # Guarantees
//
//   - Frames are sent whole and, on each lane, in the order of the calls.
//   - Messages that arrived whole before an error or a Close frame are returned
//     before it, and answers queued for them are sent before the Close frame.
//   - A payload that Read returned does not change until the next Read, even if
//     other goroutines use or close the Conn.
//   - Only one goroutine at a time may call Read; everything else is safe from any.
//     Queue, Flush, WriteShared and StartClose never wait for the peer. Read,
//     WriteBulk, Close and Abort may wait; Abort waits only until a running write
//     has noticed it.
//   - A Conn starts at most one goroutine at a time. On a TCP or Unix socket, and
//     on TLS of NewTLSListener or Dial, it runs only while flushed bytes are
//     unwritten; on any other connection each flush starts one. Close and Abort
//     wait for it.
//
// # Memory
//
// An idle connection on such a socket holds no buffer, except those of package tls; on any
// other connection it holds 4 KiB. Buffers come from a pool when bytes arrive or are queued. At
// most, a connection holds
//
//   - for reading, ReadBuffer and, while a larger message arrives, up to four
//     times the bytes that have arrived, regardless of the length in its
//     header; 32 bytes for each message of one Read;
//   - for writing, MaxUnsent, or one frame if that is larger, in buffers of up to
//     twice the size; 64 KiB of the live lane while chunks are written; with TLS,
//     16 KiB that are encrypted. WriteBulk does not copy its payload, except the
//     first and the last record of a chunk.
//
// A connection tells [Config.Memory] how many bytes it holds while it waits for its
// peer: the buffer of an incomplete message, and buffers of data that the socket
// does not take. [Conn.Evict] makes a connection release them.
//
// With compression it also holds inflated messages until the next Read: ReadBuffer and one message of MaxMessage, in buffers of up to
// twice the size. Config.Memory is told about them too. An inflater holds 40 KiB and a copy of the compressed
// message, a compressor 280 KiB to 1.4 MiB. At most GOMAXPROCS of each are in use; other calls wait for them.
//
// Back-pressure: while more than half of MaxUnsent is unsent, nothing is read
// from the peer. If a peer sends pings and does not read, only its latest ping
// is answered.
package websocket
