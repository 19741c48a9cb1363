package auth

import (
	"context"
	"fmt"
	"slices"
)

// Lacks returns the first of the rules that grants something which no single rule of the caller grants, or "". The answers of Config.Ask do not count:
// they are for one name each. It errs on the safe side: what several rules grant only together counts as lacking.
func (c *Caller) Lacks(rules []Rule) string {
	for i := range rules {
		if !c.grants.cover(&rules[i]) {
			return rules[i].text
		}
	}
	return ""
}

// ParseLiteralRules parses rules without placeholders.
func ParseLiteralRules(texts []string) ([]Rule, error) {
	rules := make([]Rule, len(texts))
	for i, text := range texts {
		var err error
		if rules[i], err = ParseLiteralRule(text); err != nil {
			return nil, err
		}
	}
	return rules, nil
}

// MayName reports whether the caller may make an API key of that name. What Config.Ask grants to a key depends on its name, and nobody knows it before: so
// Config.Ask decides on names, with the verb keys of the kind server. Without it every name is free.
func (c *Caller) MayName(ctx context.Context, name string) (bool, error) {
	if c.answers == nil {
		return true, nil
	}
	return c.ask(ctx, "keys", Server, name)
}

// cover reports whether each verb of a rule is granted by a rule that covers the rest of it.
func (g *Grants) cover(r *Rule) bool {
	return !slices.ContainsFunc(r.verbs, func(v Verb) bool {
		return !slices.ContainsFunc(g.rules, func(own Rule) bool { return own.covers(v, r) })
	})
}

// covers reports whether the rule grants all that another one grants with a verb.
func (r *Rule) covers(v Verb, other *Rule) bool {
	if r.kind != other.kind || !slices.Contains(r.verbs, v) {
		return false
	}
	if r.kind != Server && r.kind != Ingest && !r.pattern.includes(other.pattern) { // of these two there is one each
		return false
	}
	for _, tag := range r.tags { // what has all tags of the other one has this one
		if !slices.ContainsFunc(other.tags, tag.includes) {
			return false
		}
	}
	if v != "append" || len(r.tags) == 0 {
		return true
	}
	owners := r.owners // the ids of events are those of the first tag of the other one, which has no placeholder: see ownsID
	if len(owners) == 0 {
		owners = r.tags[:1]
	}
	return slices.ContainsFunc(owners, func(p pattern) bool { return p.includes(other.tags[0]) })
}

// includes reports whether the bound pattern matches every name that another one matches. It reads the other one as a name that has two more letters, its
// wildcards: '*' stands for any of its letters but '/' and "**", and "**" for any. So it never says yes wrongly. It takes time in proportion to the length of
// both.
func (p pattern) includes(other pattern) bool {
	name := lettersOf(other)
	at := make([]bool, len(name)+1) // at[i]: the parts so far match name[:i]
	at[0] = true
	for _, piece := range p {
		next := make([]bool, len(at))
		switch piece.kind {
		case literal:
			for i, here := range at {
				if here && beginsWith(name[i:], piece.text) {
					next[i+len(piece.text)] = true
				}
			}
		case star, doubleStar:
			reached := false
			for i := range next {
				if i > 0 && piece.kind == star && (name[i-1] == '/' || name[i-1] == anyBytes) {
					reached = false
				}
				reached = reached || at[i]
				next[i] = reached
			}
		case placeholder: // never bound: matches nothing
		}
		at = next
	}
	return at[len(name)]
}

// The letters that wildcards are in lettersOf, beside the 256 bytes.
const (
	anyButSlash = 256 + iota
	anyBytes
)

func lettersOf(p pattern) (name []int) {
	for _, piece := range p {
		switch piece.kind {
		case literal:
			for i := range len(piece.text) {
				name = append(name, int(piece.text[i]))
			}
		case star:
			name = append(name, anyButSlash)
		default:
			name = append(name, anyBytes)
		}
	}
	return name
}

func beginsWith(name []int, text string) bool {
	if len(name) < len(text) {
		return false
	}
	for i := range len(text) {
		if name[i] != int(text[i]) {
			return false
		}
	}
	return true
}

// CheckKey returns why a key of that name and with these rights cannot be made, and its rules.
func CheckKey(name string, allow []string) ([]Rule, error) {
	if len(allow) > maxKeyRules {
		return nil, fmt.Errorf("allow: want at most %d rules", maxKeyRules)
	}
	if err := checkKeyName(name, allow); err != nil {
		return nil, err
	}
	for _, text := range allow {
		if !askable(text) {
			return nil, fmt.Errorf("rule %q: want UTF-8 without NUL, which no database can store", text)
		}
	}
	return ParseLiteralRules(allow)
}

// maxKeyRules bounds the rules of a key that is made over HTTP.
const maxKeyRules = 100
