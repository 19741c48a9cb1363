package hostile

import (
	"fmt"
	"strings"
)

// wordAttacks send content that is costly to read, or about what is being removed.
var wordAttacks = []attack{
	{"deep-json", brief, func(a *attacker) {
		bodies := []string{
			"streams/evil-0/messages", "streams/evil-0", "streams/evil-0/groups/g/commit", "events", "events/query", "events/project",
			"queues/evil-queue", "queues/evil-queue/messages", "queues/evil-queue/ack",
		}
		for _, deep := range []string{strings.Repeat("[", 100_000), strings.Repeat(`{"a":`, 100_000), strings.Repeat("[", 50_000) + strings.Repeat("]", 50_000),
			"[" + strings.Repeat("0,", 300_000) + "0]", "[" + strings.Repeat(`{"":{}},`, 90_000) + "0]", `"` + strings.Repeat(`\u0000`, 100_000) + `"`, strings.Repeat("9", 900_000)} {
			for _, request := range []string{
				`{"type":"publish","stream":"evil-0","payload":"x","headers":{"a":` + deep + `},"id":1}`,
				`{"type":"append","events":[{"type":"A","tags":["evil"],"data":` + deep + `}],"id":1}`,
				`{"type":"ping","ts":` + deep + `,"id":1}`, deep, a.bomb(deep),
			} {
				text(a.silent(a.one(paths)), "%s", request)
				a.call("POST", "/v1/"+a.one(bodies), request)
			}
		}
	}},
	{"costly-conditions", lasting, func(a *attacker) {
		var tags []string
		for n := range a.many(5000) {
			tags = append(tags, fmt.Sprintf(`{"tags":["t%d","evil"],"types":["A","B","C"]}`, n))
		}
		query := `{"items":[` + strings.Join(tags, ",") + `]}`
		side(4, func(int) {
			for a.again() {
				h := a.converse("/ws", `{"type":"append","events":[{"type":"A","tags":["evil"]}],"condition":{"query":`+query+`,"after":0},"id":1}`,
					`{"type":"project","queries":[`+query+`],"id":2}`, `{"type":"query","query":`+query+`,"limit":1000,"id":3}`)
				if h.err != nil {
					return
				}
			}
		})
	}},
	{"deleted-in-use", lasting, func(a *attacker) {
		for a.again() {
			a.call("POST", "/v1/streams/evil-short", "{}")
			a.call("POST", "/v1/queues/evil-brief", "{}")
			c := a.silent("/ws")
			for n := range 20 {
				text(c, `{"type":"subscribe","stream":"evil-short","from":"start","subscription":"s%d","id":%d}`, n, n)
				text(c, `{"type":"publish","stream":"evil-short","payload":"x","id":%d}`, 100+n)
				text(c, `{"type":"enqueue","queue":"evil-brief","payload":"x","id":%d}`, 200+n)
			}
			text(c, `{"type":"consume","queue":"evil-brief","id":300}`)
			a.call("DELETE", "/v1/streams/evil-short", "")
			a.call("DELETE", "/v1/queues/evil-brief", "")
		}
	}},
}
