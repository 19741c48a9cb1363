package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
)

// TestAuth_Paths: a path grants what its decoded name does, however it is spelled, and neither another method nor a header that names one does
// more than the method of the request.
func TestAuth_Paths(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	for _, name := range []string{"a/b", "../secret", "x;y", "secret ", "secret/messages", "%2F", ".", ".."} {
		if _, err := c.streams.Create(t.Context(), name, nil); err != nil {
			t.Fatal(err)
		}
	}
	parents := tokenOf(t, "ann", time.Hour, "read stream:a", "read stream:b", "read stream:x", "read stream:y", "read stream:orders", "read stream:messages")
	for path, name := range map[string]string{
		"a%2Fb": "a/b", "a%2fb": "a/b", "%2e%2e%2Fsecret": "../secret", "x;y": "x;y", "x%3By": "x;y", "%73ecret": "secret", "secret%20": "secret ", "secret%2Fmessages": "secret/messages", "%252F": "%2F", "~.": ".", "~..": "..",
	} {
		for _, rest := range []string{"", "/messages", "/groups"} {
			full := "/v1/streams/" + path + rest
			if got := c.status("GET", full, "", parents); got != "403 forbidden" {
				t.Errorf("%s without the right to %q: %s", full, name, got)
			}
			if got := c.status("GET", full, "", tokenOf(t, "ann", time.Hour, "read stream:"+name)); got != "200" {
				t.Errorf("%s with the right to %q: %s", full, name, got)
			}
		}
	}
	all := tokenOf(t, "ann", time.Hour, "read,publish,commit,admin stream:**")
	for _, path := range []string{
		"//v1/streams/secret", "/v1//streams/secret", "/v1/streams//secret", "/v1/streams/orders/../secret", "/v1/./streams/secret", "/V1/streams/secret", "/v1/streams/secret/", "/v1/streams/orders/%2e%2e/secret",
		"/healthz/../v1/streams/secret", "/v1/streams/secret;x", "/v1/streams/secret%00", `/v1/streams\secret`, "/v1%2Fstreams%2Fsecret", "/v1/streams/secret?stream=orders",
	} {
		for _, token := range []string{parents, ""} {
			if got := c.status("GET", path, "", token); !strings.HasPrefix(got, "4") {
				t.Errorf("%s: %s", path, got)
			}
		}
	}
	for _, method := range []string{"HEAD", "OPTIONS", "TRACE", "get", "PROPFIND", "PUT", "PATCH"} {
		if got := c.status(method, "/v1/streams/secret", "", parents); !strings.HasPrefix(got, "4") {
			t.Errorf("%s: %s", method, got)
		}
	}
	client{t, c.addr}.do("POST", "/v1/streams/secret?_method=DELETE", "", "Authorization", "Bearer "+all, "X-HTTP-Method-Override", "DELETE")
	if got := c.status("GET", "/v1/streams/secret", "", all); got != "200" {
		t.Errorf("a stream that nobody dropped: %s", got)
	}
}

