package gateway_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
)

// bothDoors are the answers to a request on /ws and by HTTP.
func (c closed) bothDoors(token, ws, http, body string) (answers []string) {
	c.t.Helper()
	if ws != "" {
		w := c.as("/ws", token)
		send(c.t, w.Conn, `{"id":1,`+ws+`}`)
		answers = append(answers, w.next())
		w.Abort()
	}
	if http != "" {
		method, path, _ := strings.Cut(http, " ")
		_, text := client{c.t, c.addr}.do(method, path, body, "Authorization", "Bearer "+token)
		answers = append(answers, text)
	}
	return answers
}

// TestAttack_RefusalsTellNothing: each request about something that is there is refused with the words for something that is not.
func TestAttack_RefusalsTellNothing(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	fill(c.streams, "secret", 3, 1)
	token := tokenOf(t, "ann", time.Hour, "read,publish stream:mine", "consume queue:mine", "join,chat room:mine")
	guard := c.as("/ws", tokenOf(t, "bob", time.Hour, "join room:secret"))
	guard.ask(`{"id":1,"type":"join","room":"secret"}`, `{"id":1,"type":"ok"}`)
	if err := c.queues.Create(t.Context(), "secret", nil); err != nil {
		t.Fatal(err)
	}
	replaceOf := func(text, name string) string {
		for _, known := range []string{"orders", "jobs", "fresh", "new", `"room":"a"`} {
			with := name
			if known == `"room":"a"` {
				with = `"room":"` + name + `"`
			}
			text = strings.ReplaceAll(text, known, with)
		}
		return text
	}
	for _, d := range doors {
		kind := strings.Fields(d.right)[1]
		if !strings.HasPrefix(kind, "stream:") && !strings.HasPrefix(kind, "queue:") && kind != "room:a" {
			continue
		}
		there := c.bothDoors(token, replaceOf(d.ws, "secret"), replaceOf(d.http, "secret"), d.body)
		nowhere := c.bothDoors(token, replaceOf(d.ws, "nowhere"), replaceOf(d.http, "nowhere"), d.body)
		for i := range there {
			if !strings.Contains(there[i], `"forbidden"`) || strings.ReplaceAll(there[i], "secret", "nowhere") != nowhere[i] {
				t.Errorf("%s %s\n there   %s\n nowhere %s", d.ws, d.http, there[i], nowhere[i])
			}
		}
	}
}

// silentStreams, silentQueues and silentEvents answer nothing: each call panics.
type (
	silentStreams struct{ engine.Streams }
	silentQueues  struct{ engine.Queues }
	silentEvents  struct{ engine.Events }
)

// TestAttack_RefusalsAskNoStore: what is refused is refused before a store is asked. So the time that a refusal takes tells nothing of what the stores have.
func TestAttack_RefusalsAskNoStore(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, func(cfg *gateway.Config) {
		cfg.Engine.Streams, cfg.Engine.Queues, cfg.Engine.Events = silentStreams{}, silentQueues{}, silentEvents{}
	})
	token := tokenOf(t, "ann", time.Hour, "read,publish stream:mine", "consume queue:mine", "join,chat room:mine", "query,append events:default#t:2")
	for _, d := range doors {
		for _, answer := range c.bothDoors(token, d.ws, d.http, d.body) {
			if !strings.Contains(answer, `"forbidden"`) {
				t.Errorf("%s %s: %s", d.ws, d.http, answer)
			}
		}
	}
}

