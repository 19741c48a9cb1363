package bench

import (
	"encoding/binary"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/tidewire/tidewire/websocket"
)

// walk handles bytes as they arrive. A frame may be larger than any buffer, so
// its payload is handled piece by piece.
func (r *lanesRun) walk(c *lanesConn, b []byte) error {
	for len(b) > 0 {
		if c.left == 0 {
			n, err := c.open(b)
			if err != nil {
				return err
			}
			b = b[n:]
			if len(c.header) > 0 { // the rest of it is still to come
				return nil
			}
			if c.left > 0 {
				continue
			}
		} else {
			n := min(int64(len(b)), c.left)
			c.piece(b[:n])
			b, c.left = b[n:], c.left-n
		}
		if c.left == 0 {
			if err := r.frameDone(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// open takes the header of the next frame from b, or the part of it that has arrived.
func (c *lanesConn) open(b []byte) (n int, err error) {
	had := len(c.header)
	c.header = append(c.header, b[:min(len(b), websocket.MaxHeader)]...)
	h, size, err := websocket.ParseHeader(c.header)
	if err != nil {
		return 0, err
	}
	if size == 0 {
		return len(c.header) - had, nil
	}
	c.header, c.frame, c.left = c.header[:0], h, h.Length
	switch {
	case h.Op >= websocket.OpClose:
		c.control = c.control[:0]
	case c.chunked && h.Op == websocket.OpBinary:
		c.into, c.arrived = &c.chunks, 0
	default:
		c.into = &c.whole
	}
	return size - had, nil
}

// piece handles a part of a frame's payload.
func (c *lanesConn) piece(b []byte) {
	if c.frame.Op >= websocket.OpClose {
		c.control = append(c.control, b...)
		return
	}
	if c.into == &c.chunks && c.arrived < len(c.chunk) {
		n := copy(c.chunk[c.arrived:], b)
		c.arrived += n
		b = b[n:]
	}
	c.into.data = append(c.into.data, b...)
}

// frameDone handles a complete frame.
func (r *lanesRun) frameDone(c *lanesConn) error {
	done := c.frame.Fin
	switch {
	case c.frame.Op == websocket.OpPing:
		c.out = websocket.AppendMaskedFrame(c.out, websocket.OpPong, maskKey(), c.control)
		return r.flush(c)
	case c.frame.Op == websocket.OpClose:
		return fmt.Errorf("closed by the server: %q", c.control)
	case c.frame.Op == websocket.OpPong:
		return nil
	case c.into == &c.chunks:
		done = c.chunkDone()
	}
	if done {
		r.messageDone(c.into)
		c.into.data, c.into.wrong = c.into.data[:0], false
	}
	return nil
}

// chunkDone checks a chunk's header and reports whether it was the last one.
func (c *lanesConn) chunkDone() bool {
	if c.arrived < len(c.chunk) || c.chunk[0] != 1 || binary.BigEndian.Uint32(c.chunk[8:]) != c.seq {
		c.chunks.wrong = true
	}
	c.seq++
	if c.chunk[1]&websocket.ChunkLast == 0 {
		return false
	}
	c.seq = 0
	return true
}

// messageDone handles a complete message: an echo or a dummy.
func (r *lanesRun) messageDone(m *lanesMessage) {
	if !utf8.Valid(m.data) {
		m.wrong = true
	}
	if len(m.data) <= uuidSize {
		if n, ok := r.waiting[string(m.data)]; ok {
			delete(r.waiting, string(m.data))
			r.result.Answered++
			r.result.Elapsed = time.Since(r.start)
			r.latency.record(r.result.Elapsed - r.due(n))
			if n < r.newest {
				r.result.Reordered++
			}
			r.newest = max(r.newest, n)
			return
		}
	}
	r.result.Dummies++
	r.result.DummyBytes += int64(len(m.data))
	if m.wrong || len(m.data) != r.cfg.DummySize || m.data[0] != 'd' || m.data[len(m.data)-1] != 'd' {
		r.result.Broken++
	}
}
