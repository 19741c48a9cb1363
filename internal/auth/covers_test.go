package auth

import (
	"context"
	"slices"
	"testing"
)

// TestCaller_Lacks: a caller can give a key only what one of its own rules grants.
func TestCaller_Lacks(t *testing.T) {
	t.Parallel()
	for _, d := range []struct {
		own, wants string
		lacks      bool
	}{
		{"read stream:a", "read stream:a", false},
		{"read stream:a", "read stream:b", true},
		{"read stream:a", "read stream:*", true},
		{"read stream:a", "publish stream:a", true},
		{"read stream:a", "read,publish stream:a", true},
		{"read,publish stream:a", "publish stream:a", false},
		{"admin stream:a", "admin queue:a", true},
		{"read stream:*", "read stream:orders", false},
		{"read stream:*", "read stream:orders-*", false},
		{"read stream:*", "read stream:a/b", true},
		{"read stream:*", "read stream:**", true},
		{"read stream:*", "read stream:a/*", true},
		{"read stream:*/*", "read stream:a/*", false},
		{"read stream:*/*", "read stream:**", true},
		{"read stream:**", "read stream:a/**/b*", false},
		{"read stream:a*", "read stream:*a", true},
		{"read stream:*a*", "read stream:x*a", false},
		{`read stream:\*`, "read stream:*", true},
		{"read stream:*", `read stream:\*\*`, false},
		{`read stream:\*\*`, "read stream:**", true},
		{"metrics server:*", "metrics server:**", false},
		{"metrics server:*", "keys server:*", true},
		{"keys server:**", "keys server:*", false},
		{"query events:default#t:a", "query events:default", true},
		{"query events:default", "query events:default#t:a", false},
		{"query events:default#t:*", "query events:default#t:a#x", false},
		{"query events:default#t:a", "query events:default#t:*", true},
		{"query events:default#t:a#x", "query events:default#t:a", true},
		{"append events:default#t:a#x", "append events:default#t:a#x", false},
		{"append events:default#t:a#x", "append events:default#x#t:a", true}, // the ids x/… are not its own
		{"append events:default#t:a", "append events:default#t:a#x", false},
	} {
		own := &Caller{grants: &Grants{rules: mustRules(t, d.own)}}
		if got := own.Lacks(mustRules(t, d.wants)); (got != "") != d.lacks {
			t.Errorf("%q gives %q: lacks %q", d.own, d.wants, got)
		}
	}
	both := &Caller{grants: &Grants{rules: mustRules(t, "read stream:a", "publish stream:**")}}
	if got := both.Lacks(mustRules(t, "read,publish stream:a", "commit stream:a")); got != "commit stream:a" {
		t.Errorf("lacks %q", got)
	}
}

// TestCaller_MayName: where an SQL function grants rights, it decides on the names of keys.
func TestCaller_MayName(t *testing.T) {
	t.Parallel()
	p := policyWith(t, Config{Ask: func(_ context.Context, q Question) (bool, error) {
		return q.Verb == "keys" && q.Kind == Server && q.Name == "mine", nil
	}})
	c, err := p.Suppose([]byte(`{"sub":"ann"}`), "")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"mine": true, "theirs": false} {
		if may, err := c.MayName(t.Context(), name); may != want || err != nil {
			t.Errorf("%s: %v %v", name, may, err)
		}
	}
	free := &Caller{}
	if may, err := free.MayName(t.Context(), "any"); !may || err != nil {
		t.Errorf("without a function: %v %v", may, err)
	}
}

func policyWith(t *testing.T, cfg Config) *Policy {
	t.Helper()
	cfg.Token.Audience, cfg.Access = "tidewire", func() *Snapshot { return NewSnapshot(nil, nil, nil) }
	p, err := NewPolicy(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestCaller_Explain: the rule that decides is named with where it comes from, and a rule that grants nothing for want of a value is listed.
func TestCaller_Explain(t *testing.T) {
	t.Parallel()
	asked := false
	p := policyWith(t, Config{
		RulesFrom: "a.toml",
		Rules: []RoleRule{
			{Role: "user", Allow: mustRules(t, "read stream:user/{sub}")},
			{Role: "*", Allow: mustRules(t, "query events:default#tenant:{claim.tenant}")},
			{Role: Anonymous, Allow: mustRules(t, "join room:lobby")},
			{Role: "admin", Allow: mustRules(t, "admin stream:**")},
		},
		Ask: func(_ context.Context, q Question) (bool, error) {
			asked = true
			return q.Name == "asked" && string(q.Claims) == `{"sub":"a*b","tenant":"t1"}`, nil
		},
	})
	c, err := p.Suppose([]byte(`{"sub":"a*b","tenant":"t1"}`), "")
	if err != nil {
		t.Fatal(err)
	}
	is := c.Explain(t.Context(), "read", Stream, "user/a*b", nil)
	if want := (InForce{"read stream:user/{sub}", `read stream:user/a\*b`, Origin{"user", "a.toml"}}); !is.May || is.By == nil || *is.By != want || asked {
		t.Errorf("got %+v", is)
	}
	if is := c.Explain(t.Context(), "query", Events, "default", []string{"tenant:t1", "x"}); !is.May || is.By.Role != "*" {
		t.Errorf("with the tag: %+v", is)
	}
	if is := c.Explain(t.Context(), "query", Events, "default", nil); is.May || !is.Asked {
		t.Errorf("without tags: %+v", is)
	}
	if is := c.Explain(t.Context(), "read", Stream, "asked", nil); !is.May || !is.Asked || is.By != nil {
		t.Errorf("asked: %+v", is)
	}
	poor, _ := p.Suppose([]byte(`{"sub":"ann"}`), "")
	if rights := poor.Rights(); len(rights) != 2 || rights[1].Bound != "" || rights[1].Rule != "query events:default#tenant:{claim.tenant}" {
		t.Errorf("rights %+v", rights)
	}
	if boss, err := p.Suppose(nil, "admin"); err != nil || !boss.Explain(t.Context(), "admin", Stream, "a/b", nil).May || string(boss.Claims()) != `{"role":"admin"}` {
		t.Errorf("a role alone: %v", err)
	}
	nobody, _ := p.Suppose(nil, Anonymous)
	if rights := nobody.Rights(); len(rights) != 1 || rights[0].Role != Anonymous {
		t.Errorf("rights without a token %+v", rights)
	}
	for _, wrong := range []string{"x", "[]", `{"role":1}`, `{"a":1,"a":2}`, `{"tidewire":{"allow":["x"]}}`} {
		if _, err := p.Suppose([]byte(wrong), ""); err == nil {
			t.Errorf("%s is taken for claims", wrong)
		}
	}
	if got := GrantOf("query", Events, "a*#b", []string{"t:{x}"}); got != `query events:a\*\#b#t:\{x\}` {
		t.Errorf("grant %s", got)
	} else if r, err := ParseLiteralRule(got); err != nil || !r.grants("query", Events, "a*#b") || !r.coversTags([]string{"t:{x}"}) {
		t.Errorf("%s does not grant it: %v", got, err)
	}
	if got := GrantOf("keys", Server, "", nil); got != "keys server:*" {
		t.Errorf("grant %s", got)
	}
	if !slices.Contains(Kinds()[Server], "keys") || Known("keys", Server) != nil || Known("keys", Stream) == nil || Known("x", "y") == nil {
		t.Error("the verbs")
	}
}
