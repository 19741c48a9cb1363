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

// memoryAttacks make the server hold bytes for clients that do not read.
var memoryAttacks = []attack{
	{"join-unread", lasting, func(a *attacker) {
		for range 10 {
			text(a.silent("/ws/chat"), `{"type":"join","room":%q,"history":1000,"id":1}`, bigRoom)
		}
		a.hold()
	}},
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
	{"queries-unread", lasting, func(a *attacker) {
		for range 5 {
			c := a.silent("/ws")
			for id := range 64 {
				text(c, `{"type":"query","query":{"items":[{"tags":[%q]}]},"limit":1000,"id":%d}`, bigTag, id+1)
			}
		}
		a.hold()
	}},
	{"no-credits", lasting, func(a *attacker) {
		for range 4 * a.scale {
			c := a.silent("/ws")
			for n := range 100 {
				text(c, `{"type":"subscribe","stream":%q,"from":"start","subscription":"s%d","credits":0}`, bigStream, n)
			}
		}
		a.hold()
	}},
	{"subscriptions-unread", lasting, func(a *attacker) {
		for range 4 * a.scale {
			c := a.silent("/ws")
			for n := range 100 {
				text(c, `{"type":"subscribe","stream":%q,"from":"start","subscription":"s%d"}`, bigStream, n)
			}
		}
		a.hold()
	}},
	{"unfinished-messages", lasting, func(a *attacker) {
		part := bytes.Repeat([]byte("x"), 1<<20-1000)
		for range 150 * a.scale {
			path := []string{"/ws/ingest", "/ws", "/ws/chat"}[a.random.IntN(3)]
			c := a.silent(path)
			if c == nil {
				continue
			}
			c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)) // the server need not accept it
			c.Write(append(beginning(websocket.OpText, a.random.IntN(2) == 0, 1<<20-500), part...))
		}
		a.hold()
	}},
	{"unfinished-bodies", lasting, func(a *attacker) {
		part := strings.Repeat("x", 900<<10)
		for range 100 * a.scale {
			c := a.raw()
			if c == nil {
				continue
			}
			c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			fmt.Fprintf(c, "POST /v1/streams/evil/messages HTTP/1.1\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{\"payload\":\"%s", a.head(), 1<<20, part)
		}
		a.hold()
	}},
	{"object-lists", lasting, func(a *attacker) {
		objects := strings.Repeat("{},", 1<<20/3-100)
		for n := range 60 * a.scale {
			start := []string{`{"type":"publish","stream":"evil-0","messages":[`, `{"type":"append","events":[`, `{"type":"project","queries":[`}[n%3]
			text(a.silent("/ws"), `%s%s{}],"id":1}`, start, objects)
		}
		a.hold()
	}},
	{"growing-pings", lasting, func(a *attacker) {
		signs := strings.Repeat("<", 1<<20-100) // in JSON that is escaped six times as long
		for n := range 10 * a.scale {
			if c := a.silent([]string{"/ws", "/ws/chat"}[n%2]); c != nil {
				a.calls.Go(func() {
					for text(c, `{"type":"ping","ts":"%s"}`, signs) {
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
		for range 20 * a.scale {
			text(a.silent("/ws/chat"), `{"type":"join","room":"evil","id":1}`)
		}
		speaker := a.silent("/ws/chat")
		for n := 0; a.Err() == nil && text(speaker, `{"type":"chat","room":"evil","text":"%s"}`, strings.Repeat("y", 100<<10)); n++ {
			a.pause(5 * time.Millisecond)
		}
	}},
	{"deliveries-unread", lasting, func(a *attacker) {
		a.call("POST", "/v1/queues/evil-unread", "{}")
		for range 5 {
			text(a.silent("/ws"), `{"type":"consume","queue":"evil-unread","credits":10000,"id":1}`)
		}
		body := fmt.Sprintf(`{"payload":%q}`, strings.Repeat("z", 200<<10))
		for range 100 {
			if status, _ := a.call("POST", "/v1/queues/evil-unread/messages", body); status == 0 {
				break
			}
		}
		a.hold()
	}},
	{"requests-unread", lasting, func(a *attacker) {
		for range 10 {
			if c := a.silent("/ws"); c != nil {
				a.calls.Go(func() {
					for text(c, `{"type":"%s","id":"%s"}`, "nonsense", strings.Repeat("i", 100)) {
					}
				})
			}
		}
		a.hold()
	}},
}
