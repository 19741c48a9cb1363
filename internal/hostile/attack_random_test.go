package hostile

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/tidewire/tidewire/internal/wire"
)

// Random requests consist of these: every type and every field that the server knows, and a few that it does not know or
// that are its own.
var (
	randomTypes  = append(wire.Types(), "hello", "chunk", "nonsense")
	randomFields = append(wire.FieldNames(), "bytes", "credit", "chunks", "producer", "nonsense")
	randomValues = []string{
		`"evil-0"`, `"evil-1"`, `"evil-1/0"`, `"evil-queue"`, `"evil-lanes"`, `"evil"`, `"stored-evil"`, `"s"`, `""`, `"start"`, `"end"`, `"gap"`, `"disconnect"`,
		`"2026-01-01T00:00:00Z"`, `"0001-01-01T00:00:00Z"`, `"9999-12-31T23:59:59Z"`, `"eA=="`, `"="`, `"\u0000"`, `"\ud800"`, `"* * * * *"`, `"* * 30 2 *"`, `"UTC"`,
		`0`, `1`, `2`, `-1`, `1000`, `1001`, `100000`, `600000`, `9223372036854775807`, `-9223372036854775808`, `1e400`, `0.5`,
		`true`, `false`, `null`, `{}`, `[]`, `{"a":1}`, `{"a":"b"}`, `[{}]`, `[null]`, `["1","2"]`, `["evil","stored-evil"]`, `[1,2,2,-1]`, `[{"payload":"x"}]`,
		`[{"payload":"x","key":"a"},{"payload":"y","key":"b"}]`,
		`[{"type":"A","tags":["evil"]}]`, `[{"type":"","tags":[""]}]`, `{"query":{"items":[{"tags":["evil"]}]},"after":0}`, `{"items":[{"types":["A"],"tags":["evil"]}]}`,
		`{"items":[]}`, `{"items":[{}]}`, `[{"items":[{"tags":["evil"]}]}]`,
	}
)

// one returns one of these.
func (a *attacker) one(of []string) string { return of[a.random.IntN(len(of))] }

// randomRequest returns a request of one type with a few fields, most of which
// are valid alone.
func (a *attacker) randomRequest(id int) string {
	var out strings.Builder
	fmt.Fprintf(&out, `{"type":%q,"id":%d`, a.one(randomTypes), id)
	for range a.random.IntN(7) {
		fmt.Fprintf(&out, `,%q:%s`, a.one(randomFields), a.one(randomValues))
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
	return fmt.Sprintf(`{"type":%q,"stream":"evil-0","queue":"evil-queue",%q:%s,"id":1}`, a.one(randomTypes), a.one(randomFields), value)
}

// unfailing reads what the server sends until the connection ends. The code internal, which stands for a panic, is a fault: as
// JSON or CBOR it is the value of the field code.
func (a *attacker) unfailing(c *net.TCPConn) {
	buf, kept := make([]byte, 64<<10), 0
	for {
		n, err := c.Read(buf[kept:])
		got := buf[:kept+n]
		for _, failed := range []string{`"code":"internal"`, "\x64code\x68internal"} {
			if at := bytes.Index(got, []byte(failed)); at >= 0 {
				a.wrong("internal", "the server sent %.300q", got[max(0, at-100):])
			}
		}
		if err != nil {
			return
		}
		kept = copy(buf, got[max(0, len(got)-20):]) // what is found may come in two parts
	}
}

// pelt sends some messages, and leaves half of the connections open.
func (a *attacker) pelt(c *net.TCPConn, messages int, send func(id int) bool) {
	a.calls.Go(func() { a.unfailing(c) })
	for id := range messages {
		c.SetWriteDeadline(time.Now().Add(time.Second))
		if !send(id) {
			break
		}
	}
	if a.random.IntN(2) == 0 {
		c.Close()
	}
}

var randomAttacks = []attack{
	{"random-requests", lasting, func(a *attacker) {
		for a.again() {
			c := a.silent(a.one([]string{"/ws", "/ws", "/ws/chat", "/ws/lanes"}))
			if c == nil {
				return
			}
			a.pelt(c, 300, func(id int) bool { return text(c, "%s", a.randomRequest(id)) })
		}
	}},
	{"random-bodies", lasting, func(a *attacker) {
		for a.again() {
			a.callAnything()
		}
	}},
}
