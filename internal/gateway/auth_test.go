package gateway_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/auth/authtest"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/websocket"
)

var tokenSecret = []byte("a secret of at least 32 bytes, for tests")

// tokenOf signs a token of a user, which ends after a time and brings these rights.
func tokenOf(t *testing.T, user string, life time.Duration, allow ...string) string {
	t.Helper()
	return authtest.Token(t, tokenSecret, user, life, map[string]any{"tidewire": map[string]any{"allow": append([]string{}, allow...)}})
}

// closed is a server in closed mode.
type closed struct {
	t       *testing.T
	addr    string
	streams *fakeStreams
	queues  *fakeQueues
	server  *gateway.Server
}

func serveClosed(t *testing.T, change func(*gateway.Config), rules ...auth.RoleRule) closed {
	t.Helper()
	key, err := auth.NewSecret("", tokenSecret)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := auth.NewPolicy(auth.Config{Token: auth.TokenConfig{Audience: "tidewire"}, Keys: []auth.Key{key}, Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	c := closed{t: t, streams: newFakeStreams(t, "orders", "secret"), queues: newFakeQueues(t, "jobs", "other")}
	cfg := gateway.Config{
		Engine: engine.Engine{Ingest: (&memory{}).source, Streams: c.streams, Queues: c.queues, Events: &fakeEvents{changed: make(chan struct{})}},
		Auth:   gateway.AuthConfig{Policy: policy}, Profile: true,
	}
	if change != nil {
		change(&cfg)
	}
	c.server, c.addr = serve(t, cfg)
	return c
}

// as connects with a token in the handshake.
func (c closed) as(path, token string) *wire {
	c.t.Helper()
	conn, err := websocket.Dial(c.t.Context(), "ws://"+c.addr+path, websocket.Config{Header: http.Header{"Authorization": {"Bearer " + token}}})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(conn.Abort)
	return &wire{Conn: conn, t: c.t}
}

// status is the status of an HTTP request, and the code of its error.
func (c closed) status(method, path, body, token string) string {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, "http://"+c.addr+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	var got struct{ Error struct{ Code string } }
	json.NewDecoder(resp.Body).Decode(&got)
	if resp.StatusCode == http.StatusUnauthorized && !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Bearer ") {
		c.t.Errorf("%s %s: 401 without WWW-Authenticate", method, path)
	}
	return strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", got.Error.Code))
}

// closeOf reads until the connection is closed, and returns the code.
func closeOf(w *wire) websocket.StatusCode {
	w.t.Helper()
	w.SetReadDeadline(time.Now().Add(patience))
	for {
		if _, err := read(w.Conn); err != nil {
			closed, ok := errors.AsType[*websocket.CloseError](err)
			if !ok {
				w.t.Fatal(err)
			}
			return closed.Code
		}
	}
}

// doors are requests with the right that each needs, on /ws and by HTTP. Those that need several have the others in and.
var doors = []struct {
	right, ws  string
	http, body string
	and        []string
}{
	{right: "publish stream:orders", ws: `"type":"publish","stream":"orders","payload":"x"`, http: "POST /v1/streams/orders/messages", body: `{"payload":"x"}`},
	{right: "read stream:orders", ws: `"type":"subscribe","stream":"orders"`, http: "GET /v1/streams/orders/messages"},
	{right: "read stream:orders", http: "GET /v1/streams/orders"},
	{right: "read stream:orders", http: "GET /v1/streams/orders/groups"},
	{right: "commit stream:orders", ws: `"type":"subscribe","stream":"orders","group":"g"`, and: []string{"read stream:orders"}},
	{right: "commit stream:orders", ws: `"type":"commit","stream":"orders","group":"g","position":0`, http: "POST /v1/streams/orders/groups/g/commit", body: `{"position":0}`},
	{right: "admin stream:new", http: "POST /v1/streams/new"},
	{right: "admin stream:orders", http: "DELETE /v1/streams/orders"},
	{right: "enqueue queue:jobs", ws: `"type":"enqueue","queue":"jobs","payload":"x"`, http: "POST /v1/queues/jobs/messages", body: `{"payload":"x"}`},
	{right: "consume queue:jobs", ws: `"type":"consume","queue":"jobs"`, http: "POST /v1/queues/jobs/receive"},
	{right: "consume queue:jobs", ws: `"type":"ack","queue":"jobs","delivery":"1"`, http: "POST /v1/queues/jobs/ack", body: `{"delivery":"1"}`},
	{right: "consume queue:jobs", ws: `"type":"nack","queue":"jobs","delivery":"1"`, http: "POST /v1/queues/jobs/nack", body: `{"delivery":"1"}`},
	{right: "consume queue:jobs", ws: `"type":"extend","queue":"jobs","delivery":"1","lease_ms":5`, http: "POST /v1/queues/jobs/extend", body: `{"delivery":"1","lease_ms":5}`},
	{right: "inspect queue:jobs", http: "GET /v1/queues/jobs"},
	{right: "admin queue:fresh", http: "POST /v1/queues/fresh", and: []string{"admin stream:fresh"}},
	{right: "admin stream:fresh2", http: "POST /v1/queues/fresh2", and: []string{"admin queue:fresh2"}},
	{right: "admin queue:jobs", http: "DELETE /v1/queues/jobs"},
	{right: "append events:default", ws: `"type":"append","events":[{"type":"A","tags":["t:1"]}]`, http: "POST /v1/events", body: `{"events":[{"type":"A","tags":["t:1"]}]}`},
	{right: "append events:default#t:1", ws: `"type":"append","events":[{"type":"A","tags":["t:1"]}]`, http: "POST /v1/events", body: `{"events":[{"type":"A","tags":["t:1"]}]}`},
	{
		right: "query events:default", and: []string{"append events:default"}, // a condition tells what there is
		ws:   `"type":"append","events":[{"type":"A"}],"condition":{"query":{"items":[{"tags":["none"]}]}}`,
		http: "POST /v1/events", body: `{"events":[{"type":"A"}],"condition":{"query":{"items":[{"tags":["none"]}]}}}`,
	},
	{right: "query events:default", ws: `"type":"query","query":{}`, http: "GET /v1/events"},
	{right: "query events:default#t:1", ws: `"type":"query","query":{"items":[{"tags":["t:1"]}]}`, http: "GET /v1/events?tag=t:1"},
	{right: "query events:default", http: "GET /v1/events/types"},
	{right: "query events:default", ws: `"type":"project","queries":[{"items":[{"tags":["t:1"]}]}]`, http: "POST /v1/events/project", body: `{"queries":[{}]}`},
	{right: "query events:default", ws: `"type":"subscribe","query":{},"subscription":"s"`, http: "POST /v1/events/query", body: `{"query":{}}`},
	{right: "join room:a", ws: `"type":"join","room":"a"`},
	{right: "presence room:a", ws: `"type":"join","room":"a","presence":true`, and: []string{"join room:a"}},
	{right: "history room:a", ws: `"type":"join","room":"a","history":5`, and: []string{"join room:a"}},
	{right: "chat room:a", ws: `"type":"chat","room":"a","text":"x"`},
	{right: "chat room:public", ws: `"type":"chat","text":"x"`, and: []string{"join room:public"}},
	{right: "chat room:a", http: "POST /v1/rooms/a/chats", body: `{"text":"x"}`},
	{right: "history room:a", http: "GET /v1/rooms/a/chats"},
	{right: "presence room:a", http: "GET /v1/rooms/a/members"},
	{right: "notify user:bob", http: "POST /v1/users/bob/messages", body: `{"message":{}}`},
	{right: "metrics server:*", http: "GET /metrics"},
	{right: "metrics server:*", http: "GET /v1/overview"},
	{right: "profile server:*", http: "GET /debug/pprof/"},
	{right: "bench server:*", http: "GET /ws/lanes"},
	{right: "write ingest:*", http: "GET /ws/ingest"},
}

// TestAuth_Rights: without a token nothing works, without its right a request is forbidden, and with it the right is no obstacle.
func TestAuth_Rights(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	for _, d := range doors {
		others := append([]string{"read stream:others", "consume queue:others", "query events:other", "join,chat room:others", "append events:default#t:2"}, d.and...)
		without, with := tokenOf(t, "ann", time.Hour, others...), tokenOf(t, "ann", time.Hour, append(others, d.right)...)
		if d.ws != "" {
			request := `{"id":"x",` + d.ws + `}`
			if got := connect(t, c.addr).code(request); got != "errorunauthenticated" {
				t.Errorf("%s without a token: %s", request, got)
			}
			if got := c.as("/ws", without).code(request); got != "errorforbidden" {
				t.Errorf("%s without %q: %s", request, d.right, got)
			}
			if got := c.as("/ws", with).code(request); strings.HasPrefix(got, "errorforbidden") || strings.HasPrefix(got, "errorun") {
				t.Errorf("%s with %q: %s", request, d.right, got)
			}
		}
		if d.http != "" {
			method, path, _ := strings.Cut(d.http, " ")
			if got := c.status(method, path, d.body, ""); got != "401 unauthenticated" {
				t.Errorf("%s without a token: %s", d.http, got)
			}
			if got := c.status(method, path, d.body, without); got != "403 forbidden" {
				t.Errorf("%s without %q: %s", d.http, d.right, got)
			}
			if got := c.status(method, path, d.body, with); strings.HasPrefix(got, "401") || strings.HasPrefix(got, "403") {
				t.Errorf("%s with %q: %s", d.http, d.right, got)
			}
		}
	}
}

// TestAuth_ForbiddenSaysNothing: what is there and what is not is refused alike, and the refusal names the right.
func TestAuth_ForbiddenSaysNothing(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	w := c.as("/ws", tokenOf(t, "ann", time.Hour, "read stream:orders"))
	w.ask(`{"id":1,"type":"subscribe","stream":"secret"}`,
		`{"type":"error","id":1,"code":"forbidden","message":"no rule grants you this: see verb, kind and name","retryable":false,"verb":"read","kind":"stream","name":"secret"}`)
	w.ask(`{"id":2,"type":"subscribe","stream":"nowhere"}`,
		`{"type":"error","id":2,"code":"forbidden","message":"no rule grants you this: see verb, kind and name","retryable":false,"verb":"read","kind":"stream","name":"nowhere"}`)
	list := client{t, c.addr}
	_, text := list.do("GET", "/v1/streams", "", "Authorization", "Bearer "+tokenOf(t, "ann", time.Hour, "read stream:orders"))
	if !strings.Contains(text, `"orders"`) || strings.Contains(text, `"secret"`) {
		t.Errorf("streams: %s", text)
	}
	_, text = list.do("GET", "/v1/queues", "", "Authorization", "Bearer "+tokenOf(t, "ann", time.Hour, "consume queue:jobs"))
	if text != `{"queues":[{"queue":"jobs"}]}` {
		t.Errorf("queues: %s", text)
	}
}

// TestAuth_WrongTokens: a wrong token is answered before the upgrade, and with one sentence whatever is wrong with it.
func TestAuth_WrongTokens(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	good := tokenOf(t, "ann", time.Hour, "read stream:*")
	for _, token := range []string{"x", "a.b.c", good + "x", good[:len(good)-2], strings.Repeat("a", 9000)} {
		for _, path := range []string{"/v1/streams", "/ws", "/ws/chat", "/ws/ingest", "/metrics"} {
			if got := c.status("GET", path, "", token); got != "401 invalid_token" {
				t.Errorf("%s with %.20q: %s", path, token, got)
			}
		}
		w := connect(t, c.addr)
		if got := w.code(fmt.Sprintf(`{"id":"x","type":"auth","token":%q}`, token)); got != "errorinvalid_token" {
			t.Errorf("auth with %.20q: %s", token, got)
		}
	}
	if got := c.status("GET", "/v1/streams", "", tokenOf(t, "ann", -time.Minute)); got != "401 token_expired" {
		t.Errorf("an expired token: %s", got)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		for _, token := range []string{"", "nonsense"} {
			if got := c.status("GET", path, "", token); got != "200" {
				t.Errorf("%s with the token %q: %s", path, token, got)
			}
		}
	}
}

// TestAuth_Pipelined: a client sends its token and its requests together.
func TestAuth_Pipelined(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	for _, path := range []string{"/ws", "/ws/chat"} {
		w := &wire{Conn: dial(t, "ws://"+c.addr+path), t: t}
		send(t, w.Conn, fmt.Sprintf(`{"id":1,"type":"auth","token":%q}`, tokenOf(t, "ann", time.Hour, "join room:a")), `{"id":2,"type":"join","room":"a"}`)
		if answer := w.next(); !strings.Contains(answer, `"type":"ok","id":1,"user":"ann","role":"user","expires":`) {
			t.Errorf("%s: %s", path, answer)
		}
		w.want(`{"id":2,"type":"ok"}`)
	}
}

// TestAuth_Early: who sends no token is sent away.
func TestAuth_Early(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, func(cfg *gateway.Config) { cfg.Auth.Timeout = 50 * time.Millisecond })
	if got := closeOf(connect(t, c.addr)); got != 4408 {
		t.Errorf("no token in time: closed with %d", got)
	}
	c = serveClosed(t, nil)
	for _, path := range []string{"/ws", "/ws/chat"} {
		w := &wire{Conn: dial(t, "ws://"+c.addr+path), t: t}
		for range 6 {
			send(t, w.Conn, `{"type":"join","room":"a"}`)
		}
		if got := closeOf(w); got != 4401 {
			t.Errorf("%s: many messages without a token: closed with %d", path, got)
		}
		w = &wire{Conn: dial(t, "ws://"+c.addr+path), t: t}
		send(t, w.Conn, `{"type":"chat","text":"`+strings.Repeat("x", 17<<10)+`"}`)
		if got := closeOf(w); got != 4401 {
			t.Errorf("%s: a large message without a token: closed with %d", path, got)
		}
	}
}

