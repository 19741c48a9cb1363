package hostile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// edgeAttacks misuse connections: their speed, their framing, their beginning
// and their end.
var edgeAttacks = []attack{
	{"trickle", lasting, func(a *attacker) {
		a.side(30*a.scale, func(i int) {
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
		for n := range 500 * a.scale {
			c := a.raw()
			if c == nil {
				break
			}
			if n%2 == 0 { // the others send nothing at all
				fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\n%s\r\n", a.head())
			}
		}
		a.hold()
	}},
	{"idle-sockets", lasting, func(a *attacker) {
		for range 500 * a.scale {
			a.silent([]string{"/ws", "/ws/chat", "/ws/ingest"}[a.random.IntN(3)])
		}
		a.hold()
	}},
	{"upgrade-with-body", brief, func(a *attacker) {
		ping := websocket.AppendMaskedFrame(nil, websocket.OpPing, [4]byte{}, []byte("x"))
		for _, header := range []string{fmt.Sprintf("Content-Length: %d\r\n", len(ping)), "Transfer-Encoding: chunked\r\n"} {
			if c := a.raw(); c != nil {
				fmt.Fprintf(c, upgrade+"%s\r\n%s", "/ws", a.head(), header, ping)
				if got := a.status(c); got == http.StatusSwitchingProtocols {
					a.wrong("upgraded", "an upgrade request with %q and a body got %d, want 400", header, got)
				}
			}
		}
	}},
	{"half-close", brief, func(a *attacker) {
		if c := a.raw(); c != nil {
			fmt.Fprintf(c, "GET /v1/streams HTTP/1.1\r\n%s\r\n", a.head())
			c.CloseWrite()
			if got := a.status(c); got != 0 && got != http.StatusOK && got != http.StatusTooManyRequests && got != http.StatusServiceUnavailable && a.standing == entitled {
				a.wrong("refused", "GET /v1/streams and then the end of what the client sends got %d, want 200", got)
			}
		}
	}},
	{"after-all", brief, func(a *attacker) {
		for _, after := range []string{"9223372036854775807", "9223372036854775806"} {
			status, answer := a.call("GET", "/v1/streams/"+bigStream+"/messages?after="+after, "")
			if status == 0 || status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable || a.standing != entitled {
				continue
			}
			if status != http.StatusGone || !strings.Contains(answer, "history_lost") { // too_old, once: after + 1 is less than 0
				a.wrong("answer", "messages?after=%s got %d %s", after, status, answer)
			}
			a.call("GET", "/v1/events?after="+after, "")
			a.converse("/ws", fmt.Sprintf(`{"type":"subscribe","stream":%q,"after":%s,"id":1}`, bigStream, after))
		}
	}},
	{"ping-flood", lasting, func(a *attacker) {
		a.side(4, func(i int) {
			c := a.silent([]string{"/ws", "/ws/ingest", "/ws/chat", "/ws/lanes"}[i])
			flood := bytes.Repeat(websocket.AppendMaskedFrame(nil, websocket.OpPing, [4]byte{}, bytes.Repeat([]byte("p"), 125)), 1000)
			for c != nil && a.Err() == nil {
				c.SetWriteDeadline(time.Now().Add(time.Second))
				if _, err := c.Write(flood); err != nil {
					return
				}
			}
		})
	}},
	{"tiny-fragments", lasting, func(a *attacker) {
		a.side(4, func(i int) {
			many := bytes.Repeat(append(beginning(websocket.OpContinuation, false, 1), 'x'), 10_000)
			empty := bytes.Repeat(beginning(websocket.OpContinuation, false, 0), 10_000)
			for a.Err() == nil {
				c := a.silent([]string{"/ws", "/ws/ingest", "/ws/chat", "/ws/lanes"}[i])
				if c == nil {
					return
				}
				c.Write(append(beginning(websocket.OpText, false, 1), 'x'))
				for {
					c.SetWriteDeadline(time.Now().Add(time.Second))
					if _, err := c.Write(append(many, empty...)); err != nil {
						break
					}
				}
			}
		})
	}},
	{"broken-frames", lasting, func(a *attacker) {
		for a.Err() == nil {
			c := a.silent([]string{"/ws", "/ws/ingest", "/ws/chat", "/ws/lanes"}[a.random.IntN(4)])
			if c == nil {
				return
			}
			junk := make([]byte, 2+a.random.IntN(200))
			for i := range junk {
				junk[i] = byte(a.random.Uint32())
			}
			if a.random.IntN(2) == 0 {
				junk[0], junk[1] = 0x81, 0xff // a length of eight bytes, of any size
			}
			c.Write(junk)
			a.pause(2 * time.Millisecond)
			c.Close()
		}
	}},
	{"garbage-http", brief, func(a *attacker) {
		for _, request := range []string{
			"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "GET / HTTP/0.9\r\n\r\n", "GET\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
			"POST /v1/streams/evil HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n",
			"GET /v1/streams/%zz HTTP/1.1\r\nHost: x\r\n\r\n", "GET /v1/streams/..%2f..%2fetc HTTP/1.1\r\nHost: localhost\r\n\r\n",
			"GET /" + strings.Repeat("a", 1<<20) + " HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\n" + strings.Repeat("A: b\r\n", 100_000) + "\r\n",
		} {
			if c := a.raw(); c != nil {
				c.SetWriteDeadline(time.Now().Add(time.Second))
				io.WriteString(c, request)
				if a.pause(20 * time.Millisecond); a.random.IntN(2) == 0 {
					c.Close()
				}
			}
		}
	}},
	{"pipelined-unread", lasting, func(a *attacker) {
		for range 4 {
			if c := a.raw(); c != nil {
				a.calls.Go(func() {
					request := fmt.Appendf(nil, "GET /metrics HTTP/1.1\r\n%s\r\n", a.head())
					for a.Err() == nil {
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
	{"hello-credit", brief, func(a *attacker) {
		p := a.dial("/ws/lanes")
		if p == nil {
			return
		}
		a.pause(time.Duration(20+a.random.IntN(40)) * time.Millisecond) // into the middle of a message
		text(p.TCPConn, `{"type":"hello","credit":true,"id":1}`)
		for deadline := time.Now().Add(patience); a.Err() == nil; {
			text(p.TCPConn, `{"type":"credit","bytes":1048576}`)
			payload, err := p.next(time.Now().Add(20 * time.Millisecond))
			var m message
			if len(payload) > 0 && payload[0] == '{' && json.Unmarshal(payload, &m) == nil && m.ID == 1 {
				return
			}
			if err != nil && p.closed != 4429 || time.Now().After(deadline) {
				a.wrong("no answer", "hello with credit in the middle of a message, then credit: %v, %d", err, p.closed)
				return
			}
		}
	}},
	{"resets", lasting, func(a *attacker) {
		a.side(4, func(int) {
			for a.Err() == nil {
				c := a.raw()
				if c == nil {
					return
				}
				a.busy(c, a.pick(8))
				c.Close() // with a reset
			}
		})
	}},
	{"reconnect-storm", lasting, func(a *attacker) {
		a.side(16, func(int) {
			for a.Err() == nil {
				p := a.dial("/ws")
				if p == nil {
					return
				}
				p.Close()
			}
		})
	}},
	{"abandoned-polls", lasting, func(a *attacker) {
		a.call("POST", "/v1/queues/evil-empty", "{}")
		for a.Err() == nil {
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
	if a.begin(c, []string{"/ws", "/ws/ingest", "/ws/chat", "/ws/lanes"}[a.pick(4)]) == nil || state == 4 {
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
