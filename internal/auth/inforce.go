package auth

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Origin is where a rule of the configuration comes from.
type Origin struct {
	Role   string
	Source string // such as the name of a file; "" if it is not known
}

// InForce is a right of a caller, or a rule of the configuration.
type InForce struct {
	Rule  string // as it was written
	Bound string // with the values of the caller put in; "" if one is missing: then it grants nothing
	Origin
}

// String returns the pattern as a rule has it.
func (p pattern) String() string {
	var text strings.Builder
	for _, piece := range p {
		switch piece.kind {
		case literal:
			text.WriteString(escaper.Replace(piece.text))
		case star:
			text.WriteByte('*')
		case doubleStar:
			text.WriteString("**")
		case placeholder:
			text.WriteString("{" + piece.text + "}")
		}
	}
	return text.String()
}

var escaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `{`, `\{`, `}`, `\}`, `#`, `\#`)

// written returns the rule from its parts.
func (r *Rule) written() string {
	names := make([]string, len(r.verbs))
	for i, v := range r.verbs {
		names[i] = string(v)
	}
	text := strings.Join(names, ",") + " " + string(r.kind) + ":" + r.pattern.String()
	for _, tag := range r.tags {
		text += "#" + tag.String()
	}
	return text
}

func (r *Rule) inForce() InForce {
	is := InForce{Rule: r.text, Bound: r.written()}
	if r.origin != nil {
		is.Origin = *r.origin
	}
	return is
}

// GrantOf returns the narrowest rule that grants this.
func GrantOf(v Verb, k Kind, name string, tags []string) string {
	r := Rule{verbs: []Verb{v}, kind: k, pattern: pattern{{literal, name}}}
	if k == Server || k == Ingest {
		r.pattern = pattern{{kind: star}}
	}
	for _, tag := range tags {
		r.tags = append(r.tags, pattern{{literal, tag}})
	}
	return r.written()
}

// Kinds returns the verbs of each kind.
func Kinds() map[Kind][]Verb { return verbs }

// Known returns an error that says what there is if there is no such verb of the kind.
func Known(v Verb, k Kind) error {
	known, ok := verbs[k]
	switch {
	case !ok:
		return fmt.Errorf("kind: want one of room, user, stream, queue, events, ingest, server")
	case !slices.Contains(known, v):
		return fmt.Errorf("verb: want %s", listOf(known))
	}
	return nil
}

// Rules returns the rules of the configuration, in their order.
func (p *Policy) Rules() []InForce {
	var all []InForce
	for _, r := range p.cfg.Load().Rules {
		for _, rule := range r.Allow {
			all = append(all, InForce{Rule: rule.text, Origin: *rule.origin})
		}
	}
	return all
}

// Rights returns what a caller may do, and the rules of its role that grant it nothing because a value is missing.
func (c *Caller) Rights() []InForce {
	all := make([]InForce, 0, len(c.grants.rules))
	for i := range c.grants.rules {
		all = append(all, c.grants.rules[i].inForce())
	}
	if c.rules == nil {
		return all
	}
	value := func(string) (string, bool) { return "", false }
	if c.token != nil {
		value = c.token.Value
	}
	for _, r := range c.rules.rulesOf(c.Role, c.Kind == ByToken) {
		if _, ok := r.bind(value); !ok {
			is := r.inForce()
			is.Bound = ""
			all = append(all, is)
		}
	}
	return all
}

// Claims returns the claims of a token as JSON; of a caller without one, its user and role.
func (c *Caller) Claims() json.RawMessage {
	var text []byte
	if c.token != nil {
		text, _ = json.Marshal(c.token.all) // no value from JSON fails
	} else {
		text, _ = json.Marshal(map[string]string{"sub": c.User, "role": c.Role})
	}
	return text
}

// Asks reports whether Config.Ask is asked when no rule grants a right.
func (p *Policy) Asks() bool { return p.answers != nil }

// Suppose returns the caller that a token with these claims, a JSON object or nothing, would be. A role takes the place of that in the claims; with
// Anonymous it is the caller of a request without a token. It is for questions about rights alone: nothing is verified, and claims may be missing.
func (p *Policy) Suppose(claims []byte, role string) (*Caller, error) {
	cfg := p.cfg.Load()
	if role == Anonymous {
		return p.withoutToken(cfg), nil
	}
	if len(claims) == 0 {
		claims = []byte("{}")
	}
	all, err := decodeClaims(claims)
	if err != nil {
		return nil, err
	}
	c := &Claims{all: all}
	if err := c.rights(all); err != nil {
		return nil, err
	}
	c.Subject, _ = all["sub"].(string)
	if at := cfg.Token.roleClaim(); role != "" && !strings.Contains(at, ".") { // the function reads it there
		all[at] = role
	}
	if c.Role, err = roleOf(all, cfg.Token); err != nil {
		return nil, err
	}
	if role != "" {
		c.Role = role
	}
	caller := cfg.caller(c)
	caller.answers, caller.claims = p.answers, caller.Claims()
	return caller, nil
}

// Decision says why a caller may do something, or may not.
type Decision struct {
	May bool
	// By is the rule that grants it, or nil.
	By *InForce
	// Asked: no rule grants it, and Config.Ask was asked. Err is why it has not answered.
	Asked bool
	Err   error
}

// Explain decides as May does, or with tags as MayQuery and MayAppend do for one item or event, and says why. It asks Config.Ask anew.
func (c *Caller) Explain(ctx context.Context, v Verb, k Kind, name string, tags []string) (is Decision) {
	for i := range c.grants.rules {
		r := &c.grants.rules[i]
		if r.grants(v, k, name) && (len(r.tags) == 0 || len(tags) > 0 && r.coversTags(tags)) {
			by := r.inForce()
			return Decision{May: true, By: &by}
		}
	}
	if c.answers == nil || !askable(name) {
		return is
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	is.Asked = true
	is.May, is.Err = c.answers.ask(ctx, Question{Claims: c.claims, Verb: v, Kind: k, Name: name})
	is.May = is.May && is.Err == nil
	return is
}