// TestAuth_Refresh: a new token takes the place of the former one, if it is the same user's and good.
func TestAuth_Refresh(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	fill(c.streams, "orders", 1, 10)
	all := []string{"read stream:*", "consume queue:*", "join,chat room:*", "query events:*"}
	w := c.as("/ws", tokenOf(t, "ann", time.Hour, all...))
	auth := func(token string) string {
		t.Helper()
		return w.code(fmt.Sprintf(`{"id":"x","type":"auth","token":%q}`, token))
	}
	if got := auth(tokenOf(t, "bob", time.Hour, all...)); got != "erroridentity_mismatch" {
		t.Errorf("another user's token: %s", got)
	}
	if got := auth("nonsense"); got != "errorinvalid_token" {
		t.Errorf("a bad token: %s", got)
	}
	w.ask(`{"id":1,"type":"join","room":"a"}`, `{"id":1,"type":"ok"}`) // the former one counts
	w.ask(`{"id":2,"type":"subscribe","stream":"orders","subscription":"s","credits":0}`, `{"type":"ok","id":2,"position":1}`)
	w.ask(`{"id":3,"type":"subscribe","query":{},"subscription":"e"}`, `{"type":"ok","id":3,"position":0}`)
	w.ask(`{"id":4,"type":"consume","queue":"jobs"}`, `{"type":"ok","id":4}`)
	send(t, w.Conn, fmt.Sprintf(`{"type":"auth","token":%q}`, tokenOf(t, "ann", time.Hour, "chat room:*")))
	const text = `"code":"forbidden","message":"no rule grants you this: see verb, kind and name","retryable":false,`
	want := []string{
		`{"type":"error",` + text + `"verb":"join","kind":"room","name":"a","room":"a"}`,
		`{"type":"error","subscription":"s",` + text + `"verb":"read","kind":"stream","name":"orders"}`,
		`{"type":"error","subscription":"e",` + text + `"verb":"query","kind":"events","name":"default"}`,
		`{"type":"error","queue":"jobs",` + text + `"verb":"consume","kind":"queue","name":"jobs"}`,
	}
	for range want { // in any order
		got := w.next()
		if i := slices.Index(want, got); i < 0 {
			t.Errorf("got %s", got)
		} else {
			want[i] = ""
		}
	}
	if got := w.code(`{"id":"x","type":"chat","room":"a","text":"x"}`); got != "errornot_joined" {
		t.Errorf("a chat in a room that was left: %s", got)
	}
}

