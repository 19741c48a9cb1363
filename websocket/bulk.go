package websocket

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

var errBulkClient = errors.New("websocket: a client has no bulk lane")

// Layout of what begins every binary message to a peer that reassembles chunks.
const (
	// ChunkHeader is its size in bytes: the version, flags, two zeros, the number
	// of the message and that of the chunk in it, both from 0 on, big endian.
	ChunkHeader = 12

	chunkVersion = 1
	// ChunkLast marks the last chunk of a message, ChunkText a message that is
	// text.
	ChunkLast, ChunkText = 1, 2
)

// bulk is the state of a connection's bulk lane, which most have not. Guarded
// by Conn.mu, but for what the writer of a chunk needs, who owns Conn.writing.
type bulk struct {
	turn     chan struct{} // one slot: who may send a message
	message  uint32        // number of the next one to be sent in chunks
	credit   credit
	progress time.Time // when the peer last took or acknowledged something
	waiting  bool      // a chunk that has credit waits for Conn.writing
	since    stamp     // since when
	handed   bool      // Conn.writing is kept for that chunk

	// Of the owner of Conn.writing.
	out     [3][]byte // header, part of the payload, what follows
	header  [MaxHeader + ChunkHeader]byte
	trailer []byte
	patient bool
	n       int
	err     error
}

// bulkState returns c.bulk, made if need be. c.mu is held.
func (c *Conn) bulkState() *bulk {
	if c.bulk == nil {
		c.bulk = &bulk{turn: make(chan struct{}, 1), credit: newCredit(c.cfg)}
	}
	return c.bulk
}

// SetChunked says that the peer reassembles chunks: every binary message to it
// begins with a chunk header from now on, and a large bulk message leaves as
// several binary messages, between which others find room. To other peers a
// large bulk message is one message in fragments, between which only control
// frames do.
func (c *Conn) SetChunked() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bulkState().credit.target = chunkTarget
	c.chunked = true
}

// WriteBulk sends one message on the bulk lane, in chunks of Config.BulkChunk
// bytes, and returns when the socket has taken the last. The payload is not
// copied and must not change meanwhile. Calls from several goroutines take
// turns. Server side only.
//
// It waits while too much is unacknowledged (Config.BulkCredit). If the peer
// takes and acknowledges nothing for WriteTimeout the error is ErrSlowReader:
// close the connection then, nothing but a Close frame can follow. With ctx's
// error nothing of the message was sent, or the peer has got a part of it in
// chunks that will never be complete; to a peer that takes none, a message that
// has begun is sent to its end.
func (c *Conn) WriteBulk(ctx context.Context, op Opcode, payload []byte) error {
	if op != OpText && op != OpBinary {
		return fmt.Errorf("websocket: cannot send %v on the bulk lane", op)
	}
	return c.inTurn(ctx, func() error {
		if c.chunked {
			return c.writeChunks(ctx, op, payload)
		}
		return c.writeFragments(ctx, op, payload)
	})
}

// WriteBulkFrames is WriteBulk for any number of small messages, text that
// AppendFrame encoded one after the other: others find room between any two of
// them, about every Config.BulkChunk bytes.
func (c *Conn) WriteBulkFrames(ctx context.Context, frames []byte) error {
	return c.inTurn(ctx, func() error { return c.writeFrames(ctx, frames) })
}

// inTurn calls send, which writes on the bulk lane, with c.mu held.
func (c *Conn) inTurn(ctx context.Context, send func() error) error {
	if c.client {
		return errBulkClient
	}
	c.mu.Lock()
	b := c.bulkState()
	c.mu.Unlock()
	start := time.Now()
	select {
	case b.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-b.turn }()
	defer context.AfterFunc(ctx, c.nudge)()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.BulkWait += time.Since(start)
	b.progress = time.Now()
	return send()
}

// nudge has those who wait for c.moved look again.
func (c *Conn) nudge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved.Broadcast()
}

