package websocket

import (
	"sync/atomic"
	"time"
)

// Traffic is what a connection has carried since the handshake, and what it waits for.
type Traffic struct {
	// MessagesIn counts messages that Read has returned, MessagesOut those given to Queue and the bulk lane, and those of CountShared.
	MessagesIn, MessagesOut int64
	// BytesIn and BytesOut count bytes of frames, with TLS before encryption. The socket has taken BytesOut.
	BytesIn, BytesOut int64
	// Unsent is the number of queued bytes that the socket has not taken.
	Unsent int
	// Since is since when the peer keeps the connection waiting: queued bytes have not all left, or the oldest ping of the bulk lane has no pong. It is
	// zero if nothing waits.
	Since time.Time
}

// traffic is what Traffic counts, besides Conn.received.
type traffic struct {
	in, shared, written atomic.Int64
	out                 int64     // guarded by Conn.mu
	draining            time.Time // since when the drain goroutine runs; zero if it does not. Guarded by Conn.mu
}

// Traffic returns what the connection has carried. It takes the lock of the connection for a moment, and makes no system call.
func (c *Conn) Traffic() Traffic {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := Traffic{
		MessagesIn: c.traffic.in.Load(), MessagesOut: c.traffic.out + c.traffic.shared.Load(),
		BytesIn: c.received.Load(), BytesOut: c.traffic.written.Load(), Unsent: c.unsent,
	}
	if c.unsent > 0 {
		t.Since = c.traffic.draining
	}
	if c.bulk != nil && len(c.bulk.credit.pings) > 0 {
		if at := c.bulk.credit.pings[0].at; t.Since.IsZero() || at.Before(t.Since) {
			t.Since = at
		}
	}
	return t
}

// CountShared adds messages to those of Traffic. WriteShared does not look into its frames: its caller knows how many they are.
func (c *Conn) CountShared(n int) { c.traffic.shared.Add(int64(n)) }