// shortLife is how long the token of shortLived is valid: exp has whole seconds.
const shortLife = 4 * time.Second

// shortLived calls talk with a connection whose token is about to end, and again with another one if talk or the connecting was too slow
// for that, as it is on a busy machine: until talk returns true.
func (c closed) shortLived(path, right string, talk func(w *wire) bool) {
	c.t.Helper()
	for range 20 {
		header := http.Header{"Authorization": {"Bearer " + tokenOf(c.t, "ann", shortLife, right)}}
		conn, err := websocket.Dial(c.t.Context(), "ws://"+c.addr+path, websocket.Config{Header: header})
		if err != nil && strings.Contains(err.Error(), "token_expired") {
			continue
		}
		if err != nil {
			c.t.Fatal(err)
		}
		done := talk(&wire{Conn: conn, t: c.t})
		conn.Abort()
		if done {
			return
		}
	}
	c.t.Fatal("the machine is too slow")
}

// TestAuth_Expiry: a client is told before its token ends, gets nothing new done after that, and is closed when the grace is over.
func TestAuth_Expiry(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, func(cfg *gateway.Config) { cfg.Auth.Grace = time.Second })
	c.shortLived("/ws", "read,publish stream:orders", func(w *wire) bool {
		if first := w.next(); !strings.HasPrefix(first, `{"type":"expiring","expires_in_ms":`) {
			t.Errorf("got %s", first)
		}
		for {
			send(t, w.Conn, `{"id":"x","type":"publish","stream":"orders","payload":"x"}`)
			w.SetReadDeadline(time.Now().Add(patience))
			messages, err := read(w.Conn)
			if err != nil {
				return false // the grace was over before the next request
			}
			if len(messages) > 0 && strings.Contains(string(messages[0].Payload), "token_expired") {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if got := closeOf(w); got != 4401 {
			t.Errorf("closed with %d", got)
		}
		return true
	})
}

// TestAuth_Renewal: a connection with a new token does not end with its former one.
func TestAuth_Renewal(t *testing.T) {
	t.Parallel()
	const grace = time.Second
	c := serveClosed(t, func(cfg *gateway.Config) { cfg.Auth.Grace = grace })
	c.shortLived("/ws", "read stream:orders", func(w *wire) bool {
		w.next()
		send(t, w.Conn, fmt.Sprintf(`{"id":"x","type":"auth","token":%q}`, tokenOf(t, "ann", time.Hour)))
		w.SetReadDeadline(time.Now().Add(patience))
		if messages, err := read(w.Conn); err != nil || !strings.Contains(string(messages[0].Payload), `"type":"ok"`) {
			return false // the former token and its grace were over before
		}
		w.silent(shortLife + 2*grace)
		return true
	})
}

// TestAuth_Users: nobody speaks for another, and presence names the token's user.
func TestAuth_Users(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	rights := []string{"join,chat,presence room:*"}
	ann, bob := c.as("/ws", tokenOf(t, "ann", time.Hour, rights...)), c.as("/ws/chat", tokenOf(t, "bob", time.Hour, rights...))
	bob.ask(`{"id":1,"type":"join","room":"a"}`, `{"id":1,"type":"ok"}`)
	for _, request := range []string{`"type":"join","room":"a","user":"bob"`, `"type":"chat","room":"a","text":"x","user":"bob"`} {
		if got := ann.code(`{"id":"x",` + request + `}`); got != "errorforbidden" {
			t.Errorf("%s: %s", request, got)
		}
	}
	ann.ask(`{"id":2,"type":"join","room":"a","user":"ann","presence":true}`, `{"id":2,"type":"ok"}`)
	ann.want(`{"type":"presence","room":"a","count":2,"members":["ann","bob"]}`)
	ann.ask(`{"id":3,"type":"chat","room":"a","text":"x","user":"ann"}`, `{"id":3,"type":"ok"}`)
	bob.want(`{"type":"chat","room":"a","text":"x","user":"ann"}`)
}

// TestAuth_DeliveriesOverHTTP: deliveries belong to the user that received them.
func TestAuth_DeliveriesOverHTTP(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	ann, bob := tokenOf(t, "ann", time.Hour, "consume,enqueue queue:jobs"), tokenOf(t, "bob", time.Hour, "consume queue:jobs")
	if got := c.status("POST", "/v1/queues/jobs/messages", `{"payload":"x"}`, ann); got != "200" {
		t.Fatal(got)
	}
	_, text := client{t, c.addr}.do("POST", "/v1/queues/jobs/receive?wait_ms=20000", "", "Authorization", "Bearer "+ann)
	var got struct{ Deliveries []struct{ Delivery string } }
	if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.Deliveries) != 1 {
		t.Fatal(text, err)
	}
	body := fmt.Sprintf(`{"delivery":%q}`, got.Deliveries[0].Delivery)
	if got := c.status("POST", "/v1/queues/jobs/ack", body, bob); got != "409 lease_lost" {
		t.Errorf("another user's ack: %s", got)
	}
	if got := c.status("POST", "/v1/queues/jobs/ack", body, ann); got != "200" {
		t.Errorf("the receiver's ack: %s", got)
	}
}

