package auth

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Kind is what a right is about.
type Kind string

// The kinds of things that rights are about.
const (
	Room   Kind = "room"
	Stream Kind = "stream"
	Queue  Kind = "queue"
	Events Kind = "events" // event stores
	Ingest Kind = "ingest"
	Server Kind = "server"
	User   Kind = "user"
)

// Verb is what a right allows.
type Verb string

// verbs are the verbs of each kind. docs/how-to/secure.md says what each of them covers.
var verbs = map[Kind][]Verb{
	Room:   {"join", "chat", "history", "presence", "admin"},
	User:   {"notify"},
	Stream: {"read", "publish", "commit", "admin"},
	Queue:  {"enqueue", "consume", "inspect", "admin"},
	Events: {"query", "append", "admin"},
	Ingest: {"write"},
	Server: {"metrics", "console", "connections", "keys", "schedules", "bench", "profile"},
}

// MaxRule is the longest rule in bytes.
const MaxRule = 1024

// Rule grants something: "<verb>[,<verb>…] <kind>:<pattern>", such as "read,publish stream:orders-*". A rule for event stores may end with tags, each after a
// '#': "query events:default#tenant:{claim.tenant}" allows queries of which every item has that tag. There are no rules that deny.
type Rule struct {
	verbs   []Verb
	kind    Kind
	pattern pattern
	tags    []pattern
	owners  []pattern // those of tags that had a placeholder
	text    string
	origin  *Origin // of a rule of the configuration
}

// String returns the rule as it was written.
func (r Rule) String() string { return r.text }

// Without returns the rule as it is written without a verb of a kind: "" if it has no other.
func (r Rule) Without(k Kind, v Verb) string {
	if r.kind != k || !slices.Contains(r.verbs, v) {
		return r.text
	}
	r.verbs = slices.DeleteFunc(slices.Clone(r.verbs), func(have Verb) bool { return have == v })
	if len(r.verbs) == 0 {
		return ""
	}
	return r.written()
}

// ParseRule parses a rule that may have placeholders, as rules of the configuration do.
func ParseRule(text string) (Rule, error) {
	fail := func(format string, args ...any) (Rule, error) {
		return Rule{}, fmt.Errorf("rule %q: %s", text, fmt.Sprintf(format, args...))
	}
	if len(text) > MaxRule {
		return Rule{}, fmt.Errorf("rule of %d bytes: want at most %d", len(text), MaxRule)
	}
	list, object, ok := strings.Cut(text, " ")
	if !ok {
		return fail("want VERB,… KIND:PATTERN, such as read stream:orders")
	}
	kindName, rest, ok := strings.Cut(object, ":")
	known, isKind := verbs[Kind(kindName)]
	if !ok || !isKind {
		if strings.HasSuffix(list, ",") {
			return fail("no space after the comma between verbs, such as read,commit stream:orders")
		}
		return fail("%q is no kind: want %s", kindName, listOf(slices.Sorted(maps.Keys(verbs))))
	}
	r := Rule{kind: Kind(kindName), text: text}
	for name := range strings.SplitSeq(list, ",") {
		v := Verb(name)
		switch {
		case !slices.Contains(known, v):
			return fail("%q is no verb of %s: want %s", name, kindName, listOf(known))
		case slices.Contains(r.verbs, v):
			return fail("%q is there twice", name)
		}
		r.verbs = append(r.verbs, v)
	}
	if (r.kind == Server || r.kind == Ingest) && rest != "*" && rest != "**" {
		return fail("there is one %s: want %s:*", kindName, kindName)
	}
	names := []string{rest}
	if r.kind == Events {
		names = splitTags(rest)
	}
	for i, name := range names {
		p, err := parsePattern(name)
		if err != nil {
			return fail("%v", err)
		}
		if i == 0 {
			r.pattern = p
			continue
		}
		r.tags = append(r.tags, p)
	}
	return r, nil
}

// ParseLiteralRule parses a rule of a token or API key, which has no placeholders: what it is about is known to the one who wrote it.
func ParseLiteralRule(text string) (Rule, error) {
	r, err := ParseRule(text)
	if err != nil {
		return r, err
	}
	for _, p := range append([]pattern{r.pattern}, r.tags...) {
		if p.hasPlaceholder() {
			return Rule{}, fmt.Errorf("rule %q: write the name itself: placeholders are for rules of the configuration", text)
		}
	}
	return r, nil
}

// splitTags splits at each '#' that has no backslash before it.
func splitTags(text string) []string {
	var names []string
	begin := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '#':
			names, begin = append(names, text[begin:i]), i+1
		}
	}
	return append(names, text[begin:])
}

// bind returns the rule with the values of its placeholders, or false if one of them cannot be put in.
func (r Rule) bind(value func(name string) (string, bool)) (Rule, bool) {
	var ok bool
	if r.pattern, ok = r.pattern.bind(value); !ok {
		return r, false
	}
	tags := make([]pattern, len(r.tags))
	for i, p := range r.tags {
		if tags[i], ok = p.bind(value); !ok {
			return r, false
		}
	}
	for i, p := range r.tags {
		if p.hasPlaceholder() {
			r.owners = append(slices.Clip(r.owners), tags[i])
		}
	}
	r.tags = tags
	return r, true
}

// grants reports whether the rule is about this, whatever its tags.
func (r Rule) grants(v Verb, k Kind, name string) bool {
	return r.kind == k && slices.Contains(r.verbs, v) && r.pattern.match(name)
}

// coversTags reports whether a set of tags has one that matches each of the rule's.
func (r Rule) coversTags(tags []string) bool {
	for _, p := range r.tags {
		if !slices.ContainsFunc(tags, p.match) {
			return false
		}
	}
	return true
}

// ownsID reports whether an id begins with one of the tags that make the caller different from others, and a slash: those of the rule with a
// placeholder, or its first one.
func (r Rule) ownsID(tags []string, id string) bool {
	owners := r.owners
	if len(owners) == 0 {
		owners = r.tags[:1]
	}
	return slices.ContainsFunc(tags, func(tag string) bool {
		return strings.HasPrefix(id, tag+"/") && slices.ContainsFunc(owners, func(p pattern) bool { return p.match(tag) })
	})
}

// listOf is "a, b or c".
func listOf[T ~string](names []T) string {
	texts := make([]string, len(names))
	for i, n := range names {
		texts[i] = string(n)
	}
	last := len(texts) - 1
	if last == 0 {
		return texts[0]
	}
	return strings.Join(texts[:last], ", ") + " or " + texts[last]
}
