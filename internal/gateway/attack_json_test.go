package gateway_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
)

// namedEvents are event stores that note the names by which they are asked.
type namedEvents struct {
	*fakeEvents
	noting sync.Mutex
	names  map[string]bool
}

func newNamedEvents() *namedEvents {
	return &namedEvents{fakeEvents: &fakeEvents{changed: make(chan struct{})}, names: make(map[string]bool)}
}

func (n *namedEvents) note(store string) {
	n.noting.Lock()
	defer n.noting.Unlock()
	n.names[store] = true
}

func (n *namedEvents) noted() []string {
	n.noting.Lock()
	defer n.noting.Unlock()
	return slices.Sorted(maps.Keys(n.names))
}

func (n *namedEvents) Append(ctx context.Context, store string, as *engine.RequestID, events []engine.Event, c *engine.EventCondition) (engine.AppendedEvents, error) {
	n.note(store)
	return n.fakeEvents.Append(ctx, store, as, events, c)
}

func (n *namedEvents) Query(ctx context.Context, store string, q engine.EventQuery, r engine.EventRange) ([]engine.Event, error) {
	n.note(store)
	return n.fakeEvents.Query(ctx, store, q, r)
}

func (n *namedEvents) Count(ctx context.Context, store string, queries []engine.EventQuery) ([]int64, engine.EventCondition, error) {
	n.note(store)
	return n.fakeEvents.Count(ctx, store, queries)
}

func (n *namedEvents) SubscribeEvents(ctx context.Context, store string, q engine.EventQuery, after int64) (engine.EventSubscription, error) {
	n.note(store)
	return n.fakeEvents.SubscribeEvents(ctx, store, q, after)
}

// withEvents gives a server these event stores.
func withEvents(events engine.Events) func(*gateway.Config) {
	return func(cfg *gateway.Config) { cfg.Engine.Events = events }
}

// twice are objects' fields that give one name two values, in both orders and several spellings.
func twice(name, one, other string) (fields []string) {
	title := strings.ToUpper(name[:1]) + name[1:]
	escaped := fmt.Sprintf(`\u%04x%s`, name[0], name[1:])
	folded := strings.ReplaceAll(name, "s", "\u017f") // which package json takes for an s
	for _, spelling := range []string{name, title, strings.ToUpper(name), escaped, folded} {
		for _, v := range [][2]string{{one, other}, {other, one}} {
			fields = append(fields, fmt.Sprintf(`%q:%s,"%s":%s`, name, v[0], spelling, v[1]), fmt.Sprintf(`"%s":%s,%q:%s`, spelling, v[0], name, v[1]))
		}
	}
	return append(fields, fmt.Sprintf(`%q:%s,%[1]q:null`, name, other), fmt.Sprintf(`%q:%s,%[1]q:""`, name, other))
}

// stored are the messages of a stream, and its groups.
func (f *fakeStreams) stored(name string) (messages, groups int) {
	f.state.Lock()
	defer f.state.Unlock()
	return len(f.streams[name].messages), len(f.streams[name].groups)
}

// refusedTwice reports whether an answer refuses a field that is there twice: because of that, because another spelling is no field, or because
// a null does not count and the other value is not allowed.
func refusedTwice(answer string) bool {
	switch answer {
	case "errormalformed", "errorunknown_field", "errorforbidden":
		return true
	}
	return false
}