// TestAuth_OpenMode: without a policy, a client that sends tokens works too.
func TestAuth_OpenMode(t *testing.T) {
	t.Parallel()
	_, _, _, addr := serveAll(t)
	w := connect(t, addr)
	w.ask(`{"id":1,"type":"auth","token":"whatever"}`, `{"type":"ok","id":1}`)
	w.ask(`{"id":2,"type":"join","room":"a","user":"anybody"}`, `{"id":2,"type":"ok"}`)
}

// TestAuth_ExpiryOfIngest: an endpoint without messages of its own sends none, and is closed when the token is over.
func TestAuth_ExpiryOfIngest(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, func(cfg *gateway.Config) { cfg.Auth.Grace = 100 * time.Millisecond })
	c.shortLived("/ws/ingest", "write ingest:*", func(w *wire) bool {
		w.SetReadDeadline(time.Now().Add(patience))
		messages, err := read(w.Conn)
		if closed, ok := errors.AsType[*websocket.CloseError](err); len(messages) > 0 || !ok || closed.Code != 4401 {
			t.Errorf("got %q, %v, want a Close with 4401", messages, err)
		}
		return true
	})
}

// TestAuth_ManyWrongTokens: who tries many tokens on one connection is sent away.
func TestAuth_ManyWrongTokens(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	for _, path := range []string{"/ws", "/ws/chat"} {
		w := &wire{Conn: dial(t, "ws://"+c.addr+path), t: t}
		for range 6 {
			send(t, w.Conn, `{"type":"auth","token":"a.b.c"}`)
		}
		if got := closeOf(w); got != 4401 {
			t.Errorf("%s: closed with %d", path, got)
		}
	}
}

