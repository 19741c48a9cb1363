package bench

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tidewire/tidewire/websocket"
)

// state of a session.
type state int

const (
	joining state = iota // the join is on its way, no answer yet
	member
	left // the leave is on its way
)

// chatSession is one connection. Only the run's goroutine uses it.
type chatSession struct {
	client    int
	rawSocket // fd is -1: closed
	state     state
	rest      []byte // to be sent, and not accepted by the kernel yet
	partial   []byte // the part of a frame that has arrived
	writing   bool   // the poller reports writability
	check     *chatCheck
	until     time.Duration // chats sent until then are expected; 0 while it is a member
}

func (s *chatSession) waitingFor() string {
	if s.state == joining {
		return "join"
	}
	return "close"
}

// join takes over an open connection and sends the join. The pong confirms it,
// since a server handles the messages of a connection in order.
func (c *chatRun) join(d dialed) {
	s := &chatSession{client: d.client, rawSocket: d.socket, partial: d.leftover}
	if err := c.poll.add(s.fd); err != nil {
		s.close()
		c.fail("connect", err)
		return
	}
	c.byFD[s.fd] = s
	c.clients[s.client].session = s
	if s.client*c.cfg.Checked/c.cfg.Clients != (s.client+1)*c.cfg.Checked/c.cfg.Clients { // evenly over the clients
		s.check = newChatCheck(s.client, c.cfg.Clients, len(c.history.due))
	}
	batch := ""
	if c.cfg.Compress {
		batch = `,"batch":true`
	}
	s.rest = appendText(s.rest, `{"type":"join","room":"public","user":"u%05d"%s}`, s.client, batch)
	s.rest = appendText(s.rest, `{"type":"ping","ts":%d}`, time.Now().UnixMilli())
	c.after(c.now()+c.cfg.Patience, timeoutDue, s.client, s)
	c.flush(s)
}

// joined starts the timers of a member.
func (c *chatRun) joined(s *chatSession) {
	now := c.now()
	s.state = member
	c.mark.Open++
	c.result.Peak = max(c.result.Peak, c.mark.Open)
	if s.check != nil {
		s.check.joined = now
	}
	if c.phase >= leaving {
		c.leave(s)
		return
	}
	if c.cfg.Greet {
		c.say(s, now)
	}
	if c.cfg.Rate > 0 {
		c.after(c.nextChat(s.client, now), chatDue, s.client, s)
	}
	if end := now + c.cfg.Session; c.cfg.moving() && end < c.cfg.Return {
		c.after(end, sessionDue, s.client, s)
	}
}

// nextChat returns when a client sends its next chat: the chats of all clients
// together are evenly spaced.
func (c *chatRun) nextChat(client int, now time.Duration) time.Duration {
	period := time.Duration(float64(time.Second) / c.cfg.Rate)
	at := period * time.Duration(client) / time.Duration(len(c.clients))
	if behind := now - at; behind > 0 {
		at += (behind + period - 1) / period * period
	}
	return at
}

// chat sends a chat and sets the timer for the next one.
func (c *chatRun) chat(s *chatSession, due time.Duration) {
	if s.state != member {
		return
	}
	c.after(due+time.Duration(float64(time.Second)/c.cfg.Rate), chatDue, s.client, s)
	if c.phase == holding && due >= c.since+c.cfg.Hold {
		return // belongs to what comes after the hold
	}
	if len(s.rest) > 0 {
		if c.phase == holding {
			c.result.Unsent++ // the server has not even read the previous chat
		}
		return
	}
	c.say(s, due)
}

func (c *chatRun) say(s *chatSession, due time.Duration) {
	now, mark := c.now(), byte(notInHold)
	if c.phase == holding || c.cfg.moving() {
		mark = inHold
		c.held++
		c.clients[s.client].said++
	}
	n := c.history.add(s.client, due, now)
	s.rest = appendChat(s.rest, s.client, n, c.cfg.Payload, mark, c.start.Add(now))
	c.mark.Sent++
	c.late.record(now - due)
	c.flush(s)
}

// leave ends a membership with a leave and a closing handshake.
func (c *chatRun) leave(s *chatSession) {
	if s.state != member {
		return
	}
	now := c.now()
	s.state, s.until = left, c.expectedUntil(now)
	c.mark.Open--
	s.rest = appendLeave(s.rest)
	c.after(now+c.cfg.Patience, timeoutDue, s.client, s)
	c.flush(s)
}

// drop closes a connection that failed.
func (c *chatRun) drop(s *chatSession, kind string, err error) {
	c.fail(kind, fmt.Errorf("client %d: %w", s.client, err))
	c.closed(s)
}

// closed forgets a session and counts the chats that it should have received.
func (c *chatRun) closed(s *chatSession) {
	now := c.now()
	if s.state == member {
		c.mark.Open--
		s.until = c.expectedUntil(now)
	}
	if s.check != nil {
		c.result.Checked.add(s.check.finish(&c.history, c.cfg.joinMargin(), s.until))
	}
	delete(c.byFD, s.fd)
	s.close()
	s.fd = -1
	c.clients[s.client].session = nil
	pause := time.Duration(0)
	if s.state != left {
		pause = errorPause
	}
	c.comeBack(s.client, pause)
}

