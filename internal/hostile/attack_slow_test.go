package hostile

import (
	"fmt"
	"strings"
	"time"
)

// slowAttacks take what they asked for slowly, or leave connections half open.
var slowAttacks = []attack{
	{"slow-readers", lasting, func(a *attacker) {
		side(a.many(10), func(i int) {
			c := a.raw()
			if c == nil {
				return
			}
			if i%4 == 0 {
				fmt.Fprintf(c, "GET /v1/streams/%s/messages?limit=1000 HTTP/1.1\r\n%s\r\n", bigStream, a.head())
			} else if a.begin(c, []string{"", "/ws", "/ws", "/ws/chat"}[i%4]) == nil || !text(c, "%s", []string{"",
				`{"type":"subscribe","stream":"` + bigStream + `","from":"start","id":1}`, `{"type":"query","query":{"items":[{"tags":["` + bigTag + `"]}]},"limit":1000,"id":1}`,
				`{"type":"join","room":"` + bigRoom + `","history":1000,"id":1}`}[i%4]) {
				return
			}
			some := make([]byte, 1+a.pick(2000))
			for a.pause(100 * time.Millisecond) {
				if _, err := c.Read(some); err != nil {
					return
				}
			}
		})
	}},
	{"half-open", lasting, func(a *attacker) { // closes its own half of connections in many states
		for n := range a.many(80) {
			if c := a.raw(); c != nil {
				a.busy(c, 1+n%7)
				c.CloseWrite()
			}
		}
		a.hold()
	}},
	{"giant-headers", lasting, func(a *attacker) {
		line := "X-Header: " + strings.Repeat("h", 1000) + "\r\n"
		side(a.many(10), func(i int) {
			for a.again() {
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
