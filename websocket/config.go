package websocket

import (
	"cmp"
	"fmt"
	"net/http"
	"time"
)

// Config is what a connection may use and how long it waits. The zero value
// is ready for use.
type Config struct {
	// MaxMessage is the largest message the peer may send, in bytes; a larger
	// one fails the connection with StatusTooBig. Defaults to 1 MiB.
	MaxMessage int

	// ReadBuffer is how many bytes one read of the socket may bring. The
	// buffer is on loan from a pool shared by all connections, from the arrival
	// of bytes to the next wait. Defaults to 64 KiB.
	ReadBuffer int

	// MaxUnsent is how many bytes may be queued that the socket has not taken.
	// Past it Queue returns ErrSlowReader; past half of it Read takes nothing
	// more from the peer until the peer has taken some. Defaults to 4 MiB.
	MaxUnsent int

	// BulkChunk is the size of the chunks in which WriteBulk sends, in bytes:
	// what an answer may have to wait for. Where the credit adapts they are at
	// most half of what may be outstanding, since a slow peer's chunks take long.
	// Defaults to 128 KiB.
	BulkChunk int

	// BulkCredit is how many bytes may be outstanding on the bulk lane: sent, and
	// not acknowledged by a pong. Less makes answers faster and bulk slower. 0
	// adapts it, from 64 KiB to 4 MiB, to the delay it causes; below 0 there is no
	// bound. Defaults to 0.
	BulkCredit int

	// KernelUnsent is how many bytes the kernel may hold that it cannot send
	// yet, where the system can bound that; below 0 it is the system's business,
	// which takes megabytes. Server side only. Defaults to 128 KiB.
	KernelUnsent int

	// MessageTimeout is how long a message of the peer may take from the time at
	// which Read first waits for the rest of it, and a second more for each 4 KiB
	// that has arrived; then the connection is failed with StatusPolicyViolation.
	// Time in which Read does not read does not count. Server side only. Defaults to
	// 30 seconds.
	MessageTimeout time.Duration

	// WriteTimeout is how long the peer may take nothing at all of what is
	// queued; then the connection is aborted with ErrWriteTimeout. Defaults to
	// 30 seconds.
	WriteTimeout time.Duration

	// CloseTimeout bounds Close as a whole. Defaults to 5 seconds.
	CloseTimeout time.Duration

	// SkipUTF8Check accepts text that is not UTF-8, for a server that stores
	// every message as it is. Defaults to false.
	SkipUTF8Check bool

	// OnPing is called by Read, in its goroutine, with the payload of each Ping,
	// which is valid only during the call. It is answered without. Defaults to
	// none.
	OnPing func(payload []byte)

	// OnPong is called by Read, in its goroutine, with the payload of each
	// Pong, which is valid only during the call. Defaults to none.
	OnPong func(payload []byte)

	// Subprotocols are the protocols spoken, best first: Upgrade chooses the
	// first of them that the client offers, Dial offers them. Defaults to none.
	Subprotocols []string

	// Memory is told what the connection holds. Defaults to none.
	Memory Memory

	// Access decides which web pages may connect, and under which host names.
	// Upgrade only. Defaults to the pages of the server's own origin.
	Access *Access

	// Header is sent along with the handshake of Dial. Defaults to none.
	Header http.Header
}

func (c Config) withDefaults() Config {
	c.MaxMessage = cmp.Or(c.MaxMessage, 1<<20)
	c.ReadBuffer = cmp.Or(c.ReadBuffer, 64<<10)
	c.MaxUnsent = cmp.Or(c.MaxUnsent, 4<<20)
	c.KernelUnsent = cmp.Or(c.KernelUnsent, 128<<10)
	c.BulkChunk = cmp.Or(c.BulkChunk, 128<<10)
	c.MessageTimeout = cmp.Or(c.MessageTimeout, 30*time.Second)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 30*time.Second)
	c.CloseTimeout = cmp.Or(c.CloseTimeout, 5*time.Second)
	return c
}

func (c Config) validate() error {
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"MaxMessage", int64(c.MaxMessage)},
		{"ReadBuffer", int64(c.ReadBuffer)},
		{"MaxUnsent", int64(c.MaxUnsent)},
		{"BulkChunk", int64(c.BulkChunk)},
		{"MessageTimeout", int64(c.MessageTimeout)},
		{"WriteTimeout", int64(c.WriteTimeout)},
		{"CloseTimeout", int64(c.CloseTimeout)},
	} {
		if f.value < 0 {
			return fmt.Errorf("websocket: Config.%s is %d, below zero", f.name, f.value)
		}
	}
	return nil
}
