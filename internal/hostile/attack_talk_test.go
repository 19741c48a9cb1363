package hostile

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// upgrade is a proper handshake without its last line, with the path and the head.
const upgrade = "GET %s HTTP/1.1\r\n%sUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

// peer is a WebSocket of an attacker that reads.
type peer struct {
	*net.TCPConn
	in *bufio.Reader
}

// dial returns a WebSocket; nil if the server rejects it, which it may.
func (a *attacker) dial(path string) *peer { return a.begin(a.connect(evilDialer()), path) }

// begin makes a connection a WebSocket. The token goes into the handshake, or into the first message.
func (a *attacker) begin(c *net.TCPConn, path string) *peer {
	if c == nil {
		return nil
	}
	token := a.credential()
	inMessage := token != "" && (path == "/ws" || path == "/ws/chat") && a.pick(2) == 0
	head := "Host: " + a.addr + "\r\n"
	if token != "" && !inMessage {
		head += "Authorization: " + bearer(token) + "\r\n"
	}
	if !a.upgrade(c, path, head) {
		c.Close()
		return nil
	}
	if mustRefuse := a.standing != entitled && !inMessage && (token != "" || path != "/ws" && path != "/ws/chat"); mustRefuse {
		a.wrong("taken", "a handshake on %s with the token %.60q was accepted", path, token)
	}
	if inMessage {
		text(c, `{"type":"auth","token":%q}`, token)
	}
	return &peer{TCPConn: c, in: bufio.NewReader(c)}
}

// upgrade does a handshake, byte by byte so that nothing is read that comes after, and reports whether it was accepted.
func (a *attacker) upgrade(c *net.TCPConn, path, head string) bool {
	c.SetDeadline(time.Now().Add(patience))
	defer c.SetDeadline(time.Time{})
	if _, err := fmt.Fprintf(c, upgrade+"\r\n", path, head); err != nil {
		return false
	}
	var answer []byte
	for one := make([]byte, 1); !strings.HasSuffix(string(answer), "\r\n\r\n") && len(answer) < 4096; answer = append(answer, one[0]) {
		if _, err := c.Read(one); err != nil {
			return false
		}
	}
	return strings.HasPrefix(string(answer), "HTTP/1.1 101 ")
}

// silent returns a WebSocket that is never read; nil if there is none.
func (a *attacker) silent(path string) *net.TCPConn {
	if p := a.begin(a.raw(), path); p != nil {
		return p.TCPConn
	}
	return nil
}

// status reads the status of an answer; 0 if there is none.
func (a *attacker) status(c net.Conn) int {
	c.SetReadDeadline(time.Now().Add(patience))
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	answer.Body.Close()
	return answer.StatusCode
}

// text sends a text message, and reports whether the socket accepted it.
func text(c *net.TCPConn, format string, args ...any) bool {
	return frame(c, websocket.OpText, fmt.Appendf(nil, format, args...))
}

func frame(c *net.TCPConn, op websocket.Opcode, payload []byte) bool {
	if c == nil {
		return false
	}
	_, err := c.Write(websocket.AppendMaskedFrame(nil, op, [4]byte{1, 2, 3, 4}, payload))
	return err == nil
}

// beginning returns the header of a masked frame that announces a payload.
func beginning(op websocket.Opcode, fin bool, length int) []byte {
	return websocket.AppendHeader(nil, websocket.Header{Fin: fin, Op: op, Masked: true, Key: [4]byte{1, 2, 3, 4}, Length: int64(length)})
}

