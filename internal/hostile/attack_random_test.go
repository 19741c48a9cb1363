package hostile

import (
	"fmt"
	"strings"
	"time"
)

// Random requests consist of these.
var (
	randomTypes = strings.Fields(`publish subscribe unsubscribe commit enqueue consume ack nack extend cancel credit append query project
		auth join chat leave ping pong hello chunk presence nonsense`)
	randomFields = strings.Fields(`stream queue group subscription room user store key headers payload payload_base64 messages producer sequence after at
		from position credits n delivery deliveries delay_ms priority unique_key unique_ms lease_ms reason events condition query queries before limit
		backwards share partition keys text ts on_lag presence history bytes credit chunks id type`)
	randomValues = []string{
		`"evil-0"`, `"evil-1"`, `"evil-1/0"`, `"evil-queue"`, `"evil-lanes"`, `"evil"`, `"stored-evil"`, `"s"`, `""`, `"start"`, `"end"`, `"gap"`, `"disconnect"`,
		`"2026-01-01T00:00:00Z"`, `"0001-01-01T00:00:00Z"`, `"9999-12-31T23:59:59Z"`, `"eA=="`, `"="`, `"\u0000"`, `"\ud800"`,
		`0`, `1`, `2`, `-1`, `1000`, `1001`, `100000`, `600000`, `9223372036854775807`, `-9223372036854775808`, `1e400`, `0.5`,
		`true`, `false`, `null`, `{}`, `[]`, `{"a":1}`, `[{}]`, `[null]`, `["1","2"]`, `[{"payload":"x"}]`, `[{"payload":"x","key":"a"},{"payload":"y","key":"b"}]`,
		`[{"type":"A","tags":["evil"]}]`, `[{"type":"","tags":[""]}]`, `{"query":{"items":[{"tags":["evil"]}]},"after":0}`, `{"items":[{"types":["A"],"tags":["evil"]}]}`,
		`{"items":[]}`, `{"items":[{}]}`, `[{"items":[{"tags":["evil"]}]}]`,
	}
)

// randomRequest returns a request of one type with a few fields, most of which
// are valid alone.
func (a *attacker) randomRequest(id int) string {
	var out strings.Builder
	fmt.Fprintf(&out, `{"type":%q,"id":%d`, randomTypes[a.random.IntN(len(randomTypes))], id)
	for range a.random.IntN(7) {
		fmt.Fprintf(&out, `,%q:%s`, randomFields[a.random.IntN(len(randomFields))], randomValues[a.random.IntN(len(randomValues))])
	}
	// Existing names let most requests pass the first check.
	if a.random.IntN(2) == 0 {
		out.WriteString(`,"stream":"evil-0","queue":"evil-queue","payload":"x"`)
	}
	out.WriteString("}")
	return out.String()
}

// bomb returns a request of any type with a value that is costly to read, in any field.
func (a *attacker) bomb(value string) string {
	return fmt.Sprintf(`{"type":%q,"stream":"evil-0","queue":"evil-queue",%q:%s,"id":1}`, randomTypes[a.random.IntN(len(randomTypes))], randomFields[a.random.IntN(len(randomFields))], value)
}

var randomAttacks = []attack{
	{"random-requests", lasting, func(a *attacker) {
		for a.Err() == nil {
			c := a.silent([]string{"/ws", "/ws", "/ws/chat", "/ws/lanes"}[a.random.IntN(4)])
			if c == nil {
				return
			}
			a.calls.Go(func() {
				for buf := make([]byte, 64<<10); ; {
					if _, err := c.Read(buf); err != nil {
						return
					}
				}
			})
			for id := range 300 {
				c.SetWriteDeadline(time.Now().Add(time.Second))
				if !text(c, "%s", a.randomRequest(id)) {
					break
				}
			}
			if a.random.IntN(2) == 0 {
				c.Close()
			}
		}
	}},
	{"random-bodies", lasting, func(a *attacker) {
		paths := []string{
			"POST /v1/streams/evil-0", "POST /v1/streams/evil-0/messages", "POST /v1/streams/evil-0/groups/g/commit", "POST /v1/events", "POST /v1/events/query",
			"POST /v1/events/project", "POST /v1/queues/evil-queue", "POST /v1/queues/evil-lanes", "POST /v1/queues/evil-queue/messages", "POST /v1/queues/evil-queue/receive",
			"POST /v1/queues/evil-queue/ack", "POST /v1/queues/evil-queue/nack", "POST /v1/queues/evil-queue/extend", "GET /v1/streams/evil-0/messages", "PUT /v1/streams/evil-0",
		}
		for a.Err() == nil {
			method, path, _ := strings.Cut(paths[a.random.IntN(len(paths))], " ")
			status, answer := a.call(method, path, a.randomRequest(1))
			if status == 500 && !strings.Contains(answer, "not_stored") && !strings.Contains(answer, "outcome_unknown") {
				a.wrong("status 500", "%s %s was answered %s", method, path, answer)
			}
		}
	}},
}
