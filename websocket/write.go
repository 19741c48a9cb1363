package websocket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"
)

const (
	// outBuffer is the smallest size of a queue buffer, in bytes.
	outBuffer = 4 << 10

	// maxUnsentPongs is the number of unsent bytes above which pongs are
	// delayed: then only the latest ping is answered (RFC 6455, section 5.5.3).
	maxUnsentPongs = 64 << 10

	// writeChunk limits the bytes of a blocking write on a connection whose socket
	// cannot be accessed, so that progress is visible: the peer must read that many
	// within WriteTimeout.
	writeChunk = 16 << 10
)

// Queue encodes a whole message, a Ping or a Pong at the end of the queue, and
// writes nothing: see Flush. The payload is copied. Queue returns ErrSlowReader
// for a frame that would bring the unsent bytes above MaxUnsent, unless it is
// the only one. A message is compressed if that is allowed and Config.Compression says so.
func (c *Conn) Queue(op Opcode, payload []byte) error {
	if op == OpClose || op == OpContinuation || (Header{Fin: true, Op: op, Length: int64(len(payload))}).Validate() != nil {
		return fmt.Errorf("websocket: cannot queue %v of %d bytes", op, len(payload))
	}
	var packed *buffer
	if c.deflate != nil {
		if packed = c.packed(op, payload); packed != nil {
			defer packed.put()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closeSent || c.err != nil {
		return c.refusal()
	}
	if c.cut {
		return ErrSlowReader
	}
	if c.chunked && op == OpBinary {
		h := appendChunkHeader(make([]byte, 0, ChunkHeader+len(payload)), ChunkLast, c.bulk.message, 0)
		c.bulk.message++
		payload, packed = append(h, payload...), nil
	}
	if packed != nil {
		payload = packed.b
	}
	size := frameSize(len(payload), c.client)
	if c.unsent > 0 && c.unsent+size > c.cfg.MaxUnsent {
		if c.flush(); c.closeSent || c.err != nil { // perhaps nobody has flushed yet
			return c.refusal()
		}
		if c.unsent > 0 && c.unsent+size > c.cfg.MaxUnsent {
			return ErrSlowReader
		}
	}
	c.append(op, payload, size)
	if op == OpText || op == OpBinary {
		c.traffic.out++
	}
	if packed != nil {
		c.tail.b[len(c.tail.b)-size] |= rsv1Byte
	}
	return nil
}

// refusal returns why nothing more can be queued.
func (c *Conn) refusal() error {
	if c.err != nil {
		return c.err
	}
	return ErrClosed
}

// append encodes a frame of the given size after the tail. c.mu is held.
func (c *Conn) append(op Opcode, payload []byte, size int) {
	if c.tail == nil {
		c.tail = getBuffer(max(size, outBuffer))
		c.tail.b = c.tail.b[:0]
		c.tellOutput()
	} else if have := len(c.tail.b); have+size > cap(c.tail.b) {
		larger := getBuffer(max(have+size, 2*cap(c.tail.b)))
		larger.b = larger.b[:copy(larger.b, c.tail.b)]
		c.tail.put()
		c.tail = larger
		c.tellOutput()
	}
	if c.client {
		var key [4]byte
		binary.LittleEndian.PutUint32(key[:], rand.Uint32()) // ChaCha8, seeded by the system
		c.tail.b = AppendMaskedFrame(c.tail.b, op, key, payload)
	} else {
		c.tail.b = AppendFrame(c.tail.b, op, payload)
	}
	c.unsent += size
}

// queuePong answers a ping. While the peer reads too little it keeps only the
// answer to the latest ping.
func (c *Conn) queuePong(payload []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closeSent || c.err != nil {
		return
	}
	if c.bulking || c.unsent > min(maxUnsentPongs, c.cfg.MaxUnsent/2) {
		c.pong = append(append(c.pong[:0], byte(OpPong)), payload...) // never empty
		return
	}
	c.pong = nil // older than this one
	c.append(OpPong, payload, frameSize(len(payload), c.client))
}

// appendPong queues the delayed answer to a ping, if there is one.
func (c *Conn) appendPong() {
	if c.pong != nil {
		c.append(OpPong, c.pong[1:], frameSize(len(c.pong)-1, c.client))
		c.pong = nil
	}
}

// Flush writes everything queued to the socket, once, and never blocks. A
// goroutine writes what the socket does not take, and ends when nothing is
// left. If another goroutine is writing already, it writes the queued messages
// too. An error means that nothing more can be written.
func (c *Conn) Flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flush()
	return c.err
}

// flush is Flush. c.mu is held, but not during the write.
func (c *Conn) flush() {
	switch {
	case c.unsent == 0 || c.err != nil:
		return
	case c.writing:
		c.want()
		return
	}
	c.writing, c.wanted = true, false
	if c.advance(); c.tail != nil {
		c.want() // it is written after the head, and perhaps nobody calls Flush again
	}
	if c.raw == nil {
		go c.drain()
		return
	}
	c.write(false, c.head.end())
	if c.live != nil && c.head.buffer == nil && c.sealed == 0 && c.err == nil {
		c.advance()
		c.write(false, c.head.end())
	}
	c.attempted()
}

// attempted ends an attempt to write and leaves the rest to the drain
// goroutine.
func (c *Conn) attempted() {
	if c.err == nil && (c.head.buffer != nil || c.parked.buffer != nil || c.live != nil || c.pong != nil || c.sealed > 0 || c.wanted && c.tail != nil) {
		c.head.since.set()
		if c.traffic.draining.IsZero() {
			c.traffic.draining = time.Now()
		}
		c.tellOutput()
		go c.drain()
		return
	}
	c.writing, c.traffic.draining = false, time.Time{}
	c.tellOutput()
	c.moved.Broadcast()
}

// write writes from the head once, up to an offset, and unlocks c.mu meanwhile.
// If patient, it first waits for room. Without a head it writes only what is
// encrypted already. Only the owner of c.writing calls it.
func (c *Conn) write(patient bool, until int) {
	head := c.head.buffer
	var b []byte
	if head != nil {
		b = head.b[c.head.taken:until]
	}
	if c.raw == nil {
		b = b[:min(len(b), writeChunk)]
	}
	c.mu.Unlock()
	n, err := c.send(b, patient)
	c.mu.Lock()
	took := c.countSealed() + n
	if c.head.buffer == nil && head != nil { // dropped by forget or drop meanwhile
		return
	}
	c.unsent -= n
	c.sent += int64(max(took, 0))
	if took > 0 && c.bulk != nil {
		c.bulk.wrote = time.Now()
	}
	if head != nil {
		if c.head.taken += n; c.head.taken == len(head.b) {
			c.left()
		}
	}
	c.failWrite(err)
	c.moved.Broadcast()
}

// countSealed updates the count of encrypted bytes that the socket has not taken, and returns how many fewer they are.
// c.mu is held.
func (c *Conn) countSealed() (fewer int) {
	if c.secure == nil || c.err != nil {
		return 0
	}
	now := c.secure.waiting()
	fewer = c.sealed - now
	c.sealed = now
	c.unsent -= fewer
	return fewer
}

// failWrite records why nothing more can be written. c.mu is held.
func (c *Conn) failWrite(err error) {
	if err == nil || c.err != nil {
		return
	}
	c.err = fmt.Errorf("websocket: write: %w", err)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.err = ErrWriteTimeout
	}
	c.forget()
}

