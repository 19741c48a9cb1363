package websocket

import "errors"

var errSharedMask = errors.New("websocket: a client cannot send shared frames: each needs its own mask")

// WriteShared writes frames that many connections share, encoded once by
// AppendFrame, to the socket: after the queued messages, and without copying them.
// It never blocks. n is the number of bytes that the connection has taken, always
// whole frames: if the socket takes a frame only in part, the rest of that frame is
// copied and queued. Offer the remaining frames again later; n is 0 while earlier
// messages wait for the socket. While other lanes keep the live lane waiting and the
// peer reads, WriteShared copies a part of frames and sends it in its turn. It does
// not use frames after the return. Server side only.
func (c *Conn) WriteShared(frames []byte) (n int, err error) {
	if c.client {
		return 0, errSharedMask
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flush(); c.closeSent || c.err != nil {
		return 0, c.refusal()
	}
	if c.cut {
		return 0, ErrSlowReader
	}
	if len(frames) == 0 {
		return 0, nil
	}
	if c.unsent > 0 || c.writing {
		return c.refuseLive(frames), nil
	}
	c.liveGoes()
	if c.raw == nil {
		n, _ = frameEnd(frames, min(len(frames), writeChunk))
		c.queueRest(frames[:n])
		c.writing, c.wanted = true, false
		c.attempted()
		return n, nil
	}
	c.writing, c.wanted = true, false
	c.mu.Unlock()
	sent, err := c.send(frames, false)
	c.mu.Lock()
	c.countSealed()
	if c.failWrite(err); c.err == nil {
		if n = sent; sent < len(frames) {
			n, _ = frameEnd(frames, sent)
			c.queueRest(frames[sent:n])
		}
	}
	c.attempted()
	return n, c.err
}

// queueRest makes the rest of a frame the head: it precedes messages queued
// meanwhile. c.mu is held, and the caller owns c.writing.
func (c *Conn) queueRest(rest []byte) {
	if len(rest) == 0 {
		return
	}
	c.head = outgoing{buffer: getBuffer(len(rest)), bound: len(rest), live: true}
	c.head.b = append(c.head.b[:0], rest...)
	c.unsent += len(rest)
}

// frameEnd returns where the frame that contains the byte before n ends, and how many frames end there.
func frameEnd(frames []byte, n int) (end, count int) {
	for end < n {
		h, size, err := ParseHeader(frames[end:])
		if err != nil || size == 0 {
			return len(frames), count
		}
		end += size + int(h.Length)
		count++
	}
	return min(end, len(frames)), count
}
