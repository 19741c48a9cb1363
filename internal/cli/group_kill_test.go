package cli_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestGroup_ServerKilled: when a server is killed, a member at another one gets its partitions after the lease. It gets
// the messages that were not committed, and none of the others.
func TestGroup_ServerKilled(t *testing.T) {
	t.Parallel()
	url := migrated(t).URL
	one, two := serve(t, "--database-url", url), serve(t, "--database-url", url)
	request(t, "POST", one.addr, "/v1/streams/s", `{"partitions":2}`)
	a, b := wireDial(t, one.addr), wireDial(t, two.addr)
	for _, w := range []*wire{a, b} {
		w.SetReadDeadline(time.Now().Add(2 * time.Minute))
	}
	for n := range 30 {
		if got := b.ask(`{"type":"publish","id":%d,"stream":"s","key":"k%d","payload":"%d"}`, n+1, n%10, n); got.Type != "ok" {
			t.Fatalf("%+v", got)
		}
	}
	const join = `{"type":"subscribe","id":100,"stream":"s","group":"g","share":true}`
	if got := a.ask(join); got.Type != "ok" {
		t.Fatalf("%+v", got)
	}
	committed := make(map[int]int64)
	for n := 0; n < 30; {
		m, err := a.next()
		if err != nil {
			t.Fatal(err)
		}
		if m.Type != "message" {
			continue
		}
		if n++; n%2 == 0 { // half of them, and so those before in the same partition
			continue
		}
		got := a.ask(`{"type":"commit","id":%d,"stream":"s","group":"g","partition":%d,"position":%d}`, 200+n, m.Partition, m.Position)
		if got.Type != "ok" || got.Position < m.Position {
			t.Fatalf("%+v", got)
		}
		committed[m.Partition] = got.Position
	}
	if got := b.ask(join); got.Type != "ok" {
		t.Fatalf("%+v", got)
	}
	if err := one.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	heads, wanted := make(map[int]int64), 0
	for partition := range 2 {
		status, text := request(t, "GET", two.addr, fmt.Sprintf("/v1/streams/s%%2F%d", partition), "")
		var head int64
		if _, err := fmt.Sscanf(text[max(0, strings.Index(text, `"head":`)):], `"head":%d`, &head); err != nil {
			t.Fatal(status, text, err)
		}
		heads[partition] = head
		wanted += int(head - committed[partition])
	}
	for got := 0; got < wanted; {
		m, err := b.next()
		if err != nil {
			t.Fatalf("after %d of %d messages: %v", got, wanted, err)
		}
		if m.Type != "message" {
			continue
		}
		if got++; m.Position <= committed[m.Partition] || m.Position > heads[m.Partition] {
			t.Errorf("%+v came after %d was committed", m, committed[m.Partition])
		}
	}
}
