package gateway_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/websocket"
)

// TestShare_Filter: the positions that are told may be committed, and the next owner begins there.
func TestShare_Filter(t *testing.T) {
	t.Parallel()
	one := serveDatabase(t, migrated.Open(t), nil)
	one.make(t, "s", 2)
	publishKeys(t, one.addr, 0, 60)
	heads := one.heads(t, 2)
	all := newCrew()
	a := all.joins(t, "a", connect(t, one.addr), `,"keys":["k1","k4","none"],"credits":12`)
	a.until(true, func() bool { return len(a.owned) == 2 && a.reached(heads) })
	if len(a.got) != 12 || len(all.payloads) != 12 {
		t.Errorf("%d messages, %v", len(a.got), all.payloads)
	}
	a.until(false, func() bool { return a.answered == a.asked })
	a.Abort()
	b := all.joins(t, "b", connect(t, one.addr), "")
	b.owns(2)
	if !maps.Equal(b.owned, heads) {
		t.Errorf("begins after %v, want %v", b.owned, heads)
	}
}

// TestFilter_Group: in a group that is not shared, the positions that are told may be committed.
func TestFilter_Group(t *testing.T) {
	t.Parallel()
	one := serveDatabase(t, migrated.Open(t), nil)
	one.make(t, "s", 0)
	c := connect(t, one.addr)
	for n := range 20 {
		c.ask(fmt.Sprintf(`{"type":"publish","id":1,"stream":"s","payload":"x","headers":{"zone":"%c","n":%d}}`, 'a'+n%4, n), fmt.Sprintf(`{"type":"ok","id":1,"position":%d}`, n+1))
	}
	c.ask(`{"type":"subscribe","id":2,"stream":"s","subscription":"f","group":"g","headers":{"zone":"b"}}`, `{"type":"ok","id":2,"position":0}`)
	got, told := c.filtered("f", 20)
	if fmt.Sprint(got) != "[2 6 10 14 18]" || told == 0 {
		t.Errorf("got %v, and %d positions", got, told)
	}
	c.ask(`{"type":"commit","id":3,"stream":"s","group":"g","position":20}`, `{"type":"ok","id":3,"position":20}`)
}

// TestShare_RightsEnd: a member that may not commit any more ends, and gives its partitions back.
func TestShare_RightsEnd(t *testing.T) {
	t.Parallel()
	key, err := auth.NewSecret("", tokenSecret)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := auth.NewPolicy(auth.Config{Token: auth.TokenConfig{Audience: "tidewire"}, Keys: []auth.Key{key}})
	if err != nil {
		t.Fatal(err)
	}
	db := migrated.Open(t)
	one := serveDatabase(t, db, func(cfg *gateway.Config) { cfg.Auth.Policy = policy })
	open := serveDatabase(t, db, nil)
	one.make(t, "s", 2)
	publishKeys(t, open.addr, 0, 20)
	c := closed{t: t, addr: one.addr}
	none := c.as("/ws", tokenOf(t, "bob", time.Hour, "read stream:s"))
	if got := none.code(`{"type":"subscribe","id":"x","stream":"s","group":"g","share":true}`); got != "errorforbidden" {
		t.Error(got)
	}
	all := newCrew()
	a := all.joins(t, "a", c.as("/ws", tokenOf(t, "ann", time.Hour, "read stream:s", "commit stream:s")), "")
	a.until(false, func() bool { return len(a.got) == 20 })
	send(t, a.Conn, fmt.Sprintf(`{"type":"auth","id":2,"token":%q}`, tokenOf(t, "ann", time.Hour, "read stream:s")))
	a.ends("forbidden")
	if got := a.code(`{"type":"commit","id":"x","stream":"s","group":"g","partition":0,"position":1}`); got != "errorforbidden" {
		t.Error(got)
	}
	b := all.joins(t, "b", connect(t, open.addr), "")
	b.until(true, func() bool { return len(b.got) == 20 })
}

