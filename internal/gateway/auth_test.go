package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
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
	c := closed{t: t, streams: newFakeStreams(t, "orders", "secret"), queues: newFakeQueues(t, "jobs", "other")}
	cfg := gateway.Config{
		Engine: engine.Engine{Ingest: (&memory{}).source, Streams: c.streams, Queues: c.queues, Events: newFakeEvents()},
		Auth:   gateway.AuthConfig{Policy: policyOf(t, auth.Config{Rules: rules})}, Profile: true,
	}
	if change != nil {
		change(&cfg)
	}
	c.server, c.addr = serve(t, cfg)
	return c
}

// policyOf returns a policy for the tokens of tokenOf.
func policyOf(t *testing.T, cfg auth.Config) *auth.Policy {
	t.Helper()
	cfg.Token.Audience, cfg.Keys = "tidewire", []auth.Key{mustSecret(t)}
	policy, err := auth.NewPolicy(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

func mustSecret(t *testing.T) auth.Key {
	t.Helper()
	key, err := auth.NewSecret("", tokenSecret)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func rulesFor(t *testing.T, texts ...string) (rules []auth.Rule) {
	t.Helper()
	for _, text := range texts {
		r, err := auth.ParseRule(text)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, r)
	}
	return rules
}

// bearer are the headers of a request with a token, and more: names and values.
func bearer(token string, more ...string) http.Header {
	h := http.Header{}
	if token != "" {
		h.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(more); i += 2 {
		h.Add(more[i], more[i+1])
	}
	return h
}

// as connects with a token in the handshake.
func (c closed) as(path, token string) *wire {
	c.t.Helper()
	return &wire{socket: dialAs(c.t, "ws://"+c.addr+path, websocket.Config{Header: bearer(token)}), t: c.t}
}

// status is the status of an HTTP request, and the code of its error.
func (c closed) status(method, path, body, token string) string {
	c.t.Helper()
	headers := []string{"Content-Type", "application/json"}
	if token != "" {
		headers = append(headers, "Authorization", "Bearer "+token)
	}
	resp, text := client{c.t, c.addr}.fetch(method, path, body, headers...)
	var got struct{ Error struct{ Code string } }
	json.Unmarshal([]byte(text), &got)
	if resp.StatusCode == http.StatusUnauthorized && !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Bearer ") {
		c.t.Errorf("%s %s: 401 without WWW-Authenticate", method, path)
	}
	return strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", got.Error.Code))
}

// silentStreams, silentQueues and silentEvents answer nothing: each call panics.
type (
	silentStreams struct{ engine.Streams }
	silentQueues  struct{ engine.Queues }
	silentEvents  struct{ engine.Events }
)

// TestAuth_Rights: without a token nothing works, without its right a request is forbidden, and with it the right is no obstacle. What is refused is
// refused before a store is asked: neither the answer nor its time shows what there is.
func TestAuth_Rights(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	silent := serveClosed(t, func(cfg *gateway.Config) {
		cfg.Engine.Streams, cfg.Engine.Queues, cfg.Engine.Events = silentStreams{}, silentQueues{}, silentEvents{}
	})
	client{t, c.addr}.listed("/v1/streams", tokenOf(t, "ann", time.Hour, "read stream:orders", "admin stream:orders"), `"orders"`, `"secret"`)
	client{t, c.addr}.listed("/v1/queues", tokenOf(t, "ann", time.Hour, "consume queue:jobs"), `"jobs"`, `"other"`)
	for _, room := range []string{"seen", "hidden"} {
		c.as("/ws", tokenOf(t, "ann", time.Hour, "join room:*")).ask(`{"type":"join","room":"`+room+`","id":1}`, `{"id":1,"type":"ok"}`)
	}
	client{t, c.addr}.listed("/v1/rooms", tokenOf(t, "ann", time.Hour, "presence room:seen", "join room:hidden"), `"seen"`, `"hidden"`)
	for _, d := range doors {
		others := append([]string{"read stream:others", "consume queue:others", "query events:other", "join,chat room:others", "append events:default#t:2"}, d.and...)
		without, with := tokenOf(t, "ann", time.Hour, others...), tokenOf(t, "ann", time.Hour, append(others, d.right)...)
		if d.ws != "" {
			request := `{"id":"x",` + d.ws + `}`
			nobody, some := connect(t, silent.addr), silent.as("/ws", without)
			if got := nobody.code(request); got != "unauthenticated" {
				t.Errorf("%s without a token: %s", request, got)
			}
			if got := some.code(request); got != "forbidden" {
				t.Errorf("%s without %q: %s", request, d.right, got)
			}
			if got := c.as("/ws", with).code(request); got == "forbidden" || strings.HasPrefix(got, "un") {
				t.Errorf("%s with %q: %s", request, d.right, got)
			}
			nobody.Abort()
			some.Abort()
		}
		if d.http != "" {
			method, path, _ := strings.Cut(d.http, " ")
			if got := silent.status(method, path, d.body, ""); got != "401 unauthenticated" {
				t.Errorf("%s without a token: %s", d.http, got)
			}
			if got := silent.status(method, path, d.body, without); got != "403 forbidden" {
				t.Errorf("%s without %q: %s", d.http, d.right, got)
			}
			if got := c.status(method, path, d.body, with); strings.HasPrefix(got, "401") || strings.HasPrefix(got, "403") {
				t.Errorf("%s with %q: %s", d.http, d.right, got)
			}
		}
	}
	w := c.as("/ws", tokenOf(t, "ann", time.Hour, "read stream:orders"))
	w.ask(`{"id":1,"type":"subscribe","stream":"secret"}`, `{"type":"error","id":1,`+forbidden("read", "stream", "secret")+`}`)
}

// listed expects that a list has something and not something else.
func (c client) listed(path, token, has, not string) {
	c.t.Helper()
	if _, text := c.do("GET", path, "", "Authorization", "Bearer "+token); !strings.Contains(text, has) || strings.Contains(text, not) {
		c.t.Errorf("%s: %s", path, text)
	}
}

// TestAuth_WrongTokens: a wrong token is answered before the upgrade, and with one sentence whatever is wrong with it. The probes look at no token.
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
		if got := connect(t, c.addr).code(fmt.Sprintf(`{"id":"x","type":"auth","token":%q}`, token)); got != "invalid_token" {
			t.Errorf("auth with %.20q: %s", token, got)
		}
		for _, path := range []string{"/healthz", "/health", "/readyz"} {
			if got := c.status("GET", path, "", token); got != "200" {
				t.Errorf("%s: %s", path, got)
			}
		}
	}
	if got := c.status("GET", "/v1/streams", "", tokenOf(t, "ann", -time.Minute)); got != "401 token_expired" {
		t.Errorf("an expired token: %s", got)
	}
}