// next returns the next text message of one frame; nothing and no error if none begins within a moment. It answers pings.
func (p *peer) next() (payload []byte, err error) {
	p.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	for n := 2; ; n++ {
		head, err := p.in.Peek(n)
		if n == 2 && isTimeout(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		p.SetReadDeadline(time.Now().Add(patience))
		h, used, err := websocket.ParseHeader(head)
		if err != nil {
			return nil, err
		}
		if used == 0 {
			continue
		}
		p.in.Discard(used)
		payload = make([]byte, h.Length)
		if _, err := io.ReadFull(p.in, payload); err != nil {
			return nil, err
		}
		switch h.Op {
		case websocket.OpText:
			return payload, nil
		case websocket.OpPing:
			frame(p.TCPConn, websocket.OpPong, payload)
		case websocket.OpClose:
			return nil, io.EOF
		}
		return nil, nil
	}
}

// heard has the answers of a conversation, by request id, and how it ended.
type heard struct {
	answers map[int]message
	err     error
}

// converse sends messages on a new connection, with ids from 1 on, and returns when all are answered or the connection has ended.
func (a *attacker) converse(path string, requests ...string) heard {
	h := heard{answers: make(map[int]message)}
	p := a.dial(path)
	if p == nil {
		h.err = net.ErrClosed
		return h
	}
	defer p.Close()
	g := a.w.current()
	a.calls.Go(func() { // the server need not read while its answers are not read
		for _, r := range requests {
			if !text(p.TCPConn, "%s", r) {
				return
			}
		}
	})
	for since := time.Now(); h.err == nil && a.Err() == nil && len(h.answers) < len(requests); {
		var payload []byte
		if payload, h.err = p.next(); payload != nil {
			a.hear(payload, h.answers)
		}
		if time.Since(since) > patience && h.err == nil && !g.stopping() {
			a.wrong("no answer", "%d of %d requests have no answer within %v, %.200s among the requests", len(requests)-len(h.answers), len(requests), patience, requests[0])
			h.err = io.ErrNoProgress
		}
	}
	return h
}

// hear notes a message. Attackers without a good token get errors alone.
func (a *attacker) hear(payload []byte, answers map[int]message) {
	var m message
	if err := json.Unmarshal(payload, &m); err != nil {
		a.wrong("not understood", "%.200q: %v", payload, err)
		return
	}
	if a.standing != entitled && m.Type != "error" && m.Type != "pong" && m.Type != "ping" {
		a.wrong("taken", "without a good token, the server sent %.300s", payload)
	}
	if a.w.gate != nil && (strings.HasPrefix(m.Payload, "good-") || strings.HasPrefix(m.Payload, "shared-") || strings.HasPrefix(m.Payload, "job ") || strings.HasPrefix(m.Text, "talker ")) {
		a.wrong("taken", "the server sent what others have stored: %.300s", payload)
	}
	if m.ID > 0 && (m.Type == "ok" || m.Type == "error") {
		answers[m.ID] = m
	}
}

// call makes a request by HTTP and returns the answer, with status 0 if there is
// none. Headers are pairs; Host is one of them, and Authorization replaces the attacker's token.
func (a *attacker) call(method, path, body string, headers ...string) (status int, answer string) {
	return a.callWithin(a, method, path, body, headers...)
}

// callWithin is call for a request that ends with ctx: a long poll, or a stream of events.
func (a *attacker) callWithin(ctx context.Context, method, path, body string, headers ...string) (status int, answer string) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+a.addr+path, strings.NewReader(body))
	if err != nil {
		return 0, ""
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if token := a.credential(); token != "" {
		r.Header.Set("Authorization", bearer(token))
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		} else {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	text, status, err := do(a.client, r)
	if err != nil {
		return 0, ""
	}
	if a.standing != entitled && status/100 == 2 {
		a.wrong("taken", "without a good token, %s %.200s was answered %d %.200s", method, path, status, text)
	}
	return status, string(text)
}

// denied checks that an HTTP request is rejected with a 4xx, if it is answered.
func (a *attacker) denied(method, path, body string, headers ...string) {
	status, answer := a.call(method, path, body, headers...)
	if status != 0 && status/100 != 4 && status != http.StatusServiceUnavailable {
		a.wrong("taken", "%s %.200s with %.200q %q was answered %d %.200s, want 4xx", method, path, body, headers, status, answer)
	}
}