// writeChunks sends a message as chunks, each a message of its own. c.mu is
// held.
func (c *Conn) writeChunks(ctx context.Context, op Opcode, payload []byte) error {
	number := c.bulk.message
	c.bulk.message++
	for seq := uint32(0); ; seq++ {
		part := payload[:min(len(payload), c.chunkSize())]
		payload = payload[len(part):]
		if err := c.awaitChunk(ctx, len(part)); err != nil {
			c.giveUp()
			return err
		}
		flags := byte(0)
		if op == OpText {
			flags |= ChunkText
		}
		if len(payload) == 0 {
			flags |= ChunkLast
		}
		h := AppendHeader(c.bulk.header[:0], Header{Fin: true, Op: OpBinary, Length: int64(ChunkHeader + len(part))})
		err := c.writeChunk(appendChunkHeader(h, flags, number, seq), part)
		c.release()
		if err != nil || len(payload) == 0 {
			return err
		}
	}
}

// writeFrames sends frames as they are. c.mu is held.
func (c *Conn) writeFrames(ctx context.Context, frames []byte) error {
	for len(frames) > 0 {
		part := frames[:frameEnd(frames, min(len(frames), c.chunkSize()))]
		frames = frames[len(part):]
		if err := c.awaitChunk(ctx, len(part)); err != nil {
			c.giveUp()
			return err
		}
		err := c.writeChunk(nil, part)
		c.release()
		if err != nil {
			return err
		}
	}
	return nil
}

// chunkSize is the size of the next chunk. c.mu is held.
func (c *Conn) chunkSize() int {
	if cr := &c.bulk.credit; cr.adapts && !cr.explicit {
		return min(c.cfg.BulkChunk, int(cr.window/2))
	}
	return c.cfg.BulkChunk
}

func appendChunkHeader(dst []byte, flags byte, message, seq uint32) []byte {
	dst = append(dst, chunkVersion, flags, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, message)
	return binary.BigEndian.AppendUint32(dst, seq)
}

// writeFragments sends a message as one. Other messages cannot come between
// its fragments, so c.writing stays with it to the end. c.mu is held.
func (c *Conn) writeFragments(ctx context.Context, op Opcode, payload []byte) error {
	cr := &c.bulk.credit
	defer func() {
		cr.fragments = false
		cr.adopt()
	}()
	for first := true; ; first = false {
		part := payload[:min(len(payload), c.chunkSize())]
		payload = payload[len(part):]
		var err error
		if first {
			err = c.awaitChunk(ctx, len(part))
		} else {
			op, err = OpContinuation, c.awaitCredit(len(part))
		}
		if err != nil && first {
			c.giveUp()
		}
		if err != nil && !first {
			c.cut = true
			c.release()
		}
		if err != nil {
			return err
		}
		h := AppendHeader(c.bulk.header[:0], Header{Fin: len(payload) == 0, Op: op, Length: int64(len(part))})
		cr.fragments = len(payload) > 0
		if err := c.writeChunk(h, part); err != nil || len(payload) == 0 {
			c.release()
			return err
		}
	}
}