// TestAuth_Pipelined: a client sends its token and its requests together. Tokens are answered in their order, bad ones change nothing, and the last
// good one counts.
func TestAuth_Pipelined(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	for _, path := range []string{"/ws", "/ws/chat"} {
		w := &wire{socket: dial(t, "ws://"+c.addr+path), t: t}
		const all = "join room:**"
		for _, token := range []string{
			tokenOf(t, "ann", time.Hour, all), tokenOf(t, "bob", time.Hour, all), tokenOf(t, "ann", time.Hour, "join room:b"), tokenOf(t, "ann", -time.Minute, all), "nonsense",
		} {
			send(t, w.socket, fmt.Sprintf(`{"id":"x","type":"auth","token":%q}`, token))
		}
		send(t, w.socket, `{"id":5,"type":"join","room":"a"}`, `{"id":6,"type":"join","room":"b"}`)
		for _, want := range []string{`"type":"ok","id":"x","user":"ann","role":"user","expires":`, "identity_mismatch", `"type":"ok"`, "token_expired", "invalid_token", "forbidden", `{"id":6,"type":"ok"}`} {
			if got := w.next(); !strings.Contains(got, want) {
				t.Errorf("%s: %s, want %s", path, got, want)
			}
		}
	}
}

// TestAuth_EarlyFlood: whatever comes before a token is counted, and who sends many messages, large ones or many wrong tokens is sent away.
func TestAuth_EarlyFlood(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	for _, path := range []string{"/ws", "/ws/chat"} {
		for _, message := range []string{`{`, `{"type":"ping"}`, `{"type":"auth","token":1}`, `{"type":"auth","token":"a.b.c"}`, ``, `{"type":"join","room":"a"}`, `{"type":"chat","text":"` + strings.Repeat("x", 17<<10) + `"}`} {
			w := dial(t, "ws://"+c.addr+path)
			for range 6 {
				w.Queue(websocket.OpText, []byte(message))
				w.Flush()
				if len(message) > 1000 {
					break
				}
			}
			if got := closeOf(t, w); got != 4401 {
				t.Errorf("%s, %.30q: closed with %d", path, message, got)
			}
		}
	}
}