// TestAuth_RenewalDuringHistory: a new token without the right ends a history that is being sent.
func TestAuth_RenewalDuringHistory(t *testing.T) {
	t.Parallel()
	store := newMemoryStore(t)
	store.let = make(chan struct{})
	for n := range 10 {
		store.rooms, store.stored = append(store.rooms, "a"), append(store.stored, fmt.Appendf(nil, `{"type":"chat","room":"a","text":"%d"}`, n))
	}
	c := serveClosed(t, func(cfg *gateway.Config) {
		cfg.Engine.Rooms, cfg.Chat.StoredRooms = store, []string{"a"}
	})
	w := c.as("/ws", tokenOf(t, "ann", time.Hour, "join,history room:a"))
	send(t, w.Conn, `{"id":1,"type":"join","room":"a","after":0}`, fmt.Sprintf(`{"id":2,"type":"auth","token":%q}`, tokenOf(t, "ann", time.Hour)))
	wanted := map[string]bool{`"type":"ok"`: true, `"code":"forbidden","id":1`: true} // in any order, and no chat
	for range 2 {
		answer := w.next()
		for want := range wanted {
			if strings.Contains(answer, want) {
				delete(wanted, want)
			}
		}
		if strings.Contains(answer, `"id":2`) {
			close(store.let) // the store answers only now
		}
	}
	if len(wanted) > 0 {
		t.Fatalf("nothing had %v", wanted)
	}
}