// TestAttack_ConditionsTellNothing: conditions, counts and queries of foreign events are refused, whether there are such events or not.
func TestAttack_ConditionsTellNothing(t *testing.T) {
	t.Parallel()
	events := newNamedEvents()
	events.events = []engine.Event{{Position: 1, Type: "A", Tags: []string{"t:1"}}, {Position: 2, Type: "theirs", Tags: []string{"t:2", "u:1"}}}
	c := serveClosed(t, withEvents(events))
	token := tokenOf(t, "ann", time.Hour, "query,append events:default#t:1")
	for _, there := range []string{
		`{"items":[{"tags":["t:2"]}]}`, `{"items":[{"tags":["u:1"]}]}`, `{"items":[{"types":["theirs"]}]}`, `{"items":[{"tags":["t:1"]},{"tags":["t:2"]}]}`, `{"items":[{"tags":["t:1"]},{"types":["theirs"]}]}`,
	} {
		nowhere := strings.NewReplacer("t:2", "t:3", "u:1", "u:3", "theirs", "nobody's").Replace(there)
		for _, d := range []struct{ ws, http, fields string }{
			{`"type":"append",`, "POST /v1/events", `"events":[{"type":"A","tags":["t:1"]}],"condition":{"query":QUERY}`},
			{`"type":"append",`, "POST /v1/events", `"events":[{"type":"A","tags":["t:1"]}],"condition":{"query":QUERY,"after":1}`},
			{`"type":"project",`, "POST /v1/events/project", `"queries":[QUERY]`},
			{`"type":"project",`, "POST /v1/events/project", `"queries":[{"items":[{"tags":["t:1"]}]},QUERY]`},
			{`"type":"query",`, "POST /v1/events/query", `"query":QUERY`},
			{`"type":"query",`, "POST /v1/events/query", `"query":QUERY,"limit":1`},
			{`"type":"query",`, "POST /v1/events/query", `"query":QUERY,"before":2,"backwards":true`},
			{`"type":"query",`, "POST /v1/events/query", `"query":QUERY,"after":1`},
			{`"type":"subscribe","subscription":"s",`, "", `"query":QUERY,"credits":0`},
		} {
			first := c.both(token, d.ws, d.http, strings.ReplaceAll(d.fields, "QUERY", there))
			second := c.both(token, d.ws, d.http, strings.ReplaceAll(d.fields, "QUERY", nowhere))
			for i := range first {
				if first[i] != second[i] || !strings.Contains(first[i], `"forbidden"`) {
					t.Errorf("%s%s\n there   %s\n nowhere %s", d.ws, d.fields, first[i], second[i])
				}
			}
		}
	}
	for _, everything := range []string{`{}`, `{"items":[]}`, `{"items":null}`, `{"items":[{}]}`, `{"items":[{"tags":[]}]}`} {
		for _, answer := range c.both(token, `"type":"append",`, "POST /v1/events", `"events":[{"type":"A","tags":["t:1"]}],"condition":{"query":`+everything+`}`) {
			if !strings.Contains(answer, `"forbidden"`) {
				t.Errorf("a condition on %s: %s", everything, answer)
			}
		}
	}
	if got := c.status("GET", "/v1/events/types", "", token); got != "403 forbidden" {
		t.Errorf("the types of all events: %s", got)
	}
	if names := events.noted(); len(names) > 0 {
		t.Errorf("the stores %q were asked", names)
	}
}

// both are bothDoors for fields that the two doors share.
func (c closed) both(token, ws, http, fields string) []string {
	c.t.Helper()
	return c.bothDoors(token, ws+fields, http, `{`+fields+`}`)
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
	token := tokenOf(c.t, "carol", time.Hour, "enqueue queue:jobs")
	for range n {
		if got := c.status("POST", "/v1/queues/jobs/messages", `{"payload":"x"}`, token); got != "200" {
			c.t.Fatal(got)
		}
	}
}

// lease are the fields that a request of that kind needs beside its deliveries.
var lease = map[string]string{"extend": `,"lease_ms":1000`}

