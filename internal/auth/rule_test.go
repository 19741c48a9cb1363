package auth

import (
	"strings"
	"testing"
)

func mustRules(t *testing.T, texts ...string) []Rule {
	t.Helper()
	var rules []Rule
	for _, text := range texts {
		r, err := ParseRule(text)
		if err != nil {
			t.Fatal(err)
		}
		if r.String() != text {
			t.Fatalf("%q is written %q", text, r)
		}
		rules = append(rules, r)
	}
	return rules
}

func none(string) (string, bool) { return "", false }

func TestGrants_Allow(t *testing.T) {
	t.Parallel()
	g := NewGrants(mustRules(t, "read,publish stream:orders", "join,chat room:public-*", "consume queue:**", "read stream:user/{sub}"),
		func(name string) (string, bool) { return "u7", name == "sub" })
	for _, c := range []struct {
		verb Verb
		kind Kind
		name string
		want bool
	}{
		{"read", Stream, "orders", true},
		{"publish", Stream, "orders", true},
		{"admin", Stream, "orders", false},
		{"read", Queue, "orders", false},
		{"consume", Queue, "a/b", true},
		{"join", Room, "public-1", true},
		{"presence", Room, "public-1", false},
		{"read", Stream, "user/u7", true},
		{"read", Stream, "user/u8", false},
		{"query", Events, "default", false},
	} {
		if got := g.Allow(c.verb, c.kind, c.name); got != c.want {
			t.Errorf("%s %s:%s: %v, want %v", c.verb, c.kind, c.name, got, c.want)
		}
	}
	if !g.AllowAny(Stream, "orders") || g.AllowAny(Stream, "secret") {
		t.Error("lists show what one has a right on, and nothing else")
	}
	if NewGrants(mustRules(t, "read stream:{claim.team}"), none).AllowAny(Stream, "") {
		t.Error("a rule without its claim grants something")
	}
}

func TestGrants_Tags(t *testing.T) {
	t.Parallel()
	tenant := func(name string) (string, bool) { return "7", name == "claim.tenant" }
	g := NewGrants(mustRules(t, "query events:default#tenant:{claim.tenant}", "append events:default#tenant:{claim.tenant}#app"), tenant)
	for _, c := range []struct {
		verb Verb
		sets [][]string
		want bool
	}{
		{"query", [][]string{{"tenant:7"}}, true},
		{"query", [][]string{{"tenant:7", "seat:4"}, {"a", "tenant:7"}}, true},
		{"query", [][]string{{"tenant:7"}, {"tenant:8"}}, false},
		{"query", [][]string{{}}, false},
		{"query", nil, false}, // everything
		{"append", [][]string{{"tenant:7", "app"}}, true},
		{"append", [][]string{{"tenant:7"}}, false},
	} {
		if got := g.AllowTags(c.verb, "default", c.sets); got != c.want {
			t.Errorf("%s %v: %v, want %v", c.verb, c.sets, got, c.want)
		}
	}
	if g.Allow("query", Events, "default") {
		t.Error("a rule with tags grants everything")
	}
	if !NewGrants(mustRules(t, "query events:*"), none).AllowTags("query", "default", nil) {
		t.Error("a rule without tags does not grant everything")
	}
}

func TestParseRule_Malformed(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"":                           "want VERB",
		"read":                       "want VERB",
		"read stream":                "no kind",
		"read topic:orders":          `"topic" is no kind: want events, ingest, queue, room, server, stream or user`,
		"write stream:orders":        "no verb of stream: want read, publish, commit or admin",
		"read,read stream:orders":    "twice",
		"read, publish stream:a":     "no space",
		"read stream:":               "1 to 256 bytes",
		"read stream:{user}":         "want {sub}",
		"query events:default#":      "1 to 256 bytes",
		"read stream:" + longPattern: "at most 1024",
	} {
		if _, err := ParseRule(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.60q: %v, want an error with %q", text, err, says)
		}
	}
	if _, err := ParseLiteralRule("read stream:user/{sub}"); err == nil {
		t.Error("a token's rule has a placeholder")
	}
}

var longPattern = strings.Repeat("a", MaxRule)

// FuzzParseRule: a rule is refused or can be bound and asked, whatever it says.
func FuzzParseRule(f *testing.F) {
	for _, text := range []string{"read,publish stream:orders-*", "query events:default#tenant:{claim.t}#x", `chat room:a\#b`} {
		f.Add(text, "name")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		r, err := ParseRule(text)
		if err != nil {
			return
		}
		g := NewGrants([]Rule{r}, func(string) (string, bool) { return name, true })
		for _, v := range r.verbs {
			if g.Allow(v, r.kind, name) && !g.AllowAny(r.kind, name) {
				t.Errorf("%q allows %q, and does not show it", text, name)
			}
		}
		g.AllowTags("query", name, [][]string{{name}})
	})
}

// TestGrants_IDs: with a placeholder in one of several tags, ids begin with that tag, which is the caller's own; others share the rest. Without one they
// begin with the first tag.
func TestGrants_IDs(t *testing.T) {
	t.Parallel()
	for rule, ids := range map[string]map[string]bool{
		"append events:multi#kind:x#tenant:{sub}": {"tenant:ann/1": true, "kind:x/1": false, "tenant:bob/1": false, "1": false},
		"append events:multi#kind:x#tenant:ann":   {"tenant:ann/1": false, "kind:x/1": true, "1": false},
	} {
		r, err := ParseRule(rule)
		if err != nil {
			t.Fatal(err)
		}
		g := NewGrants([]Rule{r}, func(string) (string, bool) { return "ann", true })
		for id, want := range ids {
			if got := g.AllowID("append", "multi", []string{"kind:x", "tenant:ann"}, id); got != want {
				t.Errorf("%s, %s: %v, want %v", rule, id, got, want)
			}
		}
	}
}