// TestAuth_PresenceIsTaken: who may not have presence any more is told nothing more of who is in the room, and stays in it.
func TestAuth_PresenceIsTaken(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	w := c.as("/ws", tokenOf(t, "ann", time.Hour, "join,presence room:*"))
	w.ask(`{"id":1,"type":"join","room":"a","presence":true}`, `{"id":1,"type":"ok"}`)
	w.want(`{"type":"presence","room":"a","count":1,"members":["ann"]}`)
	send(t, w.Conn, fmt.Sprintf(`{"type":"auth","token":%q}`, tokenOf(t, "ann", time.Hour, "join room:*")))
	if answer := w.next(); !strings.Contains(answer, `"code":"forbidden"`) || !strings.Contains(answer, `"verb":"presence","kind":"room","name":"a","room":"a"`) {
		t.Errorf("got %s", answer)
	}
	bob := c.as("/ws", tokenOf(t, "bob", time.Hour, "join,chat,presence room:*"))
	bob.ask(`{"id":1,"type":"join","room":"a","presence":true}`, `{"id":1,"type":"ok"}`)
	bob.want(`{"type":"presence","room":"a","count":2,"members":["ann","bob"]}`) // ann would have heard of bob by now
	send(t, bob.Conn, `{"type":"chat","room":"a","text":"hello"}`)
	if got := w.next(); !strings.Contains(got, `"text":"hello"`) {
		t.Errorf("got %s", got)
	}
}

