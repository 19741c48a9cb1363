package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/websocket"
)

// quoted is a JSON string.
func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// named are the answers of all doors to a client that asks for something of a name: to join the room on /ws and /ws/chat, and to read the
// stream on /ws and by HTTP. "" is anything but a refusal for want of a right.
func (c closed) named(token, name string) map[string]string {
	c.t.Helper()
	both, chat := c.as("/ws", token), c.as("/ws/chat", token)
	join := `{"id":"x","type":"join","room":` + quoted(name) + `}`
	answers := map[string]string{
		"join on /ws":      both.code(join),
		"join on /ws/chat": chat.code(join),
		"subscribe on /ws": both.code(`{"id":"x","type":"subscribe","subscription":"s","credits":0,"stream":` + quoted(name) + `}`),
		"GET":              c.status("GET", "/v1/streams/"+url.PathEscape(name)+"/messages", "", token),
	}
	for door, answer := range answers {
		switch answer {
		case "errorforbidden", "403 forbidden":
			answers[door] = "forbidden"
		default:
			answers[door] = ""
		}
	}
	both.Abort()
	chat.Abort()
	return answers
}

// wantNamed expects that all doors refuse the name, or that none does.
func (c closed) wantNamed(token, name string, refused bool) {
	c.t.Helper()
	for door, got := range c.named(token, name) {
		if (got == "forbidden") != refused {
			c.t.Errorf("%s of %q: refused %v, want %v", door, name, !refused, refused)
		}
	}
}

// TestAttack_WildcardUsers: a user whose name looks like a part of a rule has its own names, and no other's, on every door.
func TestAttack_WildcardUsers(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil, auth.RoleRule{Role: "user", Allow: rulesFor(t, "join room:dm-{sub}-*", "join room:own/{sub}/*", "read stream:dm-{sub}-*", "read stream:own/{sub}/*")})
	for _, user := range []string{"*", "**", "a/b", "{sub}", "{claim.role}", "dm-x-*", "%2F", `\*`, "?", "[a-z]*", "..", "bob/..", "own/bob", "bo"} {
		token := tokenOf(t, user, time.Hour)
		for _, name := range []string{"dm-bob-1", "own/bob/x", "own/bob", "own//x", "dm-/-1", "own/" + user, "own/" + user + "/x/y", "dm-" + user + "-x/y"} {
			c.wantNamed(token, name, true)
		}
		slash := strings.Contains(user, "/") // such a value has no place in a rule
		c.wantNamed(token, "dm-"+user+"-1", slash)
		c.wantNamed(token, "own/"+user+"/x", slash)
	}
	alice := tokenOf(t, "alice", time.Hour)
	c.wantNamed(alice, "own/alice-1/x", true)
	c.wantNamed(alice, "dm-alice-1-x", false) // why the documents say to put slashes around {sub}
}

// TestAttack_LookAlikes: names that look like others, or are other spellings of them, are other names, on every door.
func TestAttack_LookAlikes(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	token := tokenOf(t, "ann", time.Hour, "join room:admin", "read stream:admin", "join room:caf\u00e9", "read stream:caf\u00e9")
	for _, name := range []string{"admin", "caf\u00e9"} {
		c.wantNamed(token, name, false)
	}
	for _, name := range []string{
		"\uff41dmin", "adm\u0131n", "ADMIN", "admin ", " admin", "admin\u200b", "\ufeffadmin", "\u0430dmin", "cafe\u0301", "CAF\u00c9", "caf\u00e9\u0301", "cafe", "%61dmin", `\u0061dmin`, "\ufffddmin",
	} {
		c.wantNamed(token, name, true)
	}
	for _, surrogate := range []string{`"\ud800dmin"`, `"\udc61dmin"`} { // half a pair
		if got := c.as("/ws", token).code(`{"id":"x","type":"subscribe","stream":` + surrogate + `}`); got != "errorforbidden" {
			t.Errorf("%s: %s", surrogate, got)
		}
	}
}