// TestAttack_FieldsTwice: a request with a field that is there twice is refused, whatever its values, in each request on /ws.
func TestAttack_FieldsTwice(t *testing.T) {
	t.Parallel()
	events := newNamedEvents()
	c := serveClosed(t, withEvents(events))
	token := tokenOf(t, "ann", time.Hour, "read,publish,commit stream:orders", "enqueue,consume queue:jobs", "query,append events:default")
	fill(c.streams, "orders", 1, 1)
	c.streams.change(func() {
		c.streams.streams["secret"].messages = []engine.Message{{Position: 1, Payload: []byte("hidden")}}
	})
	for _, d := range []struct{ field, one, other, rest string }{
		{"stream", `"orders"`, `"secret"`, `"type":"publish","payload":"x"`},
		{"stream", `"orders"`, `"secret"`, `"type":"commit","group":"g","position":1`},
		{"queue", `"jobs"`, `"other"`, `"type":"enqueue","payload":"x"`},
		{"queue", `"jobs"`, `"other"`, `"type":"ack","delivery":"1"`},
		{"store", `"default"`, `"hidden"`, `"type":"append","events":[{"type":"A"}]`},
		{"store", `"default"`, `"hidden"`, `"type":"query","query":{},"limit":1`},
		{"store", `"default"`, `"hidden"`, `"type":"project","queries":[{}]`},
	} {
		w := c.as("/ws", token)
		for _, fields := range twice(d.field, d.one, d.other) {
			for _, text := range []string{`{"id":"x",` + fields + `,` + d.rest + `}`, `{"id":"x",` + d.rest + `,` + fields + `}`} {
				if got := w.code(text); !refusedTwice(got) {
					t.Errorf("%s: %s", text, got)
				}
			}
		}
		w.Abort()
	}
	for _, fields := range twice("stream", `"orders"`, `"secret"`) {
		w := c.as("/ws", token)
		if w.code(`{"id":"x","type":"subscribe","subscription":"s","after":0,"credits":1,`+fields+`}`) == "ok" {
			if got := w.next(); strings.Contains(got, "hidden") {
				t.Errorf("%s: %s", fields, got)
			}
		}
		w.Abort()
	}
	for _, fields := range twice("store", `"default"`, `"hidden"`) {
		w := c.as("/ws", token)
		w.code(`{"id":"x","type":"subscribe","subscription":"s","query":{},"credits":0,` + fields + `}`)
		w.Abort()
	}
	if messages, groups := c.streams.stored("secret"); messages != 1 || groups != 0 {
		t.Errorf("the stream without a right has %d messages, want 1, and %d groups", messages, groups)
	}
	if stats, _ := c.queues.Stats(t.Context(), "other"); stats.Ready != 0 {
		t.Errorf("the queue without a right has %d messages", stats.Ready)
	}
	if slices.Contains(events.noted(), "hidden") {
		t.Error("the store without a right was asked")
	}
}

// TestAttack_FieldsTwiceByHTTP: names in a body do not replace those of the path, and of two stores the one that is checked is used.
func TestAttack_FieldsTwiceByHTTP(t *testing.T) {
	t.Parallel()
	events := newNamedEvents()
	c := serveClosed(t, withEvents(events))
	token := tokenOf(t, "ann", time.Hour, "publish,commit stream:orders", "enqueue,consume queue:jobs", "query,append events:default")
	for _, name := range []string{"stream", "queue"} {
		other := map[string]string{"stream": `"secret"`, "queue": `"other"`}[name]
		for _, fields := range append(twice(name, `"x"`, other), fmt.Sprintf(`%q:%s`, name, other)) {
			for path, rest := range map[string]string{"streams/orders/messages": `"payload":"x"`, "streams/orders/groups/g/commit": `"group":"h","position":1`, "queues/jobs/messages": `"payload":"x"`} {
				got := c.status("POST", "/v1/"+path, `{`+rest+`,`+fields+`}`, token)
				if once := !strings.Contains(fields, ",") || strings.HasSuffix(fields, "null"); got != "400 malformed" && got != "400 unknown_field" && !(once && got == "200") {
					t.Errorf("%s with %s: %s", path, fields, got)
				}
			}
		}
	}
	for _, fields := range append(twice("store", `"default"`, `"hidden"`), `"store":"hidden"`) {
		for path, rest := range map[string]string{"events": `"events":[{"type":"A"}]`, "events/query": `"query":{}`, "events/project": `"queries":[{}]`} {
			for _, parameter := range []string{"", "?store=default", "?store=default&store=hidden", "?store=hidden&store=default", "?Store=hidden", "?store=hidden"} {
				c.status("POST", "/v1/"+path+parameter, `{`+rest+`,`+fields+`}`, token)
			}
		}
	}
	for _, parameters := range []string{"store=default&store=hidden", "store=hidden&store=default", "store=%68idden", "store=hidden%00", "store=default%26store=hidden"} {
		c.status("GET", "/v1/events?"+parameters, "", token)
	}
	c.status("POST", "/v1/events", `{"store":"default","events":[{"type":"A"}]}`, token)
	if slices.Contains(events.noted(), "hidden") || !slices.Contains(events.noted(), "default") {
		t.Errorf("the stores %q were asked, want default and not hidden", events.noted())
	}
	if messages, groups := c.streams.stored("secret"); messages+groups != 0 {
		t.Errorf("the stream without a right has %d messages and %d groups", messages, groups)
	}
	if stats, _ := c.queues.Stats(t.Context(), "other"); stats.Ready != 0 {
		t.Errorf("the queue without a right has %d messages", stats.Ready)
	}
}

