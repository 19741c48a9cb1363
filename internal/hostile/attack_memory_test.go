package hostile

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// The attacks on memory read from these, which are created before.
const (
	bigRoom   = "stored-big"
	bigStream = "big"
	bigTag    = "big"
	bigChat   = 512 << 10
	bigEvent  = 64 << 10
)

// unread is an attack that makes requests on some connections, never reads, and keeps the connections.
func unread(name, path string, connections, requests int, request func(a *attacker, n int) string) attack {
	return attack{name, lasting, func(a *attacker) {
		for range a.many(connections) {
			c := a.silent(path)
			for n := 1; n <= requests && text(c, "%s", request(a, n)); n++ {
			}
		}
		a.hold()
	}}
}

// memoryAttacks make the server hold bytes for clients that do not read.
var memoryAttacks = []attack{
	unread("join-unread", "/ws/chat", 10, 1, func(*attacker, int) string {
		return fmt.Sprintf(`{"type":"join","room":%q,"history":1000,"id":1}`, bigRoom)
	}),
	unread("queries-unread", "/ws", 5, 64, func(_ *attacker, n int) string {
		return fmt.Sprintf(`{"type":"query","query":{"items":[{"tags":[%q]}]},"limit":1000,"id":%d}`, bigTag, n)
	}),
	unread("subscriptions-unread", "/ws", 4, 200, func(_ *attacker, n int) string { // half of them may send nothing
		credits := []string{"", `"credits":0,`}[n%2]
		return fmt.Sprintf(`{"type":"subscribe","stream":%q,"from":"start",%s"subscription":"s%d"}`, bigStream, credits, n)
	}),
	unread("object-lists", "/ws", 60, 1, func(a *attacker, _ int) string {
		start := a.one([]string{`{"type":"publish","stream":"evil-0","messages":[`, `{"type":"append","events":[`, `{"type":"project","queries":[`})
		return start + strings.Repeat("{},", 1<<20/3-100) + `{}],"id":1}`
	}),
	{"messages-unread", lasting, func(a *attacker) {
		for i := range 16 {
			query := "limit=1000"
			if i%2 == 1 {
				query += "&key=k"
			}
			if c := a.raw(); c != nil {
				fmt.Fprintf(c, "GET /v1/streams/%s/messages?%s HTTP/1.1\r\n%s\r\n", bigStream, query, a.head())
			}
		}
		a.hold()
	}},
	{"unfinished-messages", lasting, func(a *attacker) {
		part := bytes.Repeat([]byte("x"), 1<<20-1000)
		for range a.many(150) {
			if c := a.silent(a.one(paths[:3])); c != nil {
				c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)) // the server need not accept it
				c.Write(append(beginning(websocket.OpText, a.random.IntN(2) == 0, 1<<20-500), part...))
			}
		}
		a.hold()
	}},
	{"unfinished-bodies", lasting, func(a *attacker) {
		part := strings.Repeat("x", 900<<10)
		for range a.many(100) {
			if c := a.raw(); c != nil {
				c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
				fmt.Fprintf(c, "POST /v1/streams/evil/messages HTTP/1.1\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{\"payload\":\"%s", a.head(), 1<<20, part)
			}
		}
		a.hold()
	}},
	{"answers-unread", lasting, func(a *attacker) {
		signs := strings.Repeat("<", 1<<20-100) // in JSON that is escaped six times as long
		for n := range a.many(20) {
			request := []string{`{"type":"ping","ts":"` + signs + `"}`, `{"type":"nonsense","id":"` + strings.Repeat("i", 100) + `"}`}[n%2]
			if c := a.silent(a.one(paths[:2])); c != nil {
				a.calls.Go(func() {
					for a.again() && text(c, "%s", request) {
					}
				})
			}
		}
		a.hold()
	}},
	{"many-partitions", brief, func(a *attacker) {
		a.denied("POST", fmt.Sprintf("/v1/streams/evil-wide-%d", a.random.IntN(1000)), `{"partitions":1024}`)
	}},
	{"chats-unread", lasting, func(a *attacker) {
		for range a.many(20) {
			text(a.silent("/ws/chat"), `{"type":"join","room":"evil","id":1}`)
		}
		speaker := a.silent("/ws/chat")
		for a.Err() == nil && text(speaker, `{"type":"chat","room":"evil","text":"%s"}`, strings.Repeat("y", 100<<10)) {
			a.pause(5 * time.Millisecond)
		}
	}},
	{"deliveries-unread", lasting, func(a *attacker) {
		a.call("POST", "/v1/queues/evil-unread", "{}")
		for range 5 {
			text(a.silent("/ws"), `{"type":"consume","queue":"evil-unread","credits":10000,"id":1}`)
		}
		body := fmt.Sprintf(`{"payload":%q}`, strings.Repeat("z", 200<<10))
		for range a.many(100) {
			if status, _ := a.call("POST", "/v1/queues/evil-unread/messages", body); status == 0 {
				break
			}
		}
		a.hold()
	}},
}
