package hostile

import (
	"bufio"
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

// upgrade is the head of a proper handshake, up to the headers that a test adds.
const upgrade = "GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

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

// edgeAttacks misuse connections: their speed, their framing, their beginning
// and their end.
var edgeAttacks = []attack{
	{"trickle", lasting, func(a *attacker) {
		a.side(10*a.scale, func(i int) {
			var bytes []byte
			var c *net.TCPConn
			switch i % 3 {
			case 0:
				c, bytes = a.raw(), fmt.Appendf(nil, upgrade+"\r\n", "/ws", a.addr)
			case 1:
				c, bytes = a.silent("/ws"), websocket.AppendMaskedFrame(nil, websocket.OpText, [4]byte{}, []byte(`{"type":"ping","ts":1}`))
			default:
				c, bytes = a.raw(), fmt.Appendf(nil, "POST /v1/streams/evil HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{}", a.addr)
			}
			for n := 0; c != nil && n < len(bytes) && a.pause(50*time.Millisecond); n++ {
				c.Write(bytes[n : n+1])
			}
			a.hold()
		})
	}},
	{"idle-keep-alive", lasting, func(a *attacker) {
		for range min(500*a.scale, 5000) {
			c := a.raw()
			if c == nil {
				break
			}
			fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n", a.addr)
		}
		a.hold()
	}},
	{"idle-sockets", lasting, func(a *attacker) {
		for range 200 * a.scale {
			a.silent([]string{"/ws", "/ws/chat", "/ws/ingest"}[a.random.IntN(3)])
		}
		a.hold()
	}},
	{"upgrade-with-body", brief, func(a *attacker) {
		ping := websocket.AppendMaskedFrame(nil, websocket.OpPing, [4]byte{}, []byte("x"))
		for _, header := range []string{fmt.Sprintf("Content-Length: %d\r\n", len(ping)), "Transfer-Encoding: chunked\r\n"} {
			if c := a.raw(); c != nil {
				fmt.Fprintf(c, upgrade+"%s\r\n%s", "/ws", a.addr, header, ping)
				if got := a.status(c); got == http.StatusSwitchingProtocols {
					a.wrong("upgraded", "an upgrade request with %q and a body got %d, want 400", header, got)
				}
			}
		}
	}},
	{"half-close", brief, func(a *attacker) {
		if c := a.raw(); c != nil {
			fmt.Fprintf(c, "GET /v1/streams HTTP/1.1\r\nHost: %s\r\n\r\n", a.addr)
			c.CloseWrite()
			if got := a.status(c); got != 0 && got != http.StatusOK {
				a.wrong("refused", "GET /v1/streams and then the end of what the client sends got %d, want 200", got)
			}
		}
	}},
	{"after-all", brief, func(a *attacker) {
		for _, after := range []string{"9223372036854775807", "9223372036854775806"} {
			status, answer := a.call("GET", "/v1/streams/"+bigStream+"/messages?after="+after, "")
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
			c := a.silent([]string{"/ws", "/ws/ingest", "/ws/chat", "/ws/lanes"}[i])
			if c == nil {
				return
			}
			c.Write(append(beginning(websocket.OpText, false, 1), 'x'))
			many := bytes.Repeat(append(beginning(websocket.OpContinuation, false, 1), 'x'), 10_000)
			empty := bytes.Repeat(beginning(websocket.OpContinuation, false, 0), 10_000)
			for a.Err() == nil {
				c.SetWriteDeadline(time.Now().Add(time.Second))
				if _, err := c.Write(append(many, empty...)); err != nil {
					return
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
			junk := make([]byte, 1+a.random.IntN(200))
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
					request := fmt.Appendf(nil, "GET /metrics HTTP/1.1\r\nHost: %s\r\n\r\n", a.addr)
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
		c, err := websocket.Dial(a, "ws://"+a.addr+"/ws/lanes", websocket.Config{MaxMessage: 64 << 20})
		if err != nil {
			return
		}
		defer c.Abort()
		a.pause(time.Duration(20+a.random.IntN(40)) * time.Millisecond) // into the middle of a message
		l := &line{Conn: c, w: a.w, who: "attack " + a.name, in: a.w.current(), asked: make(map[int]time.Time)}
		l.say(`{"type":"hello","credit":true,"id":1}`)
		for deadline := time.Now().Add(patience); a.Err() == nil; {
			l.say(`{"type":"credit","bytes":1048576}`)
			c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			raws, err := c.Read()
			for _, raw := range raws {
				var m message
				if raw.Op == websocket.OpText && raw.Payload[0] == '{' && json.Unmarshal(raw.Payload, &m) == nil && m.ID == 1 {
					return
				}
			}
			if err != nil && !isTimeout(err) || time.Now().After(deadline) {
				a.wrong("no answer", "hello with credit in the middle of a message, then credit: %v", err)
				return
			}
		}
	}},
	{"resets", lasting, func(a *attacker) {
		a.side(4, func(int) {
			for a.Err() == nil {
				c := a.silent([]string{"/ws", "/ws/ingest", "/ws/chat", "/ws/lanes"}[time.Now().UnixNano()%4])
				if c == nil {
					return
				}
				text(c, `{"type":"join","room":"evil","presence":true,"id":1}`)
				text(c, `{"type":"publish","stream":"evil-0","payload":"x","id":2}`)
				text(c, `{"type":"subscribe","stream":%q,"from":"start","id":3}`, bigStream)
				c.Close() // with a reset
			}
		})
	}},
	{"reconnect-storm", lasting, func(a *attacker) {
		a.side(16, func(int) {
			for a.Err() == nil {
				c, err := websocket.Dial(a, "ws://"+a.addr+"/ws", websocket.Config{})
				if err != nil {
					return
				}
				c.Abort()
			}
		})
	}},
	{"abandoned-polls", lasting, func(a *attacker) {
		a.call("POST", "/v1/queues/evil-empty", "{}")
		for a.Err() == nil {
			for range 20 {
				if c := a.raw(); c != nil {
					fmt.Fprintf(c, "POST /v1/queues/evil-empty/receive?max=10&wait_ms=20000 HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\n\r\n", a.addr)
					time.AfterFunc(50*time.Millisecond, func() { c.Close() })
				}
			}
			a.pause(100 * time.Millisecond)
		}
	}},
}
