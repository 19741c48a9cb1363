package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/websocket"
)

type listed struct {
	Node            string
	Total, Matching int
	Connections     []struct {
		Connection, User, Role, Client, Endpoint, Address string
		Opened                                            time.Time
		Subscriptions, Consumers, Rooms                   int
		Messages_in, Messages_out, Bytes_in, Bytes_out    int64
		Unsent_bytes, Waiting_ms                          int64
	}
}

// guarded serves in closed mode with rules, an API key, callers without a token, and a function that grants the name "asked".
func guarded(t *testing.T) (c closed, key string) {
	t.Helper()
	made, key, err := auth.NewAPIKey("shop", []string{"read stream:orders"}, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	const id = "abcdefgh" // as in cannedAdministration
	key, made.ID = strings.Replace(key, made.ID, id, 1), id
	snapshot := auth.NewSnapshot([]auth.APIKey{made}, nil, nil)
	policy := policyOf(t, auth.Config{
		Rules: []auth.RoleRule{
			{Role: "user", Allow: rulesFor(t, "join room:own/{sub}", "read stream:{claim.team}-*")},
			{Role: auth.Anonymous, Allow: rulesFor(t, "join room:lobby")},
		},
		RulesFrom: "rules.toml", Anonymous: true, Access: func() *auth.Snapshot { return snapshot },
		Ask: func(_ context.Context, q auth.Question) (bool, error) {
			if q.Name == "broken" {
				return false, context.DeadlineExceeded
			}
			return q.Name == "asked", nil
		},
	})
	return serveClosed(t, func(cfg *gateway.Config) {
		cfg.Auth.Policy, cfg.Nodes, cfg.Auth.Administration = policy, cannedNodes{}, cannedAdministration{}
	}), key
}

// TestConnections: a list has what each connection has carried and holds; one connection has its claims and rights, and never its token.
func TestConnections(t *testing.T) {
	t.Parallel()
	c, key := guarded(t)
	list := client{t, c.addr}
	admin := tokenOf(t, "root", time.Hour, "connections server:*")
	token := tokenOf(t, "ann", time.Hour, "consume queue:jobs", "read stream:orders,x", "read,commit stream:orders", "query events:default")
	conn, err := websocket.Dial(t.Context(), "ws://"+c.addr+"/ws", websocket.Config{Header: http.Header{
		"Authorization": {"Bearer " + token}, "User-Agent": {"till/1.2 " + strings.Repeat("ü", 100)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Abort)
	ann := &wire{socket: conn, t: t}
	for _, request := range []string{
		`{"id":"x","type":"subscribe","stream":"orders","group":"g"}`, `{"id":"x","type":"subscribe","subscription":"e","query":{}}`,
		`{"id":"x","type":"consume","queue":"jobs","credits":1}`, `{"id":"x","type":"join","room":"own/ann"}`,
	} {
		if got := ann.code(request); !strings.HasPrefix(got, "ok") {
			t.Fatalf("%s: %s", request, got)
		}
	}
	chat, ingest := c.as("/ws/chat", tokenOf(t, "anna", time.Hour, "join room:a")), c.as("/ws", key)
	ingest.code(`{"id":"x","type":"subscribe","stream":"orders"}`)
	chat.code(`{"id":"x","type":"join","room":"a"}`)
	nobody := connect(t, c.addr)
	nobody.code(`{"id":"x","type":"join","room":"lobby"}`)

	var got listed
	text := list.get(&got, "GET", "/v1/connections?order=newest&user=ann&limit=10", "", admin)
	if strings.Contains(text, token) || got.Node != "one" || got.Total != 4 || got.Matching != 2 || len(got.Connections) != 2 || got.Connections[0].User != "anna" {
		t.Fatal(text)
	}
	of := got.Connections[1]
	if of.Role != "user" || of.Endpoint != "/ws" || !strings.HasPrefix(of.Client, "till/1.2 üü") || len(of.Client) > 128 || of.Subscriptions != 2 || of.Consumers != 1 || of.Rooms != 1 {
		t.Error(text)
	}
	if of.Messages_in != 4 || of.Messages_out < 4 || of.Bytes_in < 200 || of.Bytes_out+of.Unsent_bytes < 100 || of.Address == "" || time.Since(of.Opened) > patience {
		t.Error(text)
	}
	for _, order := range []string{"slowest", "unsent"} {
		if list.get(&got, "GET", "/v1/connections?order="+order+"&limit=3", "", admin); len(got.Connections) != 3 || got.Matching != 4 {
			t.Errorf("%s: %+v", order, got)
		}
	}
	list.refused("GET", "/v1/connections?order=x", "", 400, "invalid_parameter", "Authorization", "Bearer "+admin)

	var one struct {
		Node, By, Key string
		Subscriptions []struct{ Subscription, Stream, Group, Store string }
		Consumers     []string
		Rooms         []string
		Claims        map[string]any
		Rights        []struct{ Rule, Bound, Role, Source string }
		Asks          bool
		Expires       time.Time
	}
	text = list.get(&one, "GET", "/v1/connections/"+of.Connection, "", admin)
	if strings.Contains(text, token) || one.By != "token" || one.Claims["sub"] != "ann" || !one.Asks || one.Expires.IsZero() || fmt.Sprint(one.Subscriptions, one.Consumers, one.Rooms) != "[{e   default} {orders orders g }] [jobs] [own/ann]" {
		t.Error(text)
	}
	rights := fmt.Sprint(one.Rights)
	for _, want := range []string{"{join room:own/{sub} join room:own/ann user rules.toml}", "{read,commit stream:orders read,commit stream:orders  }", "{read stream:{claim.team}-*  user rules.toml}"} {
		if !strings.Contains(rights, want) {
			t.Errorf("%s is not in %s", want, rights)
		}
	}
	list.get(&got, "GET", "/v1/connections?user=key:shop", "", admin)
	if text = list.get(&one, "GET", "/v1/connections/"+got.Connections[0].Connection, "", admin); one.By != "key" || len(one.Key) != 8 {
		t.Error(text)
	}
	for _, path := range []string{"/v1/connections", "/v1/connections/" + of.Connection, "/v1/rules", "/v1/audit"} {
		if got := c.status("GET", path, "", token); got != "403 forbidden" {
			t.Errorf("%s without the right: %s", path, got)
		}
	}

	if got := c.status("POST", "/v1/connections/"+of.Connection+"/disconnect", "", token); got != "403 forbidden" {
		t.Errorf("disconnect without the right: %s", got)
	}
	if got := c.status("POST", "/v1/connections/"+of.Connection+"/disconnect", "{}", admin); got != "200" {
		t.Errorf("disconnect: %s", got)
	}
	if code := closeOf(t, ann); code != 4401 {
		t.Errorf("closed with %d", code)
	}
	ann.Abort()
	testkit.Eventually(t, "the connection has ended", func() bool { return c.status("GET", "/v1/connections/"+of.Connection, "", admin) == "404 not_found" })
	if got := c.status("POST", "/v1/connections/nothing/disconnect", "", admin); got != "404 not_found" {
		t.Errorf("no such connection: %s", got)
	}
	if got := chat.code(`{"id":"x","type":"join","room":"a"}`); !strings.HasPrefix(got, "ok") {
		t.Errorf("another connection: %s", got)
	}
	var audit struct {
		Acts []struct{ Act, Target, User string }
	}
	if list.get(&audit, "GET", "/v1/audit", "", admin); len(audit.Acts) != 1 || audit.Acts[0].Act != "disconnect connection" || !strings.HasPrefix(audit.Acts[0].Target, of.Connection+" ") {
		t.Errorf("acts %+v", audit)
	}
}

// TestConnections_OpenMode: in open mode there are no users, and whoever is ended may come back.
func TestConnections_OpenMode(t *testing.T) {
	t.Parallel()
	c := serveCanned(t)
	w := connect(t, c.addr)
	w.code(`{"id":"x","type":"join","room":"a"}`)
	var got listed
	text := c.get(&got, "GET", "/v1/connections", "", "")
	if strings.Contains(text, `"user"`) || got.Total != 1 || got.Connections[0].Rooms != 1 {
		t.Fatal(text)
	}
	for _, d := range []struct{ method, path, body, want string }{
		{"POST", "/v1/rights/explain", `{"verb":"read","kind":"stream","name":"s"}`, `{"allowed":true,"decided_by":"open_mode"}`},
		{"GET", "/v1/rules", "", `"closed":false`},
		{"POST", "/v1/connections/" + got.Connections[0].Connection + "/disconnect", "", `{}`},
		{"GET", "/v1/audit", "", `"act":"disconnect connection"`},
	} {
		if _, text := c.do(d.method, d.path, d.body); !strings.Contains(text, d.want) {
			t.Errorf("%s: %s", d.path, text)
		}
	}
	if code := closeOf(t, w); code != 1012 {
		t.Errorf("closed with %d", code)
	}
	c.refused("GET", "/v1/keys", "", 404, "not_served")
}

// TestExplain: it tells which rule decides, or that none does, and what would.
func TestExplain(t *testing.T) {
	t.Parallel()
	c, key := guarded(t)
	list := client{t, c.addr}
	admin := tokenOf(t, "root", time.Hour, "connections server:*")
	c.as("/ws", tokenOf(t, "ann", time.Hour, "read stream:a*")).code(`{"id":"x","type":"join","room":"own/ann"}`)
	c.as("/ws", key).code(`{"id":"x","type":"subscribe","stream":"orders"}`)
	var got listed
	list.get(&got, "GET", "/v1/connections?user=ann", "", admin)
	for body, want := range map[string]string{
		`"user":"ann","verb":"read","kind":"stream","name":"abc"`:                                           `{"allowed":true,"by":"token","decided_by":"rule","role":"user","rule":{"rule":"read stream:a*","bound":"read stream:a*"},"user":"ann"}`,
		`"connection":"` + got.Connections[0].Connection + `","verb":"join","kind":"room","name":"own/ann"`: `"rule":{"rule":"join room:own/{sub}","bound":"join room:own/ann","role":"user","source":"rules.toml"}`,
		`"user":"ann","verb":"read","kind":"stream","name":"b*"`:                                            `{"allowed":false,"by":"token","decided_by":"nothing","function":"no","grant":"read stream:b\\*","role":"user","user":"ann"}`,
		`"user":"key:shop","verb":"publish","kind":"stream","name":"asked"`:                                 `{"allowed":true,"by":"key","decided_by":"function","function":"yes","role":"key","user":"key:shop"}`,
		`"user":"ann","verb":"read","kind":"stream","name":"broken"`:                                        `"function":"failed"`,
		`"role":"user","claims":{"sub":"bob","team":"red"},"verb":"read","kind":"stream","name":"red-1"`:    `"bound":"read stream:red-*"`,
		`"claims":{},"verb":"query","kind":"events","tags":["t:1"]`:                                         `"grant":"query events:default#t:1"`,
	} {
		if _, text := list.do("POST", "/v1/rights/explain", "{"+body+"}", "Authorization", "Bearer "+admin); !strings.Contains(text, want) {
			t.Errorf("%s: %s, want %s", body, text, want)
		}
	}
	for body, want := range map[string]string{
		`"user":"carol","verb":"read","kind":"stream","name":"a"`:             "404 not_found",
		`"role":"user","verb":"x","kind":"stream","name":"a"`:                 "400 invalid",
		`"role":"user","verb":"read","kind":"stream"`:                         "400 invalid_name",
		`"claims":{"a":1,"a":2},"verb":"read","kind":"stream","name":"a"`:     "400 invalid",
		`"role":"user","verb":"read","kind":"stream","name":"a","tags":["t"]`: "400 malformed",
		`"role":"user","verb":"read","kind":"stream","name":"a","x":1`:        "400 unknown_field",
	} {
		if got := c.status("POST", "/v1/rights/explain", "{"+body+"}", admin); got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
	var rules struct {
		Closed, Asks bool
		Rules        []struct{ Rule, Role, Source string }
		Kinds        map[string][]string
	}
	if text := list.get(&rules, "GET", "/v1/rules", "", admin); !rules.Closed || !rules.Asks || len(rules.Rules) != 3 || rules.Rules[0].Source != "rules.toml" || !slices.Contains(rules.Kinds["room"], "join") {
		t.Error(text)
	}
}

// TestAudit_Recent: the last denials are counted by what they are about, and the oldest make room.
func TestAudit_Recent(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	admin := tokenOf(t, "root", time.Hour, "connections server:*", "admin stream:new")
	w := c.as("/ws", tokenOf(t, "ann", time.Hour))
	for i := range 1005 {
		w.Queue(websocket.OpText, fmt.Appendf(nil, `{"type":"subscribe","stream":"s%d"}`, i))
	}
	w.Flush()
	for range 3 {
		w.code(`{"id":"x","type":"subscribe","stream":"again"}`)
	}
	c.status("GET", "/v1/streams", "", "wrong")
	c.status("POST", "/v1/streams/new", "{}", admin)
	var got struct {
		Since   time.Time
		Denials []struct {
			Code, User, Role, Address, Verb, Kind, Name, Reason string
			Count                                               int
			First, Last                                         time.Time
		}
		Acts []struct{ User, Role, Address, Act, Target string }
	}
	text := client{t, c.addr}.get(&got, "GET", "/v1/audit", "", admin)
	if len(got.Denials) != 1000 || len(got.Acts) != 1 || got.Acts[0].Act != "create stream" || got.Acts[0].Target != "new" || got.Acts[0].User != "root" || got.Since.IsZero() {
		t.Fatalf("%d denials; %.300s", len(got.Denials), text)
	}
	wrong, again := got.Denials[0], got.Denials[1]
	if wrong.Code != "invalid_token" || wrong.Reason == "" || wrong.Count != 1 || wrong.Address == "" {
		t.Errorf("%+v", wrong)
	}
	if again.Code != "forbidden" || again.Count != 3 || again.User != "ann" || again.Role != "user" || again.Verb+again.Kind+again.Name != "readstreamagain" || again.Last.Before(again.First) {
		t.Errorf("%+v", again)
	}
	if oldest := got.Denials[999].Name; oldest != "s7" {
		t.Errorf("the oldest is %s", oldest)
	}
}