// drain writes until nothing is left. It is a goroutine, started when an
// attempt to write leaves something, and for every flush of a connection whose
// socket cannot be accessed.
func (c *Conn) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil {
		until, over := c.turn()
		if over {
			c.setWriteDeadline(time.Time{})
			if c.unsent == 0 {
				c.traffic.draining = time.Time{}
			}
			c.bulk.handed = true // the writer of the chunk owns c.writing now; its release continues here
			c.moved.Broadcast()
			return
		}
		if c.head.buffer == nil {
			if c.advance(); c.head.buffer != nil {
				continue
			}
			if c.countSealed(); c.sealed == 0 {
				break
			}
		}
		c.setWriteDeadline(time.Now().Add(c.cfg.WriteTimeout))
		c.write(true, until)
	}
	if c.err == nil {
		c.setWriteDeadline(time.Time{})
	} else if c.err == ErrWriteTimeout {
		c.reset()
	}
	c.writing, c.traffic.draining = false, time.Time{}
	c.tellOutput()
	c.moved.Broadcast()
}

// setWriteDeadline sets the socket's deadline, at most to the one of Close.
// c.mu is held, so Close and drain do not overwrite each other's deadline.
func (c *Conn) setWriteDeadline(t time.Time) {
	if by := c.closeBy; !by.IsZero() && (t.IsZero() || by.Before(t)) {
		t = by
	}
	_ = c.conn.SetWriteDeadline(t) // fails only if closed, and then so does the write
}

// send writes b once, and counts what was written.
func (c *Conn) send(b []byte, patient bool) (int, error) {
	n, err := c.sendOnce(b, patient)
	c.traffic.written.Add(int64(max(n, 0)))
	return n, err
}

func (c *Conn) sendOnce(b []byte, patient bool) (int, error) {
	switch {
	case c.raw == nil:
		return c.conn.Write(b)
	case c.secure != nil:
		return c.sendSecure([][]byte{b}, patient)
	}
	c.out, c.patient = b, patient
	c.writeN, c.writeErr = 0, nil
	err := c.raw.Write(c.onWritable)
	c.out = nil
	if err == nil {
		err = c.writeErr
	}
	return c.writeN, err
}

// tryWrite writes once. If there is no room, the drain goroutine lets the
// runtime wait for some; other callers do not wait.
func (c *Conn) tryWrite(fd uintptr) bool {
	n, err := sysWrite(fd, c.out)
	if err != nil && again(err) {
		return !c.patient
	}
	c.writeN, c.writeErr = n, err
	return true
}

// forget drops everything that will never be written. c.mu is held; a running
// write may still use the head's buffer, so it is left to the garbage
// collector.
func (c *Conn) forget() {
	c.head, c.parked = outgoing{}, outgoing{}
	c.tail, c.live, c.pong, c.unsent, c.sealed = nil, nil, nil, 0, 0
	c.tellOutput()
}
