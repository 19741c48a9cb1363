package gateway_test

import (
	"strings"
	"testing"
	"time"
)

// TestKeys: who makes an API key cannot give it more than it has, not by its rules and not by its name, and who may revoke tokens may not make keys.
func TestKeys(t *testing.T) {
	t.Parallel()
	c, _ := guarded(t) // the function grants names that are "asked", also of keys
	list := client{t, c.addr}
	maker := tokenOf(t, "root", time.Hour, "keys server:*", "connections server:*", "read stream:o*", "admin stream:x")
	plain := tokenOf(t, "ops", time.Hour, "connections server:*", "read stream:**")
	for _, d := range []struct{ method, path, body, token, want string }{
		{"GET", "/v1/keys", "", plain, "403 forbidden"},
		{"POST", "/v1/keys", `{"name":"asked","allow":["read stream:o"]}`, plain, "403 forbidden"},
		{"POST", "/v1/keys/abcdefgh/revoke", "", plain, "403 forbidden"},
		{"POST", "/v1/keys", `{"name":"asked","allow":["read stream:orders"],"expires_in":60}`, maker, "200"},
		{"POST", "/v1/keys", `{"name":"asked","allow":["read stream:o*","keys server:*"]}`, maker, "200"},
		{"POST", "/v1/keys", `{"name":"asked","allow":["read stream:o*","read stream:*"]}`, maker, "403 beyond_own_rights"},
		{"POST", "/v1/keys", `{"name":"asked","allow":["publish stream:o"]}`, maker, "403 beyond_own_rights"},
		{"POST", "/v1/keys", `{"name":"other","allow":["read stream:o"]}`, maker, "403 beyond_own_rights"},
		{"POST", "/v1/keys", `{"name":"broken","allow":["read stream:o"]}`, maker, "503 unavailable"},
		{"POST", "/v1/keys", `{"name":"asked","allow":[]}`, maker, "400 invalid"},
		{"POST", "/v1/keys", `{"name":"","allow":["read stream:o"]}`, maker, "400 invalid"},
		{"POST", "/v1/keys", `{"name":"asked","allow":["read stream:{sub}"]}`, maker, "400 invalid"},
		{"POST", "/v1/keys", `{"name":"asked","allow":["read stream:o"],"expires_in":0}`, maker, "400 invalid"},
		{"POST", "/v1/keys", `{"name":"asked","allow":["read stream:o"],"x":1}`, maker, "400 unknown_field"},
		{"POST", "/v1/keys/abcdefgh/revoke", "{}", maker, "200"},
		{"POST", "/v1/keys/nothing/revoke", "", maker, "404 not_found"},
	} {
		if got := c.status(d.method, d.path, d.body, d.token); got != d.want {
			t.Errorf("%s %s %s: %s, want %s", d.method, d.path, d.body, got, d.want)
		}
	}
	var made struct{ Key, Token string }
	if text := list.get(&made, "POST", "/v1/keys", `{"name":"asked","allow":["read stream:o"]}`, maker); made.Key != "abcdefgh" || made.Token != "tw_abcdefgh_secret" {
		t.Error(text)
	}
	var keys struct {
		Node string
		Keys []struct{ Key, Name, State, By, Last_used string }
	}
	if text := list.get(&keys, "GET", "/v1/keys", "", maker); keys.Node != "one" || len(keys.Keys) != 3 || keys.Keys[0].State+keys.Keys[1].State+keys.Keys[2].State != "activeexpiredrevoked" || keys.Keys[0].By != "root" {
		t.Error(text)
	}
	if text := list.get(new(struct{}), "GET", "/v1/audit", "", maker); strings.Contains(text, "secret") || !strings.Contains(text, `"act":"create key","target":"abcdefgh asked"`) ||
		!strings.Contains(text, `"act":"revoke key"`) || !strings.Contains(text, `"code":"beyond_own_rights"`) {
		t.Error(text)
	}
}

// TestKeys_Names: a key of a name that another one has, or had, with rights that its maker lacks would be the same user.
func TestKeys_Names(t *testing.T) {
	t.Parallel()
	c := serveAdministered(t)
	lacks, has := tokenOf(t, "root", time.Hour, "keys server:*", "read stream:**"), tokenOf(t, "root", time.Hour, "keys server:*", "admin,read stream:**")
	const taken, many = `{"name":"taken","allow":["read stream:o"]}`, `{"name":"many","allow":["read stream:o"]}`
	for _, d := range []struct{ body, token, want string }{{taken, lacks, "403 beyond_own_rights"}, {taken, has, "200"}, {many, has, "409 too_many_keys"}} {
		if got := c.status("POST", "/v1/keys", d.body, d.token); got != d.want {
			t.Errorf("%s: %s, want %s", d.body, got, d.want)
		}
	}
}