// TestAuth_EarlySize: the message with the token may be as large as the limit.
func TestAuth_EarlySize(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	message := fmt.Sprintf(`{"id":"x","type":"auth","token":%q`, tokenOf(t, "ann", time.Hour))
	if got := connect(t, c.addr).code(message + strings.Repeat(" ", 16<<10-len(message)-1) + "}"); got != "ok" {
		t.Error(got)
	}
}

// TestAuth_Refresh: a new token takes the place of the former one. What it does not allow any more ends, and gives back what it has.
func TestAuth_Refresh(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	fill(c.streams, "orders", 1, 10)
	c.enqueued(2)
	w := c.as("/ws", tokenOf(t, "ann", time.Hour, "read stream:*", "consume queue:*", "join,chat room:*", "query events:*"))
	w.ask(`{"id":1,"type":"join","room":"a"}`, `{"id":1,"type":"ok"}`)
	w.ask(`{"id":2,"type":"subscribe","stream":"orders","subscription":"s","credits":0}`, `{"type":"ok","id":2,"position":1}`)
	w.ask(`{"id":3,"type":"subscribe","query":{},"subscription":"e"}`, `{"type":"ok","id":3,"position":0}`)
	w.ask(`{"id":4,"type":"consume","queue":"jobs","credits":2}`, `{"type":"ok","id":4}`)
	held := w.delivery().Delivery
	w.delivery()
	send(t, w.socket, fmt.Sprintf(`{"type":"auth","token":%q}`, tokenOf(t, "ann", time.Hour, "chat room:*")))
	w.wantAll(
		`{"type":"error",`+forbidden("join", "room", "a")+`,"room":"a"}`, `{"type":"error","subscription":"s",`+forbidden("read", "stream", "orders")+`}`,
		`{"type":"error","subscription":"e",`+forbidden("query", "events", "default")+`}`, `{"type":"error","queue":"jobs",`+forbidden("consume", "queue", "jobs")+`}`)
	for request, want := range map[string]string{
		`"type":"chat","room":"a","text":"x"`: "not_joined", `"type":"ack","queue":"jobs","delivery":` + quoted(held): "forbidden", `"type":"unsubscribe","subscription":"s"`: "not_subscribed",
	} {
		if got := w.code(`{"id":"x",` + request + `}`); got != want {
			t.Errorf("%s: %s, want %s", request, got, want)
		}
	}
	c.deliveriesOf(tokenOf(t, "bob", time.Hour, "consume queue:jobs"), 2) // while the leases of ann would have lasted a minute
}

