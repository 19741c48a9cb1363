package hostile

import (
	"bytes"
	"fmt"
	"net"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// paths are those of all WebSockets.
var paths = []string{"/ws", "/ws/chat", "/ws/ingest", "/ws/lanes"}

// edgeAttacks misuse connections: their speed, their framing, their beginning and their end.
var edgeAttacks = []attack{
	{"trickle", lasting, func(a *attacker) {
		side(a.many(30), func(i int) {
			pace := []time.Duration{50 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second}[a.pick(3)]
			var bytes []byte
			var c *net.TCPConn
			switch i % 3 {
			case 0:
				c, bytes = a.raw(), fmt.Appendf(nil, upgrade+"\r\n", "/ws", a.head())
			case 1:
				c, bytes = a.silent("/ws"), websocket.AppendMaskedFrame(nil, websocket.OpText, [4]byte{}, []byte(`{"type":"ping","ts":1}`))
			default:
				c, bytes = a.raw(), fmt.Appendf(nil, "POST /v1/streams/evil HTTP/1.1\r\n%sContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{}", a.head())
			}
			for n := 0; c != nil && n < len(bytes) && a.pause(pace); n++ {
				c.Write(bytes[n : n+1])
			}
			a.hold()
		})
	}},
	{"idle-keep-alive", lasting, func(a *attacker) {
		for n := range a.many(500) {
			if n%3 == 0 {
				a.silent(a.one(paths))
			} else if c := a.raw(); c != nil && n%3 == 1 { // the others send nothing at all
				fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\n%s\r\n", a.head())
			}
		}
		a.hold()
	}},
	{"frame-floods", lasting, func(a *attacker) {
		flood := map[string][]byte{
			"pings":     bytes.Repeat(websocket.AppendMaskedFrame(nil, websocket.OpPing, [4]byte{}, bytes.Repeat([]byte("p"), 125)), 1000),
			"texts":     bytes.Repeat(websocket.AppendMaskedFrame(nil, websocket.OpText, [4]byte{1, 2, 3, 4}, []byte("{}")), 10_000),
			"empty":     bytes.Repeat(websocket.AppendMaskedFrame(nil, websocket.OpBinary, [4]byte{1, 2, 3, 4}, nil), 10_000),
			"fragments": append(bytes.Repeat(append(beginning(websocket.OpContinuation, false, 1), 'x'), 10_000), bytes.Repeat(beginning(websocket.OpContinuation, false, 0), 10_000)...),
		}
		side(len(paths), func(i int) {
			for kind, frames := range flood {
				c := a.silent(paths[i])
				if c == nil {
					continue
				}
				if kind == "fragments" {
					c.Write(append(beginning(websocket.OpText, false, 1), 'x'))
				}
				for range a.many(20) {
					c.SetWriteDeadline(time.Now().Add(time.Second))
					if _, err := c.Write(frames); err != nil {
						break
					}
				}
			}
		})
	}},
	{"pipelined-unread", lasting, func(a *attacker) {
		for range 4 {
			if c := a.raw(); c != nil {
				a.calls.Go(func() {
					request := fmt.Appendf(nil, "GET /metrics HTTP/1.1\r\n%s\r\n", a.head())
					for a.again() {
						c.SetWriteDeadline(time.Now().Add(time.Second))
						if _, err := c.Write(request); err != nil {
							break
						}
					}
				})
			}
		}
		a.hold()
	}},
	{"resets", lasting, func(a *attacker) {
		side(4, func(int) {
			for a.again() {
				c := a.raw()
				if c == nil {
					return
				}
				a.busy(c, a.pick(8))
				c.Close() // with a reset
			}
		})
	}},
	{"abandoned-polls", lasting, func(a *attacker) {
		a.call("POST", "/v1/queues/evil-empty", "{}")
		for a.again() {
			for range 20 {
				if c := a.raw(); c != nil {
					fmt.Fprintf(c, "POST /v1/queues/evil-empty/receive?max=10&wait_ms=20000 HTTP/1.1\r\n%sContent-Length: 0\r\n\r\n", a.head())
					time.AfterFunc(50*time.Millisecond, func() { c.Close() })
				}
			}
			a.pause(100 * time.Millisecond)
		}
	}},
}

// busy gets the server to do something for a connection.
func (a *attacker) busy(c *net.TCPConn, state int) {
	switch state {
	case 0: // nothing
		return
	case 1: // a handshake
		fmt.Fprintf(c, upgrade, "/ws", a.head())
		return
	case 2: // a body
		fmt.Fprintf(c, "POST /v1/streams/evil-0/messages HTTP/1.1\r\n%sContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", a.head())
		return
	case 3: // a request that waits
		fmt.Fprintf(c, "POST /v1/queues/evil-queue/receive?max=10&wait_ms=20000 HTTP/1.1\r\n%sContent-Length: 0\r\n\r\n", a.head())
		return
	}
	if a.begin(c, paths[a.pick(4)]) == nil || state == 4 {
		return
	}
	text(c, `{"type":"join","room":"evil","presence":true,"id":1}`)
	if state == 5 {
		return
	}
	text(c, `{"type":"publish","stream":"evil-0","payload":"x","id":2}`)
	text(c, `{"type":"consume","queue":"evil-queue","id":3}`)
	text(c, `{"type":"subscribe","stream":%q,"from":"start","id":4}`, bigStream)
	if state == 6 { // in the middle of a message
		c.Write(append(beginning(websocket.OpText, false, 1000), "x"...))
	}
}
