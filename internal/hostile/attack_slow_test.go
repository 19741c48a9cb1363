package hostile

import (
	"fmt"
	"strings"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// slowAttacks take what they asked for slowly, or leave connections half open.
var slowAttacks = []attack{
	{"slow-readers", lasting, func(a *attacker) {
		a.side(10*a.scale, func(i int) {
			c := a.raw()
			if c == nil {
				return
			}
			switch i % 4 {
			case 0:
				fmt.Fprintf(c, "GET /v1/streams/%s/messages?limit=1000 HTTP/1.1\r\n%s\r\n", bigStream, a.head())
			case 1:
				p := a.begin(c, "/ws")
				if p == nil {
					return
				}
				text(c, `{"type":"subscribe","stream":%q,"from":"start","id":1}`, bigStream)
			case 2:
				p := a.begin(c, "/ws")
				if p == nil {
					return
				}
				text(c, `{"type":"query","query":{"items":[{"tags":[%q]}]},"limit":1000,"id":1}`, bigTag)
			default:
				p := a.begin(c, "/ws/chat")
				if p == nil {
					return
				}
				text(c, `{"type":"join","room":%q,"history":1000,"id":1}`, bigRoom)
			}
			some := make([]byte, 1+a.pick(2000))
			for a.pause(100 * time.Millisecond) {
				if _, err := c.Read(some); err != nil {
					return
				}
			}
		})
	}},
	{"half-open", lasting, func(a *attacker) {
		for range 20 * a.scale {
			for way := range 4 {
				a.halfOpen(way)
			}
		}
		a.hold()
	}},
	{"giant-headers", lasting, func(a *attacker) {
		line := "X-Header: " + strings.Repeat("h", 1000) + "\r\n"
		a.side(10*a.scale, func(i int) {
			for a.Err() == nil {
				c := a.raw()
				if c == nil {
					return
				}
				c.SetDeadline(time.Now().Add(patience))
				switch i % 4 {
				case 0: // just below the limit, and never complete
					fmt.Fprintf(c, "GET /ws HTTP/1.1\r\n%s%s", a.head(), strings.Repeat(line, 14))
					a.hold()
				case 1: // many small ones
					fmt.Fprintf(c, upgrade+"%s\r\n", "/ws", a.head(), strings.Repeat("A: b\r\n", 2000))
				case 2: // one that is too large
					fmt.Fprintf(c, upgrade+"Cookie: %s\r\n\r\n", "/ws/chat", a.head(), strings.Repeat("c", 1<<20))
				default:
					fmt.Fprintf(c, "POST /v1/events HTTP/1.1\r\n%sContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n2\r\n{}\r\n0\r\n%s\r\n", a.head(), strings.Repeat(line, 1000))
				}
				a.status(c)
				c.Close()
			}
		})
	}},
}

// halfOpen opens a connection and closes its own half in one of several states. It reads nothing.
func (a *attacker) halfOpen(way int) {
	c := a.raw()
	if c == nil {
		return
	}
	switch way {
	case 0: // in the middle of a handshake
		fmt.Fprintf(c, upgrade, "/ws", a.head())
	case 1: // in the middle of a body
		fmt.Fprintf(c, "POST /v1/streams/evil-0/messages HTTP/1.1\r\n%sContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", a.head())
	case 2: // as a subscriber that gets a lot
		if a.begin(c, "/ws") != nil {
			text(c, `{"type":"subscribe","stream":%q,"from":"start","id":1}`, bigStream)
		}
	default: // in the middle of a message
		if a.begin(c, "/ws/ingest") != nil {
			c.Write(append(beginning(websocket.OpText, true, 1000), "x"...))
		}
	}
	c.CloseWrite()
}