// TestAuth_FieldsTwice: a request with a field that is there twice is refused, whatever its values, on all doors. Names in a body do not replace
// those of the path, and of two stores the one that is checked is used.
func TestAuth_FieldsTwice(t *testing.T) {
	t.Parallel()
	events := newFakeEvents()
	c := serveClosed(t, func(cfg *gateway.Config) { cfg.Engine.Events = events })
	token := tokenOf(t, "ann", time.Hour, "read,publish,commit stream:orders", "enqueue,consume queue:jobs", "query,append events:default", "join,chat room:a")
	both, chat := c.as("/ws", token), c.as("/ws/chat", token)
	both.ask(`{"id":1,"type":"join","room":"a"}`, `{"id":1,"type":"ok"}`)
	chat.ask(`{"id":1,"type":"join","room":"a"}`, `{"id":1,"type":"ok"}`)
	for _, d := range []struct{ field, one, other, rest, path string }{
		{"stream", `"orders"`, `"secret"`, `"type":"publish","payload":"x"`, "streams/orders/messages"}, {"stream", `"orders"`, `"secret"`, `"type":"subscribe"`, ""},
		{"stream", `"orders"`, `"secret"`, `"type":"commit","group":"g","position":1`, "streams/orders/groups/g/commit"}, {"queue", `"jobs"`, `"other"`, `"type":"enqueue","payload":"x"`, "queues/jobs/messages"},
		{"queue", `"jobs"`, `"other"`, `"type":"ack","delivery":"1"`, ""}, {"store", `"default"`, `"hidden"`, `"type":"append","events":[{"type":"A"}]`, "events"},
		{"store", `"default"`, `"hidden"`, `"type":"query","query":{}`, "events/query"}, {"room", `"a"`, `"secret"`, `"type":"chat","text":"x"`, ""}, {"type", `"ping"`, `"chat"`, `"room":"secret","text":"x"`, ""},
	} {
		for _, spelling := range spellings(d.field) {
			for _, v := range [][2]string{{d.one, d.other}, {d.other, d.one}} {
				fields := fmt.Sprintf(`%q:%s,"%s":%s`, d.field, v[0], spelling, v[1])
				doors := []*wire{both}
				if d.field == "room" || d.field == "type" {
					doors = append(doors, chat)
				}
				for _, w := range doors {
					if got := w.code(`{"id":"x",` + fields + `,` + d.rest + `}`); got != "malformed" && got != "unknown_field" && got != "unknown_type" {
						t.Errorf("%s: %s", fields, got)
					}
				}
				if d.path != "" {
					_, rest, _ := strings.Cut(d.rest, ",")
					if got := c.status("POST", "/v1/"+d.path, `{`+fields+`,`+rest+`}`, token); got != "400 malformed" && got != "400 unknown_field" {
						t.Errorf("%s with %s: %s", d.path, fields, got)
					}
				}
			}
		}
	}
	for _, parameters := range []string{"store=default&store=hidden", "store=hidden&store=default", "store=%68idden", "Store=hidden"} {
		c.status("GET", "/v1/events?"+parameters, "", token)
		c.status("POST", "/v1/events?"+parameters, `{"store":"default","events":[{"type":"A"}]}`, token)
	}
	c.status("POST", "/v1/events?store=default", `{"store":"hidden","events":[{"type":"A"}]}`, token)
	if events.hidden.Load() {
		t.Error("a store without a right was asked")
	}
	if n := c.streams.stored("secret"); n > 0 {
		t.Errorf("the stream without a right has %d messages", n)
	}
}

// deliveriesOf are the tokens of the deliveries of a receive by HTTP.
func (c closed) deliveriesOf(token string, most int) (tokens []string) {
	c.t.Helper()
	_, text := client{c.t, c.addr}.do("POST", fmt.Sprintf("/v1/queues/jobs/receive?wait_ms=20000&max=%d", most), "", "Authorization", "Bearer "+token)
	var got struct{ Deliveries []struct{ Delivery string } }
	if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.Deliveries) != most {
		c.t.Fatal(text, err)
	}
	for _, d := range got.Deliveries {
		tokens = append(tokens, d.Delivery)
	}
	return tokens
}

// enqueued puts messages into the queue jobs.
func (c closed) enqueued(n int) {
	c.t.Helper()
	for range n {
		if got := c.status("POST", "/v1/queues/jobs/messages", `{"payload":"x"}`, tokenOf(c.t, "carol", time.Hour, "enqueue queue:jobs")); got != "200" {
			c.t.Fatal(got)
		}
	}
}

