package auth

import (
	"strings"
	"testing"
)

func TestPattern(t *testing.T) {
	t.Parallel()
	sub := func(value string) func(string) (string, bool) {
		return func(name string) (string, bool) { return value, name == "sub" }
	}
	for _, c := range []struct {
		pattern, sub, name string
		want               bool
	}{
		{"orders", "", "orders", true},
		{"orders", "", "orders/3", false},
		{"orders", "", "Orders", false},
		{"*", "", "orders", true},
		{"*", "", "", true}, // names are never empty
		{"*", "", "a/b", false},
		{"**", "", "a/b/c", true},
		{"a/*/c", "", "a/b/c", true},
		{"a/*/c", "", "a/b/b/c", false},
		{"a/**/c", "", "a/b/b/c", true},
		{"a**", "", "a", true},
		{"public-*", "", "public-", true},
		{"*-public", "", "a-b-public", true},
		{"*a*b*", "", "xxaxxbxx", true},
		{"*a*b*", "", "xxbxxaxx", false},
		{`\*`, "", "*", true},
		{`\*`, "", "x", false},
		{`\{sub\}`, "x", "{sub}", true},
		{"dm/{sub}/*", "alice", "dm/alice/bob", true},
		{"dm/{sub}/*", "alice", "dm/alice-1/bob", false},
		{"dm-{sub}-*", "alice", "dm-alice-1-bob", true}, // why the documents say to put slashes around {sub}
		{"dm-{sub}-*", "*", "dm-bob-1", false},
		{"dm-{sub}-*", "*", "dm-*-1", true},
		{"dm-{sub}-*", "**", "dm-bob-1", false},
		{"{sub}", "{sub}", "{sub}", true},
		{"{sub}", "%2F", "/", false},
		{"{sub}", "ａdmin", "admin", false},    // no folding of width
		{"{sub}", "e\u0301", "\u00e9", false}, // no normalisation
	} {
		p, err := parsePattern(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		bound, ok := p.bind(sub(c.sub))
		if !ok {
			t.Fatalf("%s with %q: not bound", c.pattern, c.sub)
		}
		if got := bound.match(c.name); got != c.want {
			t.Errorf("%s with sub %q matches %q: %v, want %v", c.pattern, c.sub, c.name, got, c.want)
		}
	}
	any, err := parsePattern("a*")
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 * usualName { // on the stack, and not
		if name := strings.Repeat("a", n+1); !any.match(name) || any.match(name+"/") {
			t.Errorf("a name of %d bytes", n+1)
		}
	}
}

// TestPattern_Values: a value that could reach beyond its place has its rule match nothing.
func TestPattern_Values(t *testing.T) {
	t.Parallel()
	p, err := parsePattern("room/{sub}/{claim.tenant.id}")
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"", "a/b", "/", strings.Repeat("x", 129)} {
		if _, ok := p.bind(func(string) (string, bool) { return value, true }); ok {
			t.Errorf("%q was put in", value)
		}
	}
	if _, ok := p.bind(func(name string) (string, bool) { return "a", name == "sub" }); ok {
		t.Error("a claim that is missing was put in")
	}
	if p.match("room//") || p.match("room/{sub}/{claim.tenant.id}") {
		t.Error("a pattern without its values matches")
	}
}

func TestPattern_Malformed(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", `a\`, "{", "}", "{}", "{user}", "{claim.}", "{claim.a..b}", "{sub", "a}b", "{claim.a*}", "\xff", strings.Repeat("a", 257)} {
		if _, err := parsePattern(text); err == nil {
			t.Errorf("%q is a pattern", text)
		}
	}
}

// matchNaive is the definition of match: try every way.
func matchNaive(p pattern, name string) bool {
	if len(p) == 0 {
		return name == ""
	}
	switch p[0].kind {
	case literal:
		rest, ok := strings.CutPrefix(name, p[0].text)
		return ok && matchNaive(p[1:], rest)
	case placeholder:
		return false
	}
	for i := 0; ; i++ {
		if matchNaive(p[1:], name[i:]) {
			return true
		}
		if i == len(name) || p[0].kind == star && name[i] == '/' {
			return false
		}
	}
}

// FuzzPattern: match is what its definition says, and parsing fails or gives a pattern that binds to itself where it has no placeholders.
func FuzzPattern(f *testing.F) {
	for _, text := range []string{"orders", "a/*/c", "**", `\*x`, "dm/{sub}/*", "{claim.a.b}", "*a*b*"} {
		f.Add(text, "a/b/c")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		p, err := parsePattern(text)
		if err != nil || len(p) > 8 || len(name) > 20 {
			return
		}
		if got, want := p.match(name), matchNaive(p, name); got != want {
			t.Errorf("%q matches %q: %v, want %v", text, name, got, want)
		}
	})
}
