package websocket

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net/http"
	"time"
)

// Config sets the limits, timeouts and hooks of a connection. The zero value is
// ready for use.
type Config struct {
	// MaxMessage is the largest message the peer may send, in bytes; a larger
	// one fails the connection with StatusTooBig. Defaults to 1 MiB.
	MaxMessage int

	// ReadBuffer is the most bytes that one read of the socket returns. The
	// buffer comes from a pool shared by all connections when bytes arrive, and
	// is returned before the next wait. Defaults to 64 KiB.
	ReadBuffer int

	// MaxUnsent is how many queued bytes may wait for the socket. Above it
	// Queue returns ErrSlowReader; above half of it Read reads nothing from the
	// peer until the peer has read some. Defaults to 4 MiB.
	MaxUnsent int

	// BulkChunk is the size of the chunks in which WriteBulk sends, in bytes. An
	// answer may have to wait for one chunk. With adaptive credit a chunk is at
	// most half of the credit window, since a slow peer takes long to read one.
	// Defaults to 128 KiB.
	BulkChunk int

	// BulkCredit is how many bytes may be outstanding on the bulk lane: sent, and
	// not acknowledged by a pong. A smaller value makes answers faster and bulk
	// slower. 0 adapts it, from 64 KiB to 4 MiB, to the delay it causes; a
	// negative value sets no limit. Defaults to 0.
	BulkCredit int

	// KernelUnsent is how many bytes the kernel may hold that it cannot send
	// yet, on systems that can limit it (TCP_NOTSENT_LOWAT). With a negative
	// value the system decides, and may hold megabytes. Server side only.
	// Defaults to 128 KiB.
	KernelUnsent int

	// MessageTimeout is how long the peer may take to complete a message, from the
	// time at which Read first waits for the rest of it. Each 4 KiB that has arrived
	// adds a second. After that the connection fails with StatusPolicyViolation.
	// Time in which nobody calls Read does not count. Server side only. Defaults to
	// 30 seconds.
	MessageTimeout time.Duration

	// MaxFragments is how many frames one message of the peer may have; with more the connection fails with StatusPolicyViolation. A negative value
	// sets no limit. Defaults to 1024.
	MaxFragments int

	// WriteTimeout is how long the peer may read nothing at all while bytes are
	// queued; then the connection is aborted with ErrWriteTimeout. Defaults to
	// 30 seconds.
	WriteTimeout time.Duration

	// CloseTimeout bounds Close as a whole. Defaults to 5 seconds.
	CloseTimeout time.Duration

	// SkipUTF8Check accepts text that is not UTF-8, for a server that stores
	// every message unchanged. Defaults to false.
	SkipUTF8Check bool

	// OnPing is called by Read, in its goroutine, with the payload of each Ping,
	// which is valid only during the call. Read answers the Ping itself.
	// Defaults to none.
	OnPing func(payload []byte)

	// OnPong is called by Read, in its goroutine, with the payload of each
	// Pong, which is valid only during the call. Defaults to none.
	OnPong func(payload []byte)

	// Subprotocols are the supported protocols, in order of preference: Upgrade
	// chooses the first of them that the client offers, Dial offers them.
	// Defaults to none.
	Subprotocols []string

	// Compression is offered by Dial, and accepted by Upgrade if the client offers it. Defaults to none.
	Compression *Compression

	// Memory is notified how many bytes the connection holds. Defaults to none.
	Memory Memory

	// Access decides which web pages may connect, and under which host names.
	// Upgrade only. Defaults to the pages of the server's own origin.
	Access *Access

	// TLS is the configuration of Dial for a wss URL, for example with the RootCAs of a private
	// authority. Defaults to the certificates that the system trusts.
	TLS *tls.Config

	// Header is sent with the handshake request of Dial. Defaults to none.
	Header http.Header
}

func (c Config) withDefaults() Config {
	c.MaxMessage = cmp.Or(c.MaxMessage, 1<<20)
	c.ReadBuffer = cmp.Or(c.ReadBuffer, 64<<10)
	c.MaxUnsent = cmp.Or(c.MaxUnsent, 4<<20)
	c.KernelUnsent = cmp.Or(c.KernelUnsent, 128<<10)
	c.BulkChunk = cmp.Or(c.BulkChunk, 128<<10)
	c.MaxFragments = cmp.Or(c.MaxFragments, 1024)
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
			return fmt.Errorf("websocket: Config.%s is %d: want 0 or more", f.name, f.value)
		}
	}
	return c.Compression.validate()
}
