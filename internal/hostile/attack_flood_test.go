package hostile

import (
	"bytes"
	"fmt"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// floodAttacks send as much of one thing as the server takes.
var floodAttacks = []attack{
	{"tiny-frames", lasting, func(a *attacker) {
		tiny := bytes.Repeat(websocket.AppendMaskedFrame(nil, websocket.OpText, [4]byte{1, 2, 3, 4}, []byte("{}")), 10_000)
		empty := bytes.Repeat(websocket.AppendMaskedFrame(nil, websocket.OpBinary, [4]byte{1, 2, 3, 4}, nil), 10_000)
		a.side(4, func(i int) {
			path := []string{"/ws", "/ws/chat", "/ws/ingest", "/ws/lanes"}[i]
			for sent := 0; sent < 250_000*a.scale && a.Err() == nil; {
				c := a.silent(path)
				for c != nil && sent < 250_000*a.scale {
					c.SetWriteDeadline(time.Now().Add(time.Second))
					if _, err := c.Write(append(tiny, empty...)); err != nil {
						break
					}
					sent += 20_000
				}
				if !a.pause(20 * time.Millisecond) {
					return
				}
			}
		})
	}},
	{"name-floods", lasting, func(a *attacker) {
		kinds := []string{
			`{"type":"join","room":"evil-%d","presence":true,"id":%d}`, `{"type":"leave","room":"evil-%d","id":%d}`, `{"type":"chat","room":"evil-%d","text":"x","id":%d}`,
			`{"type":"subscribe","stream":"evil-none-%d","id":%d}`, `{"type":"unsubscribe","subscription":"s-%d","id":%d}`, `{"type":"consume","queue":"evil-none-%d","id":%d}`,
			`{"type":"commit","stream":"evil-0","group":"g-%d","position":1,"id":%d}`, `{"type":"subscribe","stream":"evil-0","subscription":"s-%d","id":%d}`,
			`{"type":"query","store":"evil-none-%d","query":{"items":[{"tags":["evil"]}]},"id":%d}`, `{"type":"publish","stream":"evil-0","client":"c-%d","sequence":1,"payload":"x","id":%d}`,
		}
		a.side(len(kinds), func(i int) {
			for n := 0; a.Err() == nil; n += 500 {
				requests := make([]string, 500)
				for r := range requests {
					requests[r] = fmt.Sprintf(kinds[i], n+r, r+1)
				}
				h := a.converse("/ws", requests...)
				if h.err != nil && !a.pause(20*time.Millisecond) {
					return
				}
			}
		})
	}},
	{"poll-floods", lasting, func(a *attacker) {
		a.side(8, func(i int) {
			for n := 0; a.Err() == nil; n++ {
				switch i % 4 {
				case 0:
					a.call("GET", fmt.Sprintf("/v1/streams/evil-none-%d/messages", n), "")
				case 1:
					a.call("POST", fmt.Sprintf("/v1/queues/evil-none-%d/receive?max=10", n), "")
				case 2:
					a.call("GET", "/v1/events?tag=evil", "")
				default:
					a.call("GET", "/v1/streams", "")
				}
			}
		})
	}},
}
