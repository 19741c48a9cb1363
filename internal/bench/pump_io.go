package bench

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tidewire/tidewire/websocket"
)

// send makes one write at most, and asks the poller for writability if the
// kernel did not accept everything.
func (p *Pump) send(c *pumpConn) error {
	if c.done {
		return nil
	}
	if len(c.rest) == 0 {
		p.out = p.fill(c, p.out[:0])
		if len(p.out) == 0 {
			return p.want(c, false)
		}
		n, err := p.write(c, p.out)
		if err != nil {
			return err
		}
		c.rest = append(c.rest[:0], p.out[n:]...)
	} else {
		n, err := p.write(c, c.rest)
		if err != nil {
			return err
		}
		if c.rest = c.rest[:copy(c.rest, c.rest[n:])]; len(c.rest) == 0 {
			c.free = time.Since(p.start)
		}
	}
	return p.want(c, len(c.rest) > 0 || !c.closing && p.cfg.Rate == 0 && p.sendable(c) > 0 || p.finished(c) && !c.closing)
}

func (p *Pump) want(c *pumpConn, write bool) error {
	if write == c.writing {
		return nil
	}
	c.writing = write
	return p.poll.wantWrite(c.fd, write)
}

// finished reports whether c has nothing left to send or to wait for.
func (p *Pump) finished(c *pumpConn) bool {
	return c.sent == p.cfg.Messages && (p.cfg.Answer == NoAnswer || c.answered == p.cfg.Messages)
}

// fill appends the frames that may be sent now, and the Close frame after the last message.
func (p *Pump) fill(c *pumpConn, out []byte) []byte {
	n := p.sendable(c)
	if n > 0 && p.result.FirstFrame.IsZero() {
		p.result.FirstFrame = time.Now()
	}
	var now time.Duration
	if n > 0 && (p.cfg.Window > 0 || p.cfg.Rate > 0) {
		now = time.Since(p.start)
	}
	for ; n > 0 && len(out) < pumpWrite; n-- {
		out = c.frames.append(out, c.sent)
		if p.cfg.Window > 0 {
			c.sentAt[c.sent%p.cfg.Window] = now
		}
		if p.cfg.Rate > 0 {
			if due := p.due(c, c.sent); due >= c.free {
				p.late.record(now - due)
			}
		}
		c.sent++
	}
	if p.finished(c) && !c.closing {
		c.closing = true
		out = websocket.AppendHeader(out, websocket.Header{
			Fin: true, Op: websocket.OpClose, Masked: true, Length: 2}) // with a zero key the masked code is unchanged
		out = append(out, byte(websocket.StatusNormal>>8), byte(websocket.StatusNormal&0xff))
	}
	return out
}

func (p *Pump) write(c *pumpConn, b []byte) (int, error) {
	n, err := c.write(b)
	if err == unix.EAGAIN || err == unix.EINTR {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("client %d: write after %d messages: %w", c.index+1, c.sent, err)
	}
	return n, nil
}

// receive reads once and handles the frames without copying them.
func (p *Pump) receive(c *pumpConn) error {
	n, err := c.read(p.in)
	if c.buffered() {
		p.poll.unread.again(c.fd)
	}
	if err == unix.EAGAIN || err == unix.EINTR {
		return nil
	}
	if err == nil && n == 0 {
		err = errors.New("closed without a closing handshake")
	}
	if err != nil {
		return fmt.Errorf("client %d: read after %d answers: %w", c.index+1, c.answered, err)
	}
	b := p.in[:n]
	if len(c.partial) > 0 {
		c.partial = append(c.partial, b...)
		b = c.partial
	}
	used, err := p.walk(c, b)
	if err != nil || c.done {
		return err
	}
	c.partial = append(c.partial[:0], b[used:]...)
	if p.sendable(c) > 0 || p.finished(c) {
		return p.send(c)
	}
	return nil
}

// walk handles the whole frames in b and returns how many bytes they are.
func (p *Pump) walk(c *pumpConn, b []byte) (used int, err error) {
	now := time.Duration(-1) // asked for once a read, and only if needed
	for {
		h, n, err := websocket.ParseHeader(b[used:])
		if err != nil {
			return 0, fmt.Errorf("client %d: %w", c.index+1, err)
		}
		if n == 0 || int64(len(b)-used-n) < h.Length {
			return used, nil
		}
		payload := b[used+n : used+n+int(h.Length)]
		used += n + int(h.Length)
		switch {
		case h.Op == websocket.OpClose:
			return used, p.closed(c)
		case h.Op >= websocket.OpClose: // pings need no answer within a run
			continue
		}
		if now < 0 {
			now = time.Since(p.start)
		}
		if err := p.answer(c, payload, now); err != nil {
			return 0, err
		}
	}
}

func (p *Pump) answer(c *pumpConn, payload []byte, now time.Duration) error {
	answered := c.answered + 1
	switch p.cfg.Answer {
	case CountAnswer:
		n, err := strconv.Atoi(string(payload))
		if err != nil {
			return fmt.Errorf("client %d: answer %q is no count", c.index+1, payload)
		}
		answered = n
	case EchoAnswer:
		client, seq, ok := ParsePayload(payload, p.filler)
		if !ok || client != c.index || seq != c.answered {
			return fmt.Errorf("client %d: echo %d is not message %d as it was sent", c.index+1, c.answered, c.answered)
		}
	default:
		return fmt.Errorf("client %d: got %q though nothing was asked for", c.index+1, payload)
	}
	if answered <= c.answered || answered > c.sent {
		return fmt.Errorf("client %d: answer counts %d after %d, with %d sent", c.index+1, answered, c.answered, c.sent)
	}
	if p.heldUp(c) {
		c.free = now
	}
	for seq := c.answered; seq < answered; seq++ {
		switch {
		case p.cfg.Rate > 0:
			p.latency.record(now - p.due(c, seq))
		case p.cfg.Window > 0:
			p.latency.record(now - c.sentAt[seq%p.cfg.Window])
		}
	}
	c.answered = answered
	return nil
}

func (p *Pump) closed(c *pumpConn) error {
	if !c.closing {
		return fmt.Errorf("client %d: server closed after %d of %d messages", c.index+1, c.sent, p.cfg.Messages)
	}
	c.done = true
	c.close()
	p.open--
	p.result.Closed++
	p.result.LastClose = time.Now()
	return nil
}