// TestAttack_TagsTwice: tags and queries that are there twice reach no further than those that are checked, on both doors.
func TestAttack_TagsTwice(t *testing.T) {
	t.Parallel()
	events := newNamedEvents()
	events.events = []engine.Event{{Position: 1, Type: "A", Tags: []string{"t:1"}}, {Position: 2, Type: "theirs", Tags: []string{"t:2"}}}
	c := serveClosed(t, withEvents(events))
	token := tokenOf(t, "ann", time.Hour, "query,append events:default#t:1")
	var queries []string
	for _, fields := range append(twice("tags", `["t:1"]`, `["t:2"]`), twice("tags", `["t:1"]`, `[]`)...) {
		if !strings.HasSuffix(fields, `""`) {
			queries = append(queries, `"query":{"items":[{`+fields+`}]}`)
		}
	}
	for _, other := range []string{`[{"tags":["t:2"]}]`, `[{}]`, `[]`, `null`, `[{"types":["theirs"]}]`} {
		for _, fields := range twice("items", `[{"tags":["t:1"]}]`, other) {
			queries = append(queries, `"query":{`+fields+`}`)
		}
		queries = append(queries, twice("query", `{"items":[{"tags":["t:1"]}]}`, `{"items":`+other+`}`)...)
	}
	w := c.as("/ws", token)
	for _, query := range queries {
		send(t, w.Conn, `{"id":"x","type":"query",`+query+`}`)
		got := w.next()
		_, text := client{t, c.addr}.do("POST", "/v1/events/query", `{`+query+`}`, "Authorization", "Bearer "+token)
		if strings.Contains(got, "theirs") || strings.Contains(text, "theirs") {
			t.Errorf("%s\n got %s\n and %s", query, got, text)
		}
		w.code(`{"id":"x","type":"append","events":[{"type":"B","tags":["t:1"]}],"condition":{` + query + `}}`)
	}
	for _, fields := range twice("tags", `["t:1"]`, `["t:2"]`) {
		for _, list := range []string{`"events":[{"type":"B",` + fields + `}]`, `"events":[{"type":"B","tags":["t:1"]}],"events":[{"type":"B",` + fields + `},{"type":"B","tags":["t:2"]}]`} {
			w.code(`{"id":"x","type":"append",` + list + `}`)
			c.status("POST", "/v1/events", `{`+list+`}`, token)
		}
	}
	events.mu.Lock()
	defer events.mu.Unlock()
	for _, e := range events.events[2:] {
		if !slices.Contains(e.Tags, "t:1") {
			t.Errorf("an event with the tags %q is stored", e.Tags)
		}
	}
}

// TestAttack_RoomTwice: a message with two rooms or two types is refused on /ws and /ws/chat, and has no effect, in both modes.
func TestAttack_RoomTwice(t *testing.T) {
	t.Parallel()
	_, _, _, open := serveAll(t)
	c := serveClosed(t, nil)
	for _, in := range []closed{c, {t: t, addr: open}} {
		guard := in.as("/ws", tokenOf(t, "bob", time.Hour, "join room:secret"))
		guard.ask(`{"id":1,"type":"join","room":"secret"}`, `{"id":1,"type":"ok"}`)
		for _, path := range []string{"/ws", "/ws/chat"} {
			w := in.as(path, tokenOf(t, "ann", time.Hour, "join,chat room:a"))
			w.ask(`{"id":1,"type":"join","room":"a"}`, `{"id":1,"type":"ok"}`)
			for _, fields := range twice("room", `"a"`, `"secret"`) {
				if strings.Contains(fields, "\u017f") {
					continue // there is no s in it
				}
				for _, kind := range []string{"chat", "join", "leave"} {
					if got := w.code(`{"id":"x","type":"` + kind + `","text":"x",` + fields + `}`); got != "errormalformed" {
						t.Errorf("%s of %s on %s: %s", kind, fields, path, got)
					}
				}
			}
			for _, fields := range twice("type", `"ping"`, `"chat"`) {
				if got := w.code(`{"id":"x","room":"secret","text":"x",` + fields + `}`); !strings.HasPrefix(got, "error") {
					t.Errorf("%s on %s: %s", fields, path, got)
				}
			}
		}
		if got := guard.code(`{"id":"x","type":"nonsense"}`); got != "errorunknown_type" { // and no chat before it
			t.Errorf("got %s", got)
		}
	}
}