// TestAuth_StreamsOfAQueue: a queue consists of streams. A caller that makes one needs the right to make these, whether they exist or not: without it
// it takes no stream of another, and does not learn that there is one.
func TestAuth_StreamsOfAQueue(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	owner := tokenOf(t, "bob", time.Hour, "admin,publish stream:shards/0")
	if got := c.status("POST", "/v1/streams/shards%2F0", "", owner); got != "200" {
		t.Fatalf("the stream of another: %s", got)
	}
	queues := tokenOf(t, "ann", time.Hour, "admin queue:**", "admin stream:shards", "admin stream:mine**")
	for _, name := range []string{"secret", "fresh", "jobs"} { // a stream, nothing, and a queue
		if got := c.status("POST", "/v1/queues/"+name, "", queues); got != "403 forbidden" {
			t.Errorf("the queue %s: %s", name, got)
		}
	}
	for _, options := range []string{`{"priorities":2}`, `{"partitions":2}`} {
		if got := c.status("POST", "/v1/queues/shards", options, queues); got != "403 forbidden" {
			t.Errorf("the queue shards with %s: %s", options, got)
		}
	}
	if got := c.status("POST", "/v1/streams/shards%2F0/messages", `{"payload":"x"}`, owner); got != "200" {
		t.Errorf("the owner publishes: %s", got)
	}
	if got := c.status("POST", "/v1/queues/mine", `{"priorities":2}`, queues); got != "200" {
		t.Errorf("a queue with the rights: %s", got)
	}
}

// TestAuth_EarlyFlood: whatever comes before a token is counted, also what is no JSON, and pings.
func TestAuth_EarlyFlood(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	for _, path := range []string{"/ws", "/ws/chat"} {
		for _, message := range []string{`{`, `{"type":"ping"}`, `{"type":"auth","token":1}`, `[]`, ""} {
			w := &wire{Conn: dial(t, "ws://"+c.addr+path), t: t}
			for range 5 {
				send(t, w.Conn, message)
			}
			if got := closeOf(w); got != 4401 {
				t.Errorf("%s, %q: closed with %d", path, message, got)
			}
		}
	}
}

// TestAuth_LongNames: a name out of its limit is refused as such, and not repeated.
func TestAuth_LongNames(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	w := c.as("/ws", tokenOf(t, "ann", time.Hour, "read stream:orders"))
	long := strings.Repeat("n", 150_000)
	for request, want := range map[string]string{
		`"type":"publish","payload":"x","stream":"` + long + `"`: "errorinvalid_name", `"type":"query","query":{},"store":"` + long + `"`: "errorinvalid_name",
		`"type":"join","room":"` + long + `"`: "errorname_too_long",
	} {
		if got := w.code(`{"id":"x",` + request + `}`); got != want {
			t.Errorf("%.30s: %s, want %s", request, got, want)
		}
	}
}

// TestAuth_ForPages: a page of an allowed origin can read why its token was not accepted.
func TestAuth_ForPages(t *testing.T) {
	t.Parallel()
	access, err := websocket.NewAccess(websocket.AccessConfig{Origins: []string{"https://app.example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	c := serveClosed(t, func(cfg *gateway.Config) { cfg.Access = access })
	for _, method := range []string{http.MethodGet, http.MethodOptions} {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+c.addr+"/v1/streams", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", "https://app.example.com")
		if method == http.MethodOptions {
			r.Header.Set("Access-Control-Request-Method", "GET")
		} else {
			r.Header.Set("Authorization", "Bearer "+tokenOf(t, "ann", -time.Minute))
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		h := resp.Header
		if h.Get("Access-Control-Allow-Origin") != "https://app.example.com" {
			t.Errorf("%s: %d, %v", method, resp.StatusCode, h)
		}
		if method == http.MethodOptions && !strings.Contains(h.Get("Access-Control-Allow-Headers"), "Authorization") {
			t.Errorf("preflight: %v", h)
		}
	}
}

// TestAuth_ActsNeedKeys: a server without users says so, and does not act.
func TestAuth_ActsNeedKeys(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Ingest: (&memory{}).source}})
	for _, path := range []string{"/v1/users/ann/disconnect", "/v1/tokens/revoke"} {
		if status, text := (client{t, addr}).do("POST", path, `{"user":"ann"}`, "Content-Type", "application/json"); status != 404 || !strings.Contains(text, "not_served") || !strings.Contains(text, "--auth-secret-file") {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}