// TestAuth_Users: nobody speaks for another, and presence names the token's user. A user without the right to presence any more gets nothing more about who
// is in the room, and stays in it.
func TestAuth_Users(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	const rights = "join,chat,presence room:*"
	ann, bob := c.as("/ws", tokenOf(t, "ann", time.Hour, rights)), c.as("/ws/chat", tokenOf(t, "bob", time.Hour, rights))
	bob.ask(`{"id":1,"type":"join","room":"a"}`, `{"id":1,"type":"ok"}`)
	for _, request := range []string{`"type":"join","room":"a","user":"bob"`, `"type":"chat","room":"a","text":"x","user":"bob"`} {
		if got := ann.code(`{"id":"x",` + request + `}`); got != "forbidden" {
			t.Errorf("%s: %s", request, got)
		}
	}
	ann.ask(`{"id":2,"type":"join","room":"a","user":"ann","presence":true}`, `{"id":2,"type":"ok"}`)
	ann.want(`{"type":"presence","room":"a","count":2,"members":["ann","bob"]}`)
	ann.ask(`{"id":3,"type":"chat","room":"a","text":"x","user":"ann"}`, `{"id":3,"type":"ok"}`)
	bob.want(`{"type":"chat","room":"a","text":"x","user":"ann"}`)
	send(t, ann.socket, fmt.Sprintf(`{"type":"auth","token":%q}`, tokenOf(t, "ann", time.Hour, "join room:*")))
	if answer := ann.next(); !strings.Contains(answer, `"code":"forbidden"`) || !strings.Contains(answer, `"verb":"presence","kind":"room","name":"a","room":"a"`) {
		t.Errorf("got %s", answer)
	}
	carol := c.as("/ws", tokenOf(t, "carol", time.Hour, rights))
	carol.ask(`{"id":1,"type":"join","room":"a","presence":true}`, `{"id":1,"type":"ok"}`)
	carol.want(`{"type":"presence","room":"a","count":3,"members":["ann","bob","carol"]}`) // ann would have heard of carol by now
	send(t, carol.socket, `{"type":"chat","room":"a","text":"hello"}`)
	ann.want(`{"type":"chat","room":"a","text":"hello"}`)
	carol.ask(`{"id":2,"type":"leave","room":"a"}`, `{"id":2,"type":"ok"}`)
	carol.ask(`{"id":3,"type":"join","room":"a"}`, `{"id":3,"type":"ok"}`) // without presence now, which the next token does not allow
	send(t, carol.socket, fmt.Sprintf(`{"type":"auth","id":4,"token":%q}`, tokenOf(t, "carol", time.Hour, "join room:*")))
	if answer := carol.next(); !strings.HasPrefix(answer, `{"type":"ok","id":4,`) {
		t.Errorf("got %s", answer)
	}
	carol.pong()
}

// TestAuth_OpenMode: without a policy, a client that sends tokens works too. A server without users says so, and does not act.
func TestAuth_OpenMode(t *testing.T) {
	t.Parallel()
	_, _, _, addr := serveAll(t)
	w := connect(t, addr)
	w.ask(`{"id":1,"type":"auth","token":"whatever"}`, `{"type":"ok","id":1}`)
	w.ask(`{"id":2,"type":"join","room":"a","user":"anybody"}`, `{"id":2,"type":"ok"}`)
	for _, path := range []string{"/v1/users/ann/disconnect", "/v1/tokens/revoke"} {
		if status, text := (client{t, addr}).do("POST", path, `{"user":"ann"}`); status != 404 || !strings.Contains(text, "not_served") || !strings.Contains(text, "--auth-secret-file") {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}

// TestAuth_RenewalDuringHistory: a new token without the right ends a history that is being sent.
func TestAuth_RenewalDuringHistory(t *testing.T) {
	t.Parallel()
	store := newMemoryStore(t)
	store.let = make(chan struct{})
	store.put("a", numbered(10, `{"type":"chat","room":"a","text":"%d"}`)...)
	c := serveClosed(t, func(cfg *gateway.Config) { cfg.Engine.Rooms, cfg.Chat.StoredRooms = store, []string{"a"} })
	w := c.as("/ws", tokenOf(t, "ann", time.Hour, "join,history room:a"))
	send(t, w.socket, `{"id":1,"type":"join","room":"a","after":0}`, fmt.Sprintf(`{"id":2,"type":"auth","token":%q}`, tokenOf(t, "ann", time.Hour)))
	got := w.next()
	if strings.Contains(got, `"id":2`) {
		close(store.let) // the store answers only now
		got += w.next()
	} else {
		got += w.next()
		close(store.let)
	}
	if !strings.Contains(got, `"code":"forbidden","id":1`) || !strings.Contains(got, `"type":"ok"`) || strings.Contains(got, `"chat"`) {
		t.Error(got)
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