// TestAuth_Deliveries: deliveries belong to the user that received them, and without users to their connection: nobody else settles them, by their
// names or by guesses, on both doors.
func TestAuth_Deliveries(t *testing.T) {
	t.Parallel()
	lease := map[string]string{"extend": `,"lease_ms":1000`}
	c := serveClosed(t, nil)
	c.enqueued(3)
	ann, bob := tokenOf(t, "ann", time.Hour, "consume queue:jobs"), tokenOf(t, "bob", time.Hour, "consume queue:jobs")
	theirs, own := c.deliveriesOf(ann, 2), c.deliveriesOf(bob, 1)[0]
	prefix, counter, _ := strings.Cut(own, "-")
	guesses := slices.Clone(theirs)
	for _, delivery := range theirs {
		foreign, n, _ := strings.Cut(delivery, "-")
		guesses = append(guesses, n, foreign, foreign+"-", "-"+n, delivery+" ", foreign+"-0"+n)
		if n != counter {
			guesses = append(guesses, prefix+"-"+n)
		}
	}
	w := c.as("/ws", bob)
	for _, guess := range guesses {
		for _, kind := range []string{"ack", "nack", "extend"} {
			fields := `"delivery":` + quoted(guess) + lease[kind]
			if got := c.status("POST", "/v1/queues/jobs/"+kind, `{`+fields+`}`, bob); got != "409 lease_lost" {
				t.Errorf("%s of %q: %s", kind, guess, got)
			}
			if got := w.code(`{"id":"x","type":"` + kind + `","queue":"jobs",` + fields + `}`); got != "not_consuming" {
				t.Errorf("%s of %q on /ws: %s", kind, guess, got)
			}
		}
	}
	for user, settle := range map[string][]string{ann: theirs, bob: {own}} {
		for _, delivery := range settle {
			if got := c.status("POST", "/v1/queues/jobs/ack", `{"delivery":`+quoted(delivery)+`}`, user); got != "200" {
				t.Errorf("the receiver's ack: %s", got)
			}
		}
	}
	_, _, _, open := serveAll(t)
	owner, other := connect(t, open), connect(t, open)
	jobs(t, owner, 2)
	owner.ask(`{"id":1,"type":"consume","queue":"jobs","credits":1}`, `{"type":"ok","id":1}`)
	d := owner.delivery().Delivery
	other.ask(`{"id":1,"type":"consume","queue":"jobs","credits":1}`, `{"type":"ok","id":1}`)
	other.next()
	for _, kind := range []string{"ack", "nack", "extend"} {
		fields := `"delivery":` + quoted(d) + lease[kind]
		if got := other.code(`{"id":"x","type":"` + kind + `","queue":"jobs",` + fields + `}`); got != "lease_lost" {
			t.Errorf("%s: %s", kind, got)
		}
		client{t, open}.refused("POST", "/v1/queues/jobs/"+kind, `{`+fields+`}`, http.StatusConflict, "lease_lost")
	}
	owner.ask(`{"id":2,"type":"ack","queue":"jobs","delivery":`+quoted(d)+`}`, `{"type":"ok","id":2,"count":1}`)
}

// spellings are those of a field's name that parsers may take for it. The last one is what package json takes for an s.
func spellings(name string) []string {
	title := strings.ToUpper(name[:1]) + name[1:]
	return []string{name, title, strings.ToUpper(name), fmt.Sprintf(`\u%04x%s`, name[0], name[1:]), strings.ReplaceAll(name, "s", "\u017f")}
}

// twice are the fields of an object that has a name twice, in all spellings and orders.
func twice(name, one, other string) (fields []string) {
	for _, spelling := range spellings(name) {
		for _, v := range [][2]string{{one, other}, {other, one}} {
			fields = append(fields, fmt.Sprintf(`%q:%s,"%s":%s`, name, v[0], spelling, v[1]), fmt.Sprintf(`"%s":%s,%q:%s`, spelling, v[0], name, v[1]))
		}
	}
	return append(fields, fmt.Sprintf(`%q:%s,%[1]q:null`, name, other), fmt.Sprintf(`%q:%s,%[1]q:""`, name, other))
}

// TestAuth_TagsTwice: tags and queries that are there twice reach no further than those that are checked, on both doors.
func TestAuth_TagsTwice(t *testing.T) {
	t.Parallel()
	events := newFakeEvents()
	events.events = []engine.Event{{Position: 1, Type: "A", Tags: []string{"t:1"}}, {Position: 2, Type: "theirs", Tags: []string{"t:2"}}}
	c := serveClosed(t, func(cfg *gateway.Config) { cfg.Engine.Events = events })
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
		send(t, w.socket, `{"id":"x","type":"query",`+query+`}`)
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