// TestShare_CBOR: a member may speak CBOR.
func TestShare_CBOR(t *testing.T) {
	t.Parallel()
	one := serveDatabase(t, migrated.Open(t), nil)
	one.make(t, "s", 2)
	publishKeys(t, one.addr, 0, 20)
	w := &cborWire{Conn: dialWith(t, one.addr, "tidewire.v1.cbor"), t: t}
	w.next() // hello
	type m = map[string]any
	if got := w.ask(m{"type": "subscribe", "id": 1, "stream": "s", "group": "g", "share": true, "keys": []string{"k1", "k2"}}); got["type"] != "ok" {
		t.Fatal(got)
	}
	owned, positions, fenced := 0, 0, false
	for n := 0; n < 4 || owned < 2 || positions == 0 || !fenced; {
		switch got := w.next(); got["type"] {
		case "assigned":
			owned += len(got["partitions"].([]any))
			w.send(m{"type": "commit", "id": 2, "stream": "s", "group": "g", "partition": 9, "position": 1})
		case "message":
			if n++; got["partition"] == nil || got["key"] != "k1" && got["key"] != "k2" {
				t.Fatal(got)
			}
		case "position":
			positions++
		case "error":
			fenced = got["code"] == "fenced"
		default:
			t.Fatal(got)
		}
	}
}

// TestShare_WhatIsRefused: streams that do not exist or belong to a queue, and filters of events.
func TestShare_WhatIsRefused(t *testing.T) {
	t.Parallel()
	one := serveDatabase(t, migrated.Open(t), nil)
	if err := one.engine.Queues.Create(t.Context(), "q", nil); err != nil {
		t.Fatal(err)
	}
	c := connect(t, one.addr)
	for fields, want := range map[string]string{
		`"stream":"none","group":"g","share":true`:                       "not_found",
		`"stream":"q","group":"g","share":true`:                          "queue_stream",
		`"stream":"none","group":"g","share":true,"from":"start"`:        "invalid_start",
		`"stream":"none","group":"tidewire.g","share":true`:              "invalid_name",
		`"subscription":"e","query":{},"share":true`:                     "malformed",
		`"subscription":"e","query":{},"keys":["a"]`:                     "malformed",
		`"subscription":"e","query":{},"headers":{"a":"b"}`:              "malformed",
		`"stream":"none","group":"g","share":true,"credits":-1`:          "invalid_credits",
		`"stream":"none","group":"g","share":true,"query":{"items":[]}`:  "malformed",
		`"stream":"none","group":"g","share":false,"subscription":"one"`: "not_found",
	} {
		if got := c.code(`{"type":"subscribe","id":"x",` + fields + `}`); got != "error"+want {
			t.Errorf("%s: %s, want %s", fields, got, want)
		}
	}
}

// TestShare_StreamIsDropped: the subscription ends.
func TestShare_StreamIsDropped(t *testing.T) {
	t.Parallel()
	one := serveDatabase(t, migrated.Open(t), nil)
	one.make(t, "s", 2)
	a := newCrew().joins(t, "a", connect(t, one.addr), "")
	a.owns(2)
	if err := one.engine.Streams.Drop(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	a.ends("stream_gone")
}

// TestShare_ManyComeAndGo: whoever comes and goes, each message comes to somebody, and nothing is left at the end.
func TestShare_ManyComeAndGo(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	servers := []database{serveDatabase(t, db, nil), serveDatabase(t, db, nil)}
	servers[0].make(t, "s", 5)
	publishKeys(t, servers[0].addr, 0, 100)
	all := newCrew()
	var last *shares
	for n := range 6 {
		m := all.joins(t, fmt.Sprint("m", n), connect(t, servers[n%2].addr), `,"credits":1000`)
		m.until(true, func() bool { return len(m.got) >= 1+n })
		if last != nil {
			[]func(){last.Abort, func() { last.Close(websocket.StatusNormal, "") }}[n%2]()
		}
		last = m
	}
	heads := servers[0].heads(t, 5)
	last.until(true, func() bool { return len(last.owned) == 5 && last.reached(heads) })
	if len(all.payloads) != 100 {
		t.Errorf("%d of 100 messages came", len(all.payloads))
	}
	groups, err := servers[0].engine.Streams.Groups(t.Context(), "s", "", 10)
	if err != nil || len(groups) != 1 || !slices.ContainsFunc(groups, func(g engine.GroupInfo) bool { return g.Name == "g" }) {
		t.Errorf("%+v, %v", groups, err)
	}
}