// TestAttack_InvalidUTF8: names that are no UTF-8, such as overlong forms, are refused on every door, in open mode and with every right.
func TestAttack_InvalidUTF8(t *testing.T) {
	t.Parallel()
	_, _, _, open := serveAll(t)
	c := serveClosed(t, nil)
	token := tokenOf(t, "ann", time.Hour, "join,chat room:**", "read stream:**")
	for _, name := range []string{"\xc1\xaf", "\xe0\x81\xafrders", "\xf0\x80\x81\xaf", "orders\xff", "\xed\xa0\x80", "orders\xc3", "\xf4\x90\x80\x80", "\xc0\x80"} {
		for addr, header := range map[string]http.Header{open: nil, c.addr: bearer(token)} {
			for _, path := range []string{"/ws", "/ws/chat"} {
				conn, err := websocket.Dial(t.Context(), "ws://"+addr+path, websocket.Config{Header: header})
				if err != nil {
					t.Fatal(err)
				}
				send(t, conn, `{"id":"x","type":"join","room":"`+name+`"}`)
				if got := closeOf(&wire{Conn: conn, t: t}); got != websocket.StatusInvalidPayload {
					t.Errorf("%s with %q: closed with %d", path, name, got)
				}
				conn.Abort()
			}
			in := closed{t: t, addr: addr}
			auth := ""
			if header != nil {
				auth = token
			}
			escaped := ""
			for _, b := range []byte(name) {
				escaped += fmt.Sprintf("%%%02X", b)
			}
			if got := in.status("GET", "/v1/streams/"+escaped+"/messages", "", auth); got != "400 invalid_name" {
				t.Errorf("GET %s: %s", escaped, got)
			}
		}
	}
}

// TestAttack_Paths: a path grants what its decoded name does, however it is spelled.
func TestAttack_Paths(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	for _, name := range []string{"a", "a/b", "../secret", "x", "x;y", "secret ", "secret?", "secret/messages", "..", "%2F"} {
		if _, err := c.streams.Create(t.Context(), name, nil); err != nil {
			t.Fatal(err)
		}
	}
	parents := tokenOf(t, "ann", time.Hour, "read stream:a", "read stream:b", "read stream:x", "read stream:y", "read stream:orders", "read stream:messages")
	for path, name := range map[string]string{
		"a%2Fb": "a/b", "a%2fb": "a/b", "..%2Fsecret": "../secret", "%2e%2e%2Fsecret": "../secret", "x;y": "x;y", "x%3By": "x;y", "%73ecret": "secret",
		"secret%20": "secret ", "secret%3F": "secret?", "secret%2Fmessages": "secret/messages", "secret": "secret", "%252F": "%2F", "secret?stream=orders": "secret",
	} {
		base, query, _ := strings.Cut(path, "?")
		granted := "200"
		if query != "" { // a parameter that none of them has
			granted = "400 invalid_parameter"
		}
		for _, rest := range []string{"", "/messages", "/groups"} {
			full := "/v1/streams/" + base + rest + "?" + query
			if got := c.status("GET", full, "", parents); got != "403 forbidden" {
				t.Errorf("%s without the right to %q: %s", full, name, got)
			}
			if got := c.status("GET", full, "", tokenOf(t, "ann", time.Hour, "read stream:"+strings.ReplaceAll(name, "*", `\*`))); got != granted {
				t.Errorf("%s with the right to %q: %s", full, name, got)
			}
		}
	}
	for _, path := range []string{
		"//v1/streams/secret", "/v1//streams/secret", "/v1/streams//secret", "/v1/streams/../streams/secret", "/v1/streams/orders/../secret", "/./v1/streams/secret", "/v1/./streams/secret",
		"/V1/streams/secret", "/v1/Streams/secret", "/v1/streams/secret/", "/v1/streams/secret/.", "/v1/streams/orders/%2e%2e/secret", "/ws/../v1/streams/secret", "/healthz/../v1/streams/secret",
		"/healthz/..%2Fv1/streams/secret", "/v1/streams/secret;x", "/v1/streams/secret%00", "/v1/streams/secret%0A", `/v1/streams\secret`, "/v1%2Fstreams%2Fsecret",
	} {
		for _, token := range []string{parents, ""} {
			if got := c.status("GET", path, "", token); !strings.HasPrefix(got, "4") {
				t.Errorf("%s: %s", path, got)
			}
		}
	}
}