// flush gives the kernel as much as it accepts.
func (c *chatRun) flush(s *chatSession) {
	if len(s.rest) > 0 {
		n, err := s.write(s.rest)
		switch {
		case err == unix.EAGAIN || err == unix.EINTR:
		case err != nil:
			c.drop(s, "write", err)
			return
		default:
			s.rest = s.rest[:copy(s.rest, s.rest[n:])]
		}
	}
	if want := len(s.rest) > 0; want != s.writing {
		s.writing = want
		if err := c.poll.wantWrite(s.fd, want); err != nil {
			c.drop(s, "write", err)
		}
	}
}

// receive reads once and handles the frames without copying them.
func (c *chatRun) receive(s *chatSession) {
	have := copy(c.in, s.partial)
	n, err := s.read(c.in[have:])
	if s.buffered() {
		c.poll.unread.again(s.fd)
	}
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return
	case err == nil && n == 0:
		err = errors.New("closed without a closing handshake")
	}
	if err != nil {
		c.drop(s, "read", err)
		return
	}
	c.mark.Bytes += n
	b := c.in[:have+n]
	used, err := c.walk(s, b)
	switch {
	case s.fd < 0: // closed since the event
	case err != nil:
		c.drop(s, "protocol", err)
	case used == 0 && len(b) == len(c.in):
		c.drop(s, "protocol", fmt.Errorf("a frame of more than %d bytes", len(b)))
	default:
		s.partial = append(s.partial[:0], b[used:]...)
	}
}

// walk handles the complete frames in b and returns their size in bytes. It
// recognises a frame with a 16-bit length, as chats have, without a function
// call.
func (c *chatRun) walk(s *chatSession, b []byte) (used int, err error) {
	now := c.now()
	client := &c.clients[s.client]
	for s.fd >= 0 {
		rest := b[used:]
		if len(rest) >= 4 && rest[0] == 0x81 && rest[1] == 126 {
			length := int(rest[2])<<8 | int(rest[3])
			if len(rest) < 4+length {
				return used, nil
			}
			used += 4 + length
			if payload := rest[4 : 4+length]; length == c.cfg.Payload && payload[chatMark] == '~' {
				c.mark.Deliveries++
				if payload[chatMark+1] == inHold {
					client.heard++
				}
				if s.check != nil {
					c.check(s, payload[chatMark:chatMark+2+MinPayload], now)
				}
				continue
			}
			c.message(s, rest[4:4+length], now)
			continue
		}
		h, n, err := websocket.ParseHeader(rest)
		if err != nil {
			return used, err
		}
		if n == 0 || int64(len(rest)-n) < h.Length {
			return used, nil
		}
		used += n + int(h.Length)
		if err := c.frame(s, h, rest[n:n+int(h.Length)], now); err != nil {
			return used, err
		}
	}
	return used, nil
}

// frame handles a frame that is not a chat of the usual size.
func (c *chatRun) frame(s *chatSession, h websocket.Header, payload []byte, now time.Duration) error {
	switch {
	case c.cfg.Compress && h.RSV == compressedRSV:
		return c.compressed(s, payload, now)
	case h.RSV != 0:
		return fmt.Errorf("a frame with the reserved bits %03b", h.RSV)
	}
	switch h.Op {
	case websocket.OpText:
		c.message(s, payload, now)
	case websocket.OpPing:
		s.rest = websocket.AppendMaskedFrame(s.rest, websocket.OpPong, maskKey(), payload)
		c.flush(s)
	case websocket.OpClose:
		if s.state != left {
			c.drop(s, "read", fmt.Errorf("closed by the server: %q", payload))
			return nil
		}
		c.closed(s)
	}
	return nil
}

// message handles any other text message.
func (c *chatRun) message(s *chatSession, payload []byte, now time.Duration) {
	if c.cfg.Compress && len(payload) > 0 && payload[0] == '[' { // hardly compressible
		c.deliver(s, c.read(payload), now)
		return
	}
	if text := chatText(payload, c.cfg.Payload); text != nil {
		c.mark.Deliveries++
		if text[1] == inHold {
			c.clients[s.client].heard++
		}
		if s.check != nil {
			c.check(s, text, now)
		}
		return
	}
	switch m := parseNotice(payload); m.Type {
	case "pong":
		if s.state == joining {
			c.joined(s)
		}
	case "ping":
		s.rest = appendText(s.rest, `{"type":"pong"}`)
		c.flush(s)
	case "gap":
		c.result.Missed += m.Missed
	}
}

// check checks a chat that arrived.
func (c *chatRun) check(s *chatSession, text []byte, now time.Duration) {
	client, n, ok := parseName(text[2:])
	if !ok || client >= len(c.clients) || n >= len(c.history.due) {
		return // not one of this run's chats: the missing chat is counted elsewhere
	}
	first := s.check.arrived(client, n)
	if text[1] == inHold {
		if !first {
			c.clients[s.client].again++
		}
		c.latency.record(now - c.history.due[n])
	}
}
