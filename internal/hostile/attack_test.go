package hostile

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// attack is one kind of attack.
type attack struct {
	name string
	ends ending
	run  func(*attacker)
}

// ending says when an attack ends.
type ending int

const (
	lasting ending = iota // when its time is up
	brief                 // when all its requests are answered: it is not cut short
)

// attacker runs one attack. Its sockets are closed, with a reset, when its time
// is up.
type attacker struct {
	context.Context
	w      *world
	name   string
	addr   string
	random *rand.Rand
	scale  int // 1 in a short run; more connections and bytes in a long one

	mu    sync.Mutex // guards open
	open  []io.Closer
	gone  bool
	calls sync.WaitGroup
}

// perform runs one attack for a while.
func (w *world) perform(ctx context.Context, a attack, addr string, seed uint64, scale int, length time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	it := &attacker{Context: ctx, w: w, name: a.name, addr: addr, random: rand.New(rand.NewPCG(seed, 15)), scale: scale}
	release := context.AfterFunc(ctx, it.close)
	a.run(it)
	cancel()
	if release() {
		it.close()
	}
	it.calls.Wait()
}

func (a *attacker) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = true
	for _, c := range a.open {
		c.Close()
	}
}

// own makes c close when the attack is over, and reports whether the attack still runs.
func (a *attacker) own(c io.Closer) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		c.Close()
		return false
	}
	a.open = append(a.open, c)
	return true
}

// hold waits until the attack is over.
func (a *attacker) hold() { <-a.Done() }

// pause waits, and reports whether the attack still runs.
func (a *attacker) pause(d time.Duration) bool {
	select {
	case <-a.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// side runs n calls in parallel and returns when all have returned.
func (a *attacker) side(n int, call func(i int)) {
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() { call(i) })
	}
	running.Wait()
}

// wrong records an answer that the server must not give to any client.
func (a *attacker) wrong(kind, format string, args ...any) {
	if a.Err() == nil {
		a.w.fault("attack "+a.name, kind, format, args...)
	}
}

// raw returns a TCP connection with small buffers; nil if the server rejects
// it, which it may.
func (a *attacker) raw() *net.TCPConn {
	d := net.Dialer{Timeout: patience, Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
	}}
	c, err := d.DialContext(a, "tcp", a.addr)
	if err != nil {
		return nil
	}
	tcp := c.(*net.TCPConn)
	tcp.SetLinger(0)
	if !a.own(tcp) {
		return nil
	}
	return tcp
}

// silent returns a WebSocket that is never read; nil if there is none.
func (a *attacker) silent(path string) *net.TCPConn {
	c := a.raw()
	if c == nil {
		return nil
	}
	u := &url.URL{Scheme: "ws", Host: a.addr, Path: path}
	if _, err := websocket.ClientHandshake(c, u); err != nil {
		return nil
	}
	return c
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

// heard has the answers of a conversation, by request id, and how it ended.
type heard struct {
	answers map[int]message
	err     error
}

// converse sends messages on a new connection, with ids from 1 on, and returns
// when all are answered or the connection has ended.
func (a *attacker) converse(path string, requests ...string) heard {
	return a.talk(path, func(h heard) bool { return len(h.answers) == len(requests) }, requests...)
}

// talk is converse that ends when enough returns true.
func (a *attacker) talk(path string, enough func(heard) bool, requests ...string) heard {
	h := heard{answers: make(map[int]message)}
	c, err := websocket.Dial(a, "ws://"+a.addr+path, websocket.Config{MaxMessage: 4 << 20})
	if err != nil {
		h.err = err
		return h
	}
	defer c.Abort()
	l := &line{Conn: c, w: a.w, who: "attack " + a.name, in: a.w.current(), asked: make(map[int]time.Time)}
	for i, r := range requests {
		l.ask(i+1, "%s", r)
	}
	for h.err == nil && a.Err() == nil && !enough(h) {
		h.err = l.next(func(m message) {
			if m.ID > 0 && (m.Type == "ok" || m.Type == "error") {
				h.answers[m.ID] = m
			}
		})
	}
	return h
}

// refusal checks that the request, with id 1, is rejected with one of the
// codes, if it is answered.
func (a *attacker) refusal(path, request string, codes ...string) {
	m, answered := a.converse(path, request).answers[1]
	if !answered {
		return
	}
	for _, code := range codes {
		if m.Type == "error" && m.Code == code {
			return
		}
	}
	a.wrong("taken", "%.300s on %s was answered %+v, want one of %v", request, path, m, codes)
}

// refusalOrNone is refusal for a request that the server may leave unanswered, because
// its id is unclear. The answer to the next request, 2, shows that none will come.
func (a *attacker) refusalOrNone(path, request string, codes ...string) {
	const unknown = `{"type":"nonsense","id":2}`
	h := a.talk(path, func(h heard) bool { return h.answers[2].Type != "" }, request, unknown)
	if m := h.answers[1]; m.Type != "" && (m.Type != "error" || !slices.Contains(codes, m.Code)) {
		a.wrong("taken", "%.300s on %s was answered %+v, want one of %v or nothing", request, path, m, codes)
	}
	if m := h.answers[2]; h.err == nil && a.Err() == nil && m.Code != "unknown_type" {
		a.wrong("answer", "%s on %s, after a request in doubt, was answered %+v, want unknown_type", unknown, path, m)
	}
}

// call makes a request by HTTP and returns the answer, with status 0 if there is
// none. Headers are pairs; Host is one of them.
func (a *attacker) call(method, path, body string, headers ...string) (status int, answer string) {
	r, err := http.NewRequestWithContext(a, method, "http://"+a.addr+path, strings.NewReader(body))
	if err != nil {
		return 0, ""
	}
	r.Close = true
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		} else {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	text, status, err := do(r)
	if err != nil {
		return 0, ""
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
