package hostile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/tidewire/tidewire/websocket"
)

// wordAttacks send invalid content: names that belong to others, ambiguous
// JSON, texts that are not numbers.
var wordAttacks = []attack{
	{"reserved-names", brief, func(a *attacker) {
		// evil-queue belongs to the attack, but its stream belongs to the server.
		a.call("POST", "/v1/queues/evil-queue", "{}")
		for _, name := range []string{"tidewire.rooms", "tidewire.anything", "evil-queue"} {
			codes := []string{"invalid_name", "not_found", "reserved_name", "forbidden", "queue_stream"}
			a.refusal("/ws", fmt.Sprintf(`{"type":"publish","stream":%q,"key":%q,"payload":"","id":1}`, name, bigRoom), codes...)
			if name != "evil-queue" { // clients may read this one
				a.refusal("/ws", fmt.Sprintf(`{"type":"subscribe","stream":%q,"from":"start","id":1}`, name), codes...)
				a.denied("GET", "/v1/streams/"+name+"/messages", "")
			}
			a.refusal("/ws", fmt.Sprintf(`{"type":"commit","stream":%q,"group":"g","position":1,"id":1}`, name), codes...)
			a.denied("POST", "/v1/streams/"+name+"/messages", fmt.Sprintf(`{"key":%q,"payload":" "}`, bigRoom))
			a.denied("DELETE", "/v1/streams/"+name, "")
			a.denied("POST", "/v1/streams/"+name, `{"keyed":false,"partitions":2}`)
		}
		for _, name := range []string{"tidewire.rooms", "tidewire.jobs"} {
			a.refusal("/ws", fmt.Sprintf(`{"type":"enqueue","queue":%q,"payload":"x","id":1}`, name), "invalid_name", "not_found", "reserved_name", "forbidden")
			a.denied("POST", "/v1/queues/"+name, "{}")
			a.denied("DELETE", "/v1/queues/"+name, "")
		}
	}},
	{"panicking-rows", brief, func(a *attacker) {
		for _, payload := range []string{"", " ", "{", "}", "null", "[]", "\x00"} {
			body, _ := json.Marshal(map[string]string{"key": "stored-evil", "payload": payload})
			a.call("POST", "/v1/streams/tidewire.rooms/messages", string(body))
		}
		a.converse("/ws", `{"type":"join","room":"stored-evil","id":1}`, `{"type":"chat","room":"stored-evil","text":"x","id":2}`)
		a.converse("/ws", `{"type":"join","room":"stored-evil","history":10,"id":1}`)
		a.converse("/ws", `{"type":"join","room":"stored-evil","after":0,"id":1}`)
	}},
	{"two-meanings", brief, func(a *attacker) {
		for _, twice := range []string{
			`"room":"evil","room":"evil-2"`, `"room":"evil","Room":"evil-2"`, `"room":"evil","roo\u006d":"evil-2"`, `"room":"evil","ROOM":"evil-2"`,
			`"room":"evil","user":"a","User":"b"`, `"room":"evil","u\u0073er":"a","user":"b"`, `"room":"evil","position":7,"position":8`, `"room":"evil","type":"chat"`,
			`"room":"evil","id":1`, `"room":"evil","Type":"join"`,
		} {
			a.refusalOrNone("/ws/chat", `{"type":"chat","id":1,"text":"x",`+twice+`}`, "malformed")
		}
	}},
	{"foreign-pages", brief, func(a *attacker) {
		key := []string{"Upgrade", "websocket", "Connection", "Upgrade", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}
		_, port, _ := strings.Cut(a.addr, ":")
		for _, foreign := range [][]string{
			{"Origin", "http://evil.example"}, {"Origin", "null"}, {"Origin", "http://evil.example:" + port, "Host", "evil.example:" + port},
			{"Origin", "https://" + a.addr}, {"Origin", "http://127.0.0.1:1"}, {"Host", "evil.example"},
		} {
			if status, answer := a.call("GET", "/ws", "", append(foreign, key...)...); status == http.StatusSwitchingProtocols {
				a.wrong("upgraded", "a handshake with %q got %d %.200s, want 403", foreign, status, answer)
			}
			a.denied("POST", "/v1/streams/evil-0/messages", `{"payload":"x"}`, append(foreign, "Sec-Fetch-Site", "cross-site")...)
			a.denied("GET", "/v1/streams", "", append(foreign, "Sec-Fetch-Site", "cross-site")...)
		}
	}},
	{"unknown-streams", lasting, func(a *attacker) {
		a.side(4, func(i int) {
			for n := 0; a.Err() == nil; n++ {
				requests := make([]string, 50)
				for r := range requests {
					name := "nowhere"
					if i%2 == 1 {
						name = fmt.Sprintf("nowhere-%d-%d", n, r)
					}
					requests[r] = fmt.Sprintf(`{"type":"publish","stream":%q,"payload":"x","id":%d}`, name, r+1)
				}
				h := a.converse("/ws", requests...)
				for id, m := range h.answers {
					if m.Code != "not_found" && !a.off(m.Code) {
						a.wrong("answer", "%s was answered %+v, want not_found", requests[id-1], m)
					}
				}
				if h.err != nil {
					return
				}
			}
		})
	}},
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
				`{"type":"ping","ts":` + deep + `,"id":1}`, `{"id":` + deep + `}`, deep, a.bomb(deep), a.bomb(deep), a.bomb(deep),
			} {
				if c := a.silent([]string{"/ws", "/ws/chat", "/ws/lanes"}[a.random.IntN(3)]); c != nil {
					text(c, "%s", request)
				}
				a.call("POST", "/v1/"+bodies[a.random.IntN(len(bodies))], request)
			}
		}
	}},
	{"strange-names", brief, func(a *attacker) {
		for _, name := range []string{"", strings.Repeat("n", 129), strings.Repeat("n", 500_000), "a\x00b", "\xff\xfe", "../../etc", "a/b", "a/0", "%", "'; DROP TABLE x; --", "\u202e", "evil\n"} {
			quoted, _ := json.Marshal(name)
			for _, kind := range []string{"publish", "subscribe", "enqueue", "consume", "join", "leave", "chat", "commit", "unsubscribe", "cancel", "append", "query"} {
				a.converse("/ws", fmt.Sprintf(`{"type":%q,"stream":%s,"queue":%[2]s,"group":%[2]s,"subscription":%[2]s,"room":%[2]s,"store":%[2]s,"user":%[2]s,"payload":"x","text":"x","position":1,"id":1}`, kind, quoted))
			}
			if len(name) < 1000 {
				a.call("GET", "/v1/streams/"+url.PathEscape(name), "")
				a.call("GET", "/v1/queues/"+url.PathEscape(name), "")
				a.call("DELETE", "/v1/queues/"+url.PathEscape("evil"+name), "")
			}
		}
	}},
	{"not-utf8", brief, func(a *attacker) {
		for _, path := range []string{"/ws", "/ws/chat", "/ws/lanes"} {
			for _, bad := range []string{"\xff", "{\"type\":\"chat\",\"text\":\"\xc3\x28\"}", "\xed\xa0\x80", "\xf0\x9f"} {
				frame(a.silent(path), websocket.OpText, []byte(bad))
			}
		}
		a.call("POST", "/v1/streams/evil-0/messages", "{\"payload\":\"\xff\"}")
	}},
	{"strange-numbers", lasting, func(a *attacker) {
		for _, number := range []string{"-1", "0", "1.5", "1e309", "-9223372036854775808", "9223372036854775807", "9223372036854775808", "1000000000000000000000000", `"1"`, "null", "true", "[]"} {
			for _, request := range []string{
				`{"type":"subscribe","stream":"evil-0","subscription":"s","from":"start","credits":N,"id":1}`, `{"type":"subscribe","stream":"evil-0","after":N,"id":1}`,
				`{"type":"credit","subscription":"s","n":N,"id":1}`, `{"type":"consume","queue":"evil-queue","credits":N,"id":1}`, `{"type":"credit","queue":"evil-queue","n":N,"id":1}`,
				`{"type":"enqueue","queue":"evil-queue","payload":"x","delay_ms":N,"id":1}`, `{"type":"enqueue","queue":"evil-queue","payload":"x","priority":N,"id":1}`,
				`{"type":"enqueue","queue":"evil-queue","payload":"x","unique_key":"u","unique_ms":N,"id":1}`, `{"type":"nack","queue":"evil-queue","delivery":"1","delay_ms":N,"id":1}`,
				`{"type":"extend","queue":"evil-queue","delivery":"1","lease_ms":N,"id":1}`, `{"type":"commit","stream":"evil-0","group":"g","position":N,"id":1}`,
				`{"type":"publish","stream":"evil-0","payload":"x","client":"p","sequence":N,"id":1}`, `{"type":"query","limit":N,"after":N,"before":N,"id":1}`,
				`{"type":"append","events":[{"type":"A","tags":["evil"]}],"condition":{"query":{"items":[]},"after":N},"id":1}`, `{"type":"join","room":"stored-evil","history":N,"id":1}`,
				`{"type":"join","room":"stored-evil","after":N,"id":1}`,
			} {
				a.converse([]string{"/ws", "/ws/chat"}[a.random.IntN(2)], strings.ReplaceAll(request, "N", number))
				if a.Err() != nil {
					return
				}
			}
			a.call("GET", "/v1/streams/evil-0/messages?limit="+number+"&after="+number, "")
			a.call("POST", "/v1/queues/evil-queue/receive?max="+number+"&wait_ms="+number, "")
			a.call("POST", "/v1/queues/evil-"+number, strings.ReplaceAll(`{"max_attempts":N,"retry_min_ms":N,"priorities":N,"partitions":N}`, "N", number))
		}
	}},
	{"costly-conditions", lasting, func(a *attacker) {
		var tags []string
		for n := range 5000 {
			tags = append(tags, fmt.Sprintf(`{"tags":["t%d","evil"],"types":["A","B","C"]}`, n))
		}
		query := `{"items":[` + strings.Join(tags, ",") + `]}`
		a.side(4, func(int) {
			for a.Err() == nil {
				h := a.converse("/ws", `{"type":"append","events":[{"type":"A","tags":["evil"]}],"condition":{"query":`+query+`,"after":0},"id":1}`,
					`{"type":"project","queries":[`+query+`],"id":2}`, `{"type":"query","query":`+query+`,"limit":1000,"id":3}`)
				if h.err != nil {
					return
				}
			}
		})
	}},
	{"deleted-in-use", lasting, func(a *attacker) {
		for a.Err() == nil {
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
	{"large-bodies", brief, func(a *attacker) {
		large := bytes.Repeat([]byte("x"), 2<<20)
		a.denied("POST", "/v1/streams/evil-0/messages", `{"payload":"`+string(large)+`"}`)
		a.denied("POST", "/v1/streams/evil-0/messages?raw", string(large))
		for _, path := range []string{"/ws", "/ws/chat", "/ws/ingest", "/ws/lanes"} {
			if c := a.silent(path); c != nil {
				frame(c, websocket.OpText, large)
			}
		}
		many := `{"type":"publish","stream":"evil-0","messages":[` + strings.TrimSuffix(strings.Repeat(`{"payload":""},`, 1001), ",") + `],"id":1}`
		a.refusal("/ws", many, "too_many_messages")
	}},
}