// TestAttack_GuessedDeliveries: a user cannot settle the deliveries of another, by its own ones, by theirs or by guesses, on both doors.
func TestAttack_GuessedDeliveries(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	c.enqueued(4)
	ann, bob := tokenOf(t, "ann", time.Hour, "consume queue:jobs"), tokenOf(t, "bob", time.Hour, "consume queue:jobs")
	theirs := c.deliveriesOf(ann, 3)
	own := c.deliveriesOf(bob, 1)[0]
	prefix, counter, ok := strings.Cut(own, "-")
	if !ok {
		t.Fatalf("a delivery %q without a counter", own)
	}
	guesses := slices.Clone(theirs)
	for _, delivery := range theirs {
		foreign, n, _ := strings.Cut(delivery, "-")
		guesses = append(guesses, strings.ToLower(delivery), n, foreign, foreign+"-", "-"+n, delivery+" ", foreign+"-0"+n)
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
			if got := w.code(`{"id":"x","type":"` + kind + `","queue":"jobs",` + fields + `}`); got != "errorlease_lost" && got != "errornot_consuming" {
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
}

// TestAttack_DeliveriesOfAnotherConnection: without users, deliveries belong to their connection.
func TestAttack_DeliveriesOfAnotherConnection(t *testing.T) {
	t.Parallel()
	_, _, _, addr := serveAll(t)
	c := closed{t: t, addr: addr}
	c.enqueued(2)
	owner, other := connect(t, addr), connect(t, addr)
	owner.ask(`{"id":1,"type":"consume","queue":"jobs","credits":1}`, `{"type":"ok","id":1}`)
	var d struct{ Delivery string }
	if text := owner.next(); json.Unmarshal([]byte(text), &d) != nil || d.Delivery == "" {
		t.Fatal(text)
	}
	other.ask(`{"id":1,"type":"consume","queue":"jobs","credits":1}`, `{"type":"ok","id":1}`)
	other.next()
	for _, kind := range []string{"ack", "nack", "extend"} {
		fields := `"delivery":` + quoted(d.Delivery) + lease[kind]
		if got := other.code(`{"id":"x","type":"` + kind + `","queue":"jobs",` + fields + `}`); got != "errorlease_lost" {
			t.Errorf("%s: %s", kind, got)
		}
		if got := c.status("POST", "/v1/queues/jobs/"+kind, `{`+fields+`}`, ""); got != "409 lease_lost" {
			t.Errorf("%s by HTTP: %s", kind, got)
		}
	}
	if got := owner.code(`{"id":"x","type":"ack","queue":"jobs","delivery":` + quoted(d.Delivery) + `}`); got != "ok" {
		t.Errorf("the receiver's ack: %s", got)
	}
}

// TestAttack_DeliveriesAfterTheRight: with a token that does not allow it any more, a consumption gives back what it has, and settles nothing.
func TestAttack_DeliveriesAfterTheRight(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	c.enqueued(3)
	w := c.as("/ws", tokenOf(t, "ann", time.Hour, "consume queue:jobs"))
	w.ask(`{"id":1,"type":"consume","queue":"jobs","credits":10}`, `{"type":"ok","id":1}`)
	var held []string
	for range 3 {
		var d struct{ Delivery string }
		if text := w.next(); json.Unmarshal([]byte(text), &d) != nil || d.Delivery == "" {
			t.Fatal(text)
		}
		held = append(held, d.Delivery)
	}
	send(t, w.Conn, fmt.Sprintf(`{"type":"auth","token":%q}`, tokenOf(t, "ann", time.Hour)))
	if got := w.next(); !strings.Contains(got, `"queue":"jobs","code":"forbidden"`) {
		t.Errorf("got %s", got)
	}
	for _, kind := range []string{"ack", "nack", "extend"} {
		if got := w.code(fmt.Sprintf(`{"id":"x","type":%q,"queue":"jobs","delivery":%q%s}`, kind, held[0], lease[kind])); got != "errorforbidden" {
			t.Errorf("%s: %s", kind, got)
		}
	}
	c.deliveriesOf(tokenOf(t, "bob", time.Hour, "consume queue:jobs"), 3) // while the leases of ann would have lasted a minute
	c.queues.state.Lock()
	defer c.queues.state.Unlock()
	if q := c.queues.queues["jobs"]; len(q.acked)+len(q.nacks) > 0 {
		t.Errorf("settled: %v, %v", q.acked, q.nacks)
	}
}

// TestAttack_RenewalInACatchUp: nothing of a subscription comes after it has ended for want of a right, however much was left to send.
func TestAttack_RenewalInACatchUp(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	fill(c.streams, "orders", 20_000, 100)
	w := c.as("/ws", tokenOf(t, "ann", time.Hour, "read stream:orders"))
	w.ask(`{"id":1,"type":"subscribe","stream":"orders","subscription":"s","after":0}`, `{"type":"ok","id":1,"position":0}`)
	w.positions("s", 1, 100)
	send(t, w.Conn, fmt.Sprintf(`{"id":2,"type":"auth","token":%q}`, tokenOf(t, "ann", time.Hour)))
	for ended := false; !ended; {
		got := w.next()
		ended = strings.Contains(got, `"type":"error"`)
		if ended && !strings.Contains(got, `"subscription":"s","code":"forbidden"`) {
			t.Fatal(got)
		}
	}
	fill(c.streams, "orders", 10, 100)
	for range 20 {
		send(t, w.Conn, `{"id":"x","type":"unsubscribe","subscription":"s"}`)
		got := w.next()
		if strings.Contains(got, `"type":"message"`) {
			t.Fatalf("after its end: %s", got)
		}
		if !strings.Contains(got, `"code":"not_subscribed"`) && !strings.Contains(got, `"type":"ok","id":2`) {
			t.Errorf("got %s", got)
		}
	}
}

// TestAttack_RenewalsInFlight: tokens that are sent together are answered in their order, bad ones change nothing, and the last good one counts.
func TestAttack_RenewalsInFlight(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	for _, path := range []string{"/ws", "/ws/chat"} {
		w := c.as(path, tokenOf(t, "ann", time.Hour, "join room:a"))
		all := "join room:**"
		var requests []string
		for i, token := range []string{
			tokenOf(t, "ann", time.Hour, all), tokenOf(t, "bob", time.Hour, all), tokenOf(t, "ann", time.Hour, "join room:b"), tokenOf(t, "ann", -time.Minute, all), "nonsense",
		} {
			requests = append(requests, fmt.Sprintf(`{"id":%d,"type":"auth","token":%q}`, i, token))
		}
		send(t, w.Conn, append(requests, `{"id":5,"type":"join","room":"a"}`, `{"id":6,"type":"join","room":"b"}`)...)
		for i, want := range []string{`"type":"ok"`, "identity_mismatch", `"type":"ok"`, "token_expired", "invalid_token", "forbidden", `"type":"ok"`} {
			if got := w.next(); !strings.Contains(got, want) || !strings.Contains(got, fmt.Sprintf(`"id":%d`, i)) {
				t.Errorf("%s, request %d: %s, want %s", path, i, got, want)
			}
		}
	}
}