// awaitChunk waits until a chunk may be written: others have written what they
// had, and there is credit. It takes c.writing. c.mu is held.
func (c *Conn) awaitChunk(ctx context.Context, n int) error {
	c.flush()
	b := c.bulk
	return c.await(func() (bool, error) {
		if c.closeSent || c.err != nil {
			return false, c.refusal()
		}
		if c.cut {
			return false, ErrSlowReader
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if b.waiting && !b.credit.allows(n) { // any more
			c.giveUp()
		}
		if !b.credit.allows(n) {
			return false, nil
		}
		if c.writing && !b.handed {
			b.waiting = true
			b.since.set()
			return false, nil
		}
		c.writing, c.bulking, c.wanted = true, true, false
		b.waiting, b.handed, b.since = false, false, stamp{}
		return true, nil
	})
}

// giveUp ends the wait for a chunk's turn: what was held back for it leaves. c.mu
// is held.
func (c *Conn) giveUp() {
	b := c.bulk
	if b.handed {
		c.writing = false
		c.appendPong() // it was to go along with the chunk
		c.moved.Broadcast()
	}
	b.waiting, b.handed, b.since = false, false, stamp{}
	c.flush()
}

// awaitCredit waits in the middle of a message. When the connection is to be
// closed, or so many answers are waiting for the message to end that nothing is
// read any more, no pong either, it goes on without credit. c.mu is held, and
// c.writing the caller's.
func (c *Conn) awaitCredit(n int) error {
	return c.await(func() (bool, error) {
		if c.err != nil {
			return false, c.err
		}
		return c.closeSent || c.crowded() || c.bulk.credit.allows(n), nil
	})
}

// await waits until ready, at most for WriteTimeout without any progress of the
// peer. c.mu is held.
func (c *Conn) await(ready func() (bool, error)) error {
	start := time.Now()
	var timer *time.Timer
	for {
		ok, err := ready()
		if ok || err != nil {
			if timer != nil {
				timer.Stop()
				c.stats.BulkWait += time.Since(start)
			}
			return err
		}
		left := time.Until(c.bulk.progress.Add(c.cfg.WriteTimeout))
		switch {
		case left <= 0:
			return ErrSlowReader
		case timer == nil:
			timer = time.AfterFunc(left, c.nudge)
		default:
			timer.Reset(left)
		}
		c.moved.Wait()
	}
}

// release gives c.writing back and writes what has gathered meanwhile. c.mu is
// held.
func (c *Conn) release() {
	c.bulk.out = [3][]byte{}
	c.writing, c.bulking, c.wanted = false, false, false
	if c.cut {
		c.drop()
	}
	c.appendPong()
	c.moved.Broadcast()
	c.flush()
}

// writeChunk writes a frame's header and payload, and after it the ping that
// asks for its credit and the answer to the peer's latest ping. c.mu is held, but
// not during the write; c.writing is the caller's.
func (c *Conn) writeChunk(header, part []byte) error {
	b := c.bulk
	now := time.Now()
	b.trailer = b.credit.appendPing(b.trailer[:0], len(part), now)
	if c.pong != nil {
		b.trailer = AppendFrame(b.trailer, OpPong, c.pong[1:])
		c.pong = nil
	}
	b.out = [3][]byte{header, part, b.trailer}
	for patient := false; c.err == nil && b.left(); patient = true {
		if patient {
			c.setWriteDeadline(time.Now().Add(c.cfg.WriteTimeout))
		}
		c.mu.Unlock()
		n, err := c.sendVector(patient)
		c.mu.Lock()
		b.took(n)
		c.failWrite(err)
		if n > 0 {
			b.progress = time.Now()
		}
		if patient && c.err == nil {
			c.setWriteDeadline(time.Time{})
		}
	}
	if c.err != nil {
		if c.err == ErrWriteTimeout {
			c.reset()
		}
		return c.err
	}
	c.stats.BulkBytes += int64(len(part))
	c.stats.BulkChunks++
	return nil
}

func (b *bulk) left() bool {
	return len(b.out[0])+len(b.out[1])+len(b.out[2]) > 0
}

// took removes what has been written.
func (b *bulk) took(n int) {
	for i := range b.out {
		k := min(n, len(b.out[i]))
		b.out[i] = b.out[i][k:]
		n -= k
	}
}

// sendVector writes b.out once; if patient, after waiting for room.
func (c *Conn) sendVector(patient bool) (int, error) {
	b := c.bulk
	if c.raw == nil {
		for _, part := range b.out {
			if len(part) > 0 {
				return c.conn.Write(part[:min(len(part), writeChunk)])
			}
		}
	}
	b.patient, b.n, b.err = patient, 0, nil
	if err := c.raw.Write(b.tryVector); err != nil {
		return 0, err
	}
	return b.n, b.err
}

// tryVector writes once. If there is no room it has the runtime wait for some,
// if patient.
func (b *bulk) tryVector(fd uintptr) bool {
	n, err := sysWritev(fd, b.out[:])
	if err != nil && again(err) {
		return !b.patient
	}
	b.n, b.err = n, err
	return true
}
