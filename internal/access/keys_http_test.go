package access_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestKeys_OverHTTP: a key that is made and revoked over HTTP counts at once where that was done, and soon on the other servers, where its connections end. One of
// the same name stays, and one that has expired counts nowhere. The audit log has both acts, and nothing the secret.
func TestKeys_OverHTTP(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	a, b := startNode(t, db.URL, ""), startNode(t, db.URL, "")
	maker := token(t, "root", nil, "keys server:*", "connections server:*", "read stream:*")
	made := a.made(maker, `{"name":"shop","allow":["read stream:orders"],"expires_in":3600}`)
	if got := a.http("GET", readOrders, "", made.Token); got != "200" {
		t.Errorf("where it was made: %s", got)
	}
	b.await("GET", readOrders, made.Token, "200")
	if got := a.http("GET", "/v1/streams/other", "", made.Token); got != "403 forbidden" {
		t.Errorf("beyond its rights: %s", got)
	}
	for body, want := range map[string]string{
		`{"name":"shop","allow":["publish stream:orders"]}`: "403 beyond_own_rights",
		`{"name":"shop","allow":["read stream:orders"]}`:    "200",
	} {
		if got := a.http("POST", "/v1/keys", body, maker); got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
	a.key("strong", 0, "admin queue:**") // by the operator, with rights that the maker lacks
	if got := a.http("POST", "/v1/keys", `{"name":"strong","allow":["read stream:orders"]}`, maker); got != "403 beyond_own_rights" {
		t.Errorf("the name of a stronger key: %s", got)
	}
	listed := a.text("GET", "/v1/keys", "", maker)
	if strings.Contains(listed, strings.SplitN(made.Token, "_", 3)[2]) || !strings.Contains(listed, `"by":"root"`) || !strings.Contains(listed, `"last_used"`) {
		t.Error(listed)
	}
	_, other := a.key("shop", time.Hour, "read stream:orders")
	_, short := a.key("shop", time.Microsecond, "read stream:orders")
	for _, n := range []node{a, b} {
		n.await("GET", readOrders, short, "401 token_expired")
		n.await("GET", readOrders, other, "200")
	}
	w, there, kept := a.connect(made.Token), b.connect(made.Token), b.connect(other)
	if got := a.http("POST", "/v1/keys/"+made.Key+"/revoke", "", maker); got != "200" {
		t.Fatal(got)
	}
	if got := a.http("GET", readOrders, "", made.Token); got != "401 invalid_token" {
		t.Errorf("where it was revoked: %s", got)
	}
	for _, conn := range []*wire{w, there} {
		if got := conn.next(); got != "4403" {
			t.Errorf("its connection: %s", got)
		}
	}
	if got := b.http("GET", readOrders, "", made.Token); got != "401 invalid_token" {
		t.Errorf("on the other server: %s", got)
	}
	if got := kept.ask(`"type":"subscribe","stream":"orders"`); got != "ok" {
		t.Errorf("the key of the same name: %s", got)
	}
	if got := a.http("POST", "/v1/keys/"+made.Key+"/revoke", "", maker); got != "404 not_found" {
		t.Errorf("revoked again: %s", got)
	}
	for _, d := range []struct{ path, body, want string }{ // what PostgreSQL cannot store as a text is refused for good: to try again would never end
		{"/v1/keys", `{"name":"shop","allow":["read stream:a\u0000"]}`, "400 invalid"}, {"/v1/keys/%00/revoke", "", "404 not_found"}, {"/v1/keys/%ff/revoke", "", "404 not_found"},
	} {
		if got := a.http("POST", d.path, d.body, maker); got != d.want {
			t.Errorf("%s %s: %s, want %s", d.path, d.body, got, d.want)
		}
	}
	var acts int
	var all string
	err := db.Pool.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE target = $1 AND actor = 'root'), string_agg(detail::text, ' ') FROM tidewire.access_acts`, made.Key).Scan(&acts, &all)
	if err != nil || acts != 2 || strings.Contains(all, strings.SplitN(made.Token, "_", 3)[2]) {
		t.Errorf("%d acts: %s %v", acts, all, err)
	}
}

type madeKey struct{ Key, Token string }

// made makes a key over HTTP.
func (n node) made(token, body string) (key madeKey) {
	n.t.Helper()
	if text := n.text("POST", "/v1/keys", body, token); json.Unmarshal([]byte(text), &key) != nil || key.Token == "" {
		n.t.Fatal(text)
	}
	return key
}

// text is the answer to a request.
func (n node) text(method, path, body, token string) string {
	n.t.Helper()
	r, err := http.NewRequestWithContext(n.t.Context(), method, "http://"+n.url+path, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return string(text)
}
