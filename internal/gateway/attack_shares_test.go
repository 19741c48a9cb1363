package gateway_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
)

// TestAttack_SharedGroup: members that come and go without end, and floods of commits of partitions that they do not own or of positions that do not exist,
// take nothing from a member of another group, and move no offset.
func TestAttack_SharedGroup(t *testing.T) {
	t.Parallel()
	one := serveDatabase(t, migrated.Open(t), nil)
	one.make(t, "s", 4)
	publishKeys(t, one.addr, 0, 40)
	var attacking sync.WaitGroup
	for n := range 4 {
		attacking.Go(func() {
			for range 3 {
				c := connect(t, one.addr)
				for m := range 3 {
					send(t, c.Conn, fmt.Sprintf(`{"type":"subscribe","id":%d,"stream":"s","subscription":"m%d","group":"evil","share":true,"credits":0}`, m+1, m))
				}
				if n%2 == 0 {
					c.Abort()
					continue
				}
				for m := range 3 {
					send(t, c.Conn, fmt.Sprintf(`{"type":"unsubscribe","id":%d,"subscription":"m%d"}`, m+10, m))
				}
				c.answers(10, 11, 12)
				c.Abort()
			}
		})
	}
	attacking.Go(func() {
		c := connect(t, one.addr)
		const commits = 500
		ids := make([]int, commits)
		for n := range ids {
			ids[n] = n + 1
			send(t, c.Conn, fmt.Sprintf(`{"type":"commit","id":%d,"stream":"s","group":"g","partition":%d,"position":%d}`, n+1, n%6, 1+n%50))
		}
		for id, code := range c.answers(ids...) {
			if code != "fenced" {
				t.Errorf("commit %d: %q, want fenced", id, code)
			}
		}
	})
	all := newCrew()
	good := all.joins(t, "good", connect(t, one.addr), `,"credits":1000`)
	heads := one.heads(t, 4)
	good.until(true, func() bool { return len(good.owned) == 4 && good.reached(heads) })
	attacking.Wait()
	if len(all.payloads) != 40 || good.fenced > 0 {
		t.Errorf("%d of 40 messages came, and %d commits were refused", len(all.payloads), good.fenced)
	}
}

// answers reads until these requests are answered, and returns the codes of errors, "" for an ok.
func (w *wire) answers(ids ...int) map[int]string {
	w.t.Helper()
	codes := make(map[int]string)
	open := make(map[int]bool)
	for _, id := range ids {
		open[id] = true
	}
	for len(open) > 0 {
		var p pushed
		line := w.next()
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			w.t.Errorf("%s: %v", line, err)
			return codes
		}
		if open[p.ID] && (p.Type == "ok" || p.Type == "error") {
			delete(open, p.ID)
			codes[p.ID] = p.Code
		}
	}
	return codes
}
