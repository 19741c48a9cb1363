package hostile

import (
	"fmt"
	"time"
)

// floodAttacks send as much of one thing as the server takes.
var floodAttacks = []attack{
	{"name-floods", lasting, func(a *attacker) {
		kinds := []string{
			`{"type":"join","room":"evil-%d","presence":true,"id":%d}`, `{"type":"leave","room":"evil-%d","id":%d}`, `{"type":"chat","room":"evil-%d","text":"x","id":%d}`,
			`{"type":"subscribe","stream":"evil-none-%d","id":%d}`, `{"type":"unsubscribe","subscription":"s-%d","id":%d}`, `{"type":"consume","queue":"evil-none-%d","id":%d}`,
			`{"type":"commit","stream":"evil-0","group":"g-%d","position":1,"id":%d}`, `{"type":"subscribe","stream":"evil-0","subscription":"s-%d","id":%d}`,
			`{"type":"query","store":"evil-none-%d","query":{"items":[{"tags":["evil"]}]},"id":%d}`, `{"type":"publish","stream":"evil-0","client":"c-%d","sequence":1,"payload":"x","id":%d}`,
			`{"type":"publish","stream":"nowhere-%d","payload":"x","id":%d}`,
		}
		side(len(kinds), func(i int) {
			for n := 0; a.again(); n += 500 {
				requests := make([]string, 500)
				for r := range requests {
					requests[r] = fmt.Sprintf(kinds[i], n+r, r+1)
				}
				if h := a.converse("/ws", requests...); h.err != nil && !a.pause(20*time.Millisecond) {
					return
				}
			}
		})
	}},
	{"poll-floods", lasting, func(a *attacker) {
		side(8, func(i int) {
			for n := 0; a.again(); n++ {
				call := []string{"GET /v1/streams/evil-none-%d/messages", "POST /v1/queues/evil-none-%d/receive?max=10", "GET /v1/events?tag=evil&n=%d", "GET /v1/streams?n=%d"}[i%4]
				var method, path string
				fmt.Sscan(fmt.Sprintf(call, n), &method, &path)
				a.call(method, path, "")
			}
		})
	}},
}
