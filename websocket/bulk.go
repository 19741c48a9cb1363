package websocket

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

var errBulkClient = errors.New("websocket: a client has no bulk lane")

// Layout of the chunk header, with which every binary message to a peer that
// reassembles chunks begins.
const (
	// ChunkHeader is its size in bytes: version (1), flags (1), two zero bytes,
	// message number (4) and number of the chunk in the message (4). Both numbers
	// start at 0 and are big endian.
	ChunkHeader = 12

	chunkVersion = 1
	// ChunkLast marks the last chunk of a message, ChunkText a text message.
	ChunkLast, ChunkText = 1, 2
)

// bulk is the state of a connection's bulk lane, which most connections do not
// use. Guarded by Conn.mu, except the fields of the chunk's writer, which are
// guarded by the ownership of Conn.writing.
type bulk struct {
	turn     chan struct{} // a semaphore of one slot: its holder may send a message
	message  uint32        // number of the next message to be sent in chunks
	credit   credit
	progress time.Time // when the peer last acknowledged bulk data, or its socket last took some
	wrote    time.Time // when the socket last took data of the other lanes
	waiting  bool      // a chunk that has credit waits for Conn.writing
	since    stamp     // since when
	handed   bool      // Conn.writing is kept for that chunk

	// Guarded by the ownership of Conn.writing.
	out     [3][]byte // header, part of the payload, trailer
	header  [MaxHeader + ChunkHeader]byte
	trailer []byte
	patient bool
	n       int
	err     error
}

// bulkState returns c.bulk and creates it if it is nil. c.mu is held.
func (c *Conn) bulkState() *bulk {
	if c.bulk == nil {
		c.bulk = &bulk{turn: make(chan struct{}, 1), credit: newCredit(c.cfg)}
	}
	return c.bulk
}

// SetChunked says that the peer reassembles chunks. From now on every binary
// message to it begins with a chunk header, and a large bulk message is sent as
// several binary messages, with other messages between them. To other peers a
// large bulk message is sent as one message in fragments, and only control
// frames can be sent between fragments.
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
// It waits while too many bytes are unacknowledged (Config.BulkCredit). If the
// peer reads and acknowledges nothing for WriteTimeout, the error is
// ErrSlowReader: close the connection then, nothing but a Close frame can
// follow. If WriteBulk returns ctx's error, nothing of the message was sent, or
// the peer has received some of its chunks and will never receive the rest. To
// a peer without SetChunked, a message that has begun is sent to its end.
func (c *Conn) WriteBulk(ctx context.Context, op Opcode, payload []byte) error {
	if op != OpText && op != OpBinary {
		return fmt.Errorf("websocket: cannot send %v on the bulk lane", op)
	}
	return c.inTurn(ctx, func() error {
		c.traffic.out++
		if c.chunked {
			return c.writeChunks(ctx, op, payload)
		}
		return c.writeFragments(ctx, op, payload)
	})
}

// WriteBulkFrames is WriteBulk for any number of small text messages that
// AppendFrame encoded one after the other. Messages of the other lanes are sent
// between two of them, about every Config.BulkChunk bytes.
func (c *Conn) WriteBulkFrames(ctx context.Context, frames []byte) error {
	return c.inTurn(ctx, func() error { return c.writeFrames(ctx, frames) })
}

// inTurn waits for the bulk lane and calls send, which writes on it, with c.mu
// held.
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
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.BulkWait += time.Since(start)
	b.progress = time.Now()
	return send()
}

// nudge wakes all goroutines that wait for c.moved.
func (c *Conn) nudge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved.Broadcast()
}

// writeChunks sends a message as chunks, each of which is a separate WebSocket
// message. c.mu is held.
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

