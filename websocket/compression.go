package websocket

import (
	"fmt"
	"sync/atomic"
)

// Compression sets how messages are compressed (permessage-deflate, RFC 7692). Each message is compressed alone: the
// handshake always forbids both sides to refer to earlier messages. So the frame of AppendFrame fits every connection, and
// an idle connection holds no memory for compression.
//
// A connection that has negotiated compression uses it only after [Conn.AllowCompression].
type Compression struct {
	// Level is 1 (fast) to 9 (small). Level 0 makes about the size of level 1 with the least memory: nothing is kept between
	// messages. Defaults to 0.
	Level int

	// Threshold is the size below which a message is sent uncompressed, in bytes. Defaults to 256: a chat of 100 bytes
	// hardly shrinks, while three of them in one message shrink to half, and the headers of TCP and IP need 40 bytes
	// anyway.
	Threshold int

	// Early is how large a compressed message of the peer may be before AllowCompression, in bytes after inflating. A larger
	// one, or any if Early is 0, fails the connection with StatusPolicyViolation. Some browsers compress every message, also
	// the first one, which may carry a token: for these it has to be large enough for that message. Server side
	// only. Defaults to 0.
	Early int
}

func (z *Compression) validate() error {
	switch {
	case z == nil:
		return nil
	case z.Level < 0 || z.Level > 9:
		return fmt.Errorf("websocket: Config.Compression.Level is %d: want 0 to 9", z.Level)
	case z.Threshold < 0:
		return fmt.Errorf("websocket: Config.Compression.Threshold is %d: want 0 or more", z.Threshold)
	case z.Early < 0:
		return fmt.Errorf("websocket: Config.Compression.Early is %d: want 0 or more", z.Early)
	}
	return nil
}

// threshold is the default of Threshold, in bytes.
const threshold = 256

// rsv1 marks the first frame of a compressed message: in Header.RSV, and in a frame's first byte.
const (
	rsv1     = 4
	rsv1Byte = rsv1 << 4
)

// AppendFrame is the function AppendFrame with compression: for [Conn.WriteShared] and [Conn.WriteBulkFrames], to
// connections of which [Conn.TakesCompressed] is true. The frame is uncompressed, so that every connection takes it, if
// the payload is shorter than Threshold, if compression would not make it smaller, for a control frame, and if z is nil. Level and
// Threshold must be valid. Safe for concurrent use; as many calls run at a time as there are processors (GOMAXPROCS).
func (z *Compression) AppendFrame(dst []byte, op Opcode, payload []byte) []byte {
	if z == nil || op.Control() {
		return AppendFrame(dst, op, payload)
	}
	packed := z.pack(payload, fullWindow)
	if packed == nil {
		return AppendFrame(dst, op, payload)
	}
	start := len(dst)
	dst = AppendFrame(dst, op, packed.b)
	dst[start] |= rsv1Byte
	packed.put()
	return dst
}

// pack returns the compressed payload, or nil if it is to be sent as it is. The caller puts it back.
func (z *Compression) pack(payload []byte, window int) *buffer {
	least := z.Threshold
	if least == 0 {
		least = threshold
	}
	if len(payload) < least {
		return nil
	}
	return deflate(payload, z.Level, window)
}

// agreement is what a connection has negotiated.
type agreement struct {
	*Compression
	window  int         // of what this side sends, in bits
	allowed atomic.Bool // AllowCompression was called
}

// agree records that permessage-deflate was negotiated, and how large a window this side may use, in bits. It is called before
// anything else uses c.
func (c *Conn) agree(window int) {
	c.deflate = &agreement{Compression: c.cfg.Compression, window: window}
	c.dec.unpack = &unpacker{agreement: c.deflate, trusts: c.client}
}

// AllowCompression permits compression in both directions, for example after the peer has shown who it is. Before, the
// connection sends nothing compressed; a server refuses compressed messages, except those within Compression.Early, and a
// client accepts them: its server decides. It has no effect without negotiated compression.
func (c *Conn) AllowCompression() {
	if c.deflate != nil {
		c.deflate.allowed.Store(true)
	}
}

// TakesCompressed reports whether WriteShared and WriteBulkFrames may send frames of [Compression.AppendFrame] on this
// connection: compression was negotiated with the full window, and AllowCompression was called. Once it is true, it stays
// so. Queue needs no such question.
func (c *Conn) TakesCompressed() bool {
	return c.deflate != nil && c.deflate.window == fullWindow && c.deflate.allowed.Load()
}

// packed returns the compressed form of a message to be queued, or nil.
func (c *Conn) packed(op Opcode, payload []byte) *buffer {
	z := c.deflate
	if z == nil || op.Control() || !z.allowed.Load() {
		return nil
	}
	return z.pack(payload, z.window)
}
