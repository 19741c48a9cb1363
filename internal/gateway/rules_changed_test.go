package gateway_test

import (
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/limits"
)

// TestRulesChanged: after a change of the rules, connections that say nothing lose what they may not have any more, on every endpoint, and
// have what they may now.
func TestRulesChanged(t *testing.T) {
	t.Parallel()
	t.Run("without rates", func(t *testing.T) { t.Parallel(); testRulesChanged(t, limits.Config{}) })
	t.Run("with rates", func(t *testing.T) {
		t.Parallel()
		testRulesChanged(t, limits.Config{RequestRate: 1000, ByteRate: 1 << 20})
	})
}

func testRulesChanged(t *testing.T, rates limits.Config) {
	key, err := auth.NewSecret("", tokenSecret)
	if err != nil {
		t.Fatal(err)
	}
	cfg := func(anonymous bool, rules ...string) auth.Config {
		t.Helper()
		all := auth.RoleRule{Role: "user"}
		for _, text := range rules {
			r, err := auth.ParseRule(text)
			if err != nil {
				t.Fatal(err)
			}
			all.Allow = append(all.Allow, r)
		}
		guests := all
		guests.Role = auth.Anonymous
		return auth.Config{Token: auth.TokenConfig{Audience: "tidewire"}, Keys: []auth.Key{key}, Rules: []auth.RoleRule{all, guests}, Anonymous: anonymous}
	}
	policy, err := auth.NewPolicy(cfg(true, "join room:{sub}", "join room:a", "read stream:orders", "write ingest:*"))
	if err != nil {
		t.Fatal(err)
	}
	c := serveClosed(t, func(g *gateway.Config) { g.Auth.Policy, g.Limits = policy, limits.New(rates) })
	token := tokenOf(t, "ann", time.Hour, "join room:own")
	both, chat, ingest := c.as("/ws", token), c.as("/ws/chat", token), c.as("/ws/ingest", token)
	guest := connect(t, c.addr)
	for _, w := range []*wire{both, chat} {
		w.ask(`{"id":1,"type":"join","room":"a"}`, `{"id":1,"type":"ok"}`)
		w.ask(`{"id":2,"type":"join","room":"ann"}`, `{"id":2,"type":"ok"}`)
		w.ask(`{"id":3,"type":"join","room":"own"}`, `{"id":3,"type":"ok"}`)
	}
	guest.ask(`{"id":1,"type":"join","room":"a"}`, `{"id":1,"type":"ok"}`)
	both.ask(`{"id":4,"type":"subscribe","stream":"orders","subscription":"s","credits":0}`, `{"type":"ok","id":4,"position":0}`)
	if err := policy.Reload(cfg(false, "join room:{sub}", "join room:b")); err != nil {
		t.Fatal(err)
	}
	c.server.RulesChanged()
	const text = `"code":"forbidden","message":"no rule grants you this: see verb, kind and name","retryable":false,`
	gone := `{"type":"error",` + text + `"verb":"join","kind":"room","name":"a","room":"a"}`
	chat.want(gone)
	ended := `{"type":"error","subscription":"s",` + text + `"verb":"read","kind":"stream","name":"orders"}`
	if first := both.next(); first == ended {
		both.want(gone)
	} else if first != gone {
		t.Errorf("got %s", first)
	} else {
		both.want(ended)
	}
	for _, w := range []*wire{both, chat} {
		w.ask(`{"id":5,"type":"join","room":"b"}`, `{"id":5,"type":"ok"}`)
	}
	for name, w := range map[string]*wire{"ingest": ingest, "guest": guest} {
		if got := closeOf(w); got != 4401 {
			t.Errorf("%s was closed with %d", name, got)
		}
	}
	if err := policy.Reload(auth.Config{}); err == nil {
		t.Error("a policy without keys is taken")
	}
	both.ask(`{"id":6,"type":"join","room":"ann"}`, `{"id":6,"type":"ok"}`)
}