// TestAttack_Methods: neither another method nor a header that names one does more than the method of the request.
func TestAttack_Methods(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	fill(c.streams, "secret", 1, 3)
	reader, all := tokenOf(t, "ann", time.Hour, "read stream:orders"), tokenOf(t, "ann", time.Hour, "read,publish,commit,admin stream:**")
	for _, method := range []string{"HEAD", "OPTIONS", "TRACE", "CONNECTED", "get", "PROPFIND", "PUT", "PATCH"} {
		for _, path := range []string{"/v1/streams/secret", "/v1/streams/secret/messages", "/metrics"} {
			for _, token := range []string{reader, ""} {
				if got := c.status(method, path, "", token); !strings.HasPrefix(got, "4") {
					t.Errorf("%s %s: %s", method, path, got)
				}
			}
		}
	}
	for _, header := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "_method"} {
		for _, method := range []string{"GET", "POST"} {
			client{t, c.addr}.do(method, "/v1/streams/secret?_method=DELETE", "", "Authorization", "Bearer "+all, header, "DELETE")
		}
	}
	if got := c.status("GET", "/v1/streams/secret", "", all); got != "200" {
		t.Errorf("a stream that nobody dropped: %s", got)
	}
	for _, header := range []string{"X-Original-URL", "X-Rewrite-URL", "X-Forwarded-Path", "X-Forwarded-Prefix", "X-Original-URI"} {
		status, text := client{t, c.addr}.do("GET", "/v1/streams/orders", "", "Authorization", "Bearer "+reader, header, "/v1/streams/secret")
		if status != http.StatusOK || !strings.Contains(text, `"orders"`) || strings.Contains(text, "secret") {
			t.Errorf("%s: %d %s", header, status, text)
		}
	}
}

// TestAttack_Partitions: a right to a stream is none to a partition of it, nor the other way round, nor to a stream that is named like one.
func TestAttack_Partitions(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	names := []string{"orders", "orders/3", "orders/03", "secret", "secret/3", "orders/3/1"}
	for _, name := range names {
		if _, err := c.streams.Create(t.Context(), name, nil); err != nil {
			t.Fatal(err)
		}
	}
	for right, granted := range map[string][]string{
		"orders": {"orders"}, "orders/3": {"orders/3"}, "secret": {"secret"}, "secret/3": {"secret/3"}, "*": {"orders", "secret"},
		"orders/*": {"orders/3", "orders/03"}, "orders**": {"orders", "orders/3", "orders/03", "orders/3/1"},
	} {
		token := tokenOf(t, "ann", time.Hour, "read,publish,commit stream:"+right)
		for _, name := range names {
			refused := true
			for _, g := range granted {
				refused = refused && g != name
			}
			path, w := "/v1/streams/"+url.PathEscape(name), c.as("/ws", token)
			for door, got := range map[string]string{
				"subscribe": w.code(`{"id":"x","type":"subscribe","subscription":"s","credits":0,"stream":` + quoted(name) + `}`),
				"group":     w.code(`{"id":"x","type":"subscribe","subscription":"g","group":"g","credits":0,"stream":` + quoted(name) + `}`),
				"publish":   w.code(`{"id":"x","type":"publish","payload":"x","stream":` + quoted(name) + `}`),
				"commit":    w.code(`{"id":"x","type":"commit","group":"g","position":0,"stream":` + quoted(name) + `}`),
				"GET":       c.status("GET", path, "", token),
				"messages":  c.status("GET", path+"/messages", "", token),
				"groups":    c.status("GET", path+"/groups", "", token),
				"POST":      c.status("POST", path+"/messages", `{"payload":"x"}`, token),
			} {
				want := !strings.HasPrefix(got, "error") && !strings.HasPrefix(got, "4")
				if refused == want || refused && !strings.Contains(got, "forbidden") {
					t.Errorf("%s of %s with the right to %s: %s", door, name, right, got)
				}
			}
			w.Abort()
		}
	}
}
