package websocket

import "errors"

var errSharedMask = errors.New("websocket: a client cannot send shared frames: each needs a mask of its own")

// WriteShared offers frames that many connections share, encoded once by
// AppendFrame, to the socket: straight from there, without a copy, after what
// is queued. It never blocks. n tells how many bytes the connection has dealt
// with, always whole frames: if the socket takes a frame only in part, the rest
// of that one is copied and queued. Offer the others again later; n is 0 as long
// as something queued before is in their way. Nothing of frames is used after
// the return. While other lanes are in the way of a peer that takes what it is sent,
// a part of frames is copied, and leaves when its turn comes. Server side only.
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
		n = frameEnd(frames, min(len(frames), writeChunk))
		c.queueRest(frames[:n])
		c.writing, c.wanted = true, false
		c.attempted()
		return n, nil
	}
	c.writing, c.wanted = true, false
	c.mu.Unlock()
	sent, err := c.send(frames, false)
	c.mu.Lock()
	if c.failWrite(err); c.err == nil {
		if n = sent; sent < len(frames) {
			n = frameEnd(frames, sent)
			c.queueRest(frames[sent:n])
		}
	}
	c.attempted()
	return n, c.err
}

// queueRest makes the end of a frame the head: it goes before what has been
// queued meanwhile. c.mu is held, and c.writing is the caller's.
func (c *Conn) queueRest(rest []byte) {
	if len(rest) == 0 {
		return
	}
	c.head = outgoing{buffer: getBuffer(len(rest)), bound: len(rest), live: true}
	c.head.b = append(c.head.b[:0], rest...)
	c.unsent += len(rest)
}

// frameEnd returns where the frame that contains the byte before n ends.
func frameEnd(frames []byte, n int) int {
	end := 0
	for end < n {
		h, size, err := ParseHeader(frames[end:])
		if err != nil || size == 0 {
			return len(frames)
		}
		end += size + int(h.Length)
	}
	return min(end, len(frames))
}