// writeFrames sends frames without a chunk header. c.mu is held.
func (c *Conn) writeFrames(ctx context.Context, frames []byte) error {
	for len(frames) > 0 {
		end, messages := frameEnd(frames, min(len(frames), c.chunkSize()))
		part := frames[:end]
		frames = frames[end:]
		if err := c.awaitChunk(ctx, len(part)); err != nil {
			c.giveUp()
			return err
		}
		err := c.writeChunk(nil, part)
		c.release()
		if err != nil {
			return err
		}
		c.traffic.out += int64(messages)
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

// writeFragments sends a message in fragments. No other message may be sent
// between fragments, so it owns c.writing until the end. c.mu is held.
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

// awaitChunk waits until a chunk may be written: the other lanes have sent
// their messages, and there is credit. It acquires c.writing. c.mu is held.
func (c *Conn) awaitChunk(ctx context.Context, n int) error {
	c.flush()
	b := c.bulk
	return c.await(ctx, func() (bool, error) {
		if c.closeSent || c.err != nil {
			return false, c.refusal()
		}
		if c.cut {
			return false, ErrSlowReader
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if b.waiting && !b.credit.allows(n) { // no longer
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

// giveUp ends the wait for a chunk's turn and flushes the messages that were
// delayed for it. c.mu is held.
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

// awaitCredit waits for credit in the middle of a message. It does not wait
// when the connection is to be closed, or when so many answers wait for the end
// of the message that reading has stopped, so that no pong would arrive. c.mu
// is held, and the caller owns c.writing.
func (c *Conn) awaitCredit(n int) error {
	return c.await(context.Background(), func() (bool, error) {
		if c.err != nil {
			return false, c.err
		}
		return c.closeSent || c.crowded() || c.bulk.credit.allows(n), nil
	})
}

// await waits until ready returns true or an error. It calls ready again when ctx
// ends. It fails with ErrSlowReader when the peer makes no progress for WriteTimeout.
// c.mu is held.
func (c *Conn) await(ctx context.Context, ready func() (bool, error)) error {
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
		left := time.Until(c.bulk.deadline(c.cfg.WriteTimeout))
		switch {
		case left <= 0:
			return ErrSlowReader
		case timer == nil:
			timer = time.AfterFunc(left, c.nudge)
			defer context.AfterFunc(ctx, c.nudge)() // only a message that waits pays for it
		default:
			timer.Reset(left)
		}
		c.moved.Wait()
	}
}

// slowBytes is how many unacknowledged bytes double the time that a peer has to acknowledge them: at 4 KiB/s
// they take 30 s, the default of WriteTimeout. A peer on a slower line than that may be cut off.
const slowBytes = 120 << 10

// deadline is when a peer without progress reads too slowly. Answers and pings that its socket takes are progress
// only for a chunk that waits for them to leave: a peer that acknowledges no bulk data does not take it.
func (b *bulk) deadline(timeout time.Duration) time.Time {
	last := b.progress
	if b.waiting && b.wrote.After(last) {
		last = b.wrote
	}
	slow := min(b.credit.outstanding(), slowBytes)
	return last.Add(timeout + time.Duration(float64(timeout)*float64(slow)/slowBytes))
}

// release releases c.writing and flushes the messages queued meanwhile. c.mu is
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

// writeChunk writes a frame's header and payload, then the ping that asks for its
// credit and the answer to the peer's latest ping. c.mu is held, but not during
// the write; the caller owns c.writing.
func (c *Conn) writeChunk(header, part []byte) error {
	b := c.bulk
	now := time.Now()
	b.trailer = b.credit.appendPing(b.trailer[:0], len(part), now)
	if c.pong != nil {
		b.trailer = AppendFrame(b.trailer, OpPong, c.pong[1:])
		c.pong = nil
	}
	b.out = [3][]byte{header, part, b.trailer}
	for patient := false; c.err == nil && (b.left() || c.sealed > 0); patient = true {
		if patient {
			c.setWriteDeadline(time.Now().Add(c.cfg.WriteTimeout))
		}
		c.mu.Unlock()
		n, err := c.sendVector(patient)
		c.mu.Lock()
		b.took(n)
		took := c.countSealed() + n
		c.failWrite(err)
		if took > 0 {
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

// took removes the n bytes that were written.
func (b *bulk) took(n int) {
	for i := range b.out {
		k := min(n, len(b.out[i]))
		b.out[i] = b.out[i][k:]
		n -= k
	}
}

// sendVector writes b.out once; if patient, after waiting for room. It counts what was written.
func (c *Conn) sendVector(patient bool) (int, error) {
	n, err := c.sendVectorOnce(patient)
	c.traffic.written.Add(int64(max(n, 0)))
	return n, err
}

func (c *Conn) sendVectorOnce(patient bool) (int, error) {
	b := c.bulk
	if c.secure != nil {
		return c.sendSecure(b.out[:], patient)
	}
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

// tryVector writes once. If there is no room and b.patient is set, it lets the
// runtime wait for some.
func (b *bulk) tryVector(fd uintptr) bool {
	n, err := sysWritev(fd, b.out[:])
	if err != nil && again(err) {
		return !b.patient
	}
	b.n, b.err = n, err
	return true
}
