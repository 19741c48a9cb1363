package auth

// Grants are the rules of one caller, with the values of its token put in. They never change: a new token has new Grants. Safe for concurrent use.
type Grants struct{ rules []Rule }

// NewGrants binds the rules to the values of placeholders. Rules for which a value is missing grant nothing.
func NewGrants(rules []Rule, value func(name string) (string, bool)) *Grants {
	g := &Grants{rules: make([]Rule, 0, len(rules))}
	for _, r := range rules {
		if bound, ok := r.bind(value); ok {
			g.rules = append(g.rules, bound)
		}
	}
	return g
}

// Allow reports whether a rule without tags grants the verb on the name.
func (g *Grants) Allow(v Verb, k Kind, name string) bool {
	for i := range g.rules {
		if r := &g.rules[i]; len(r.tags) == 0 && r.grants(v, k, name) {
			return true
		}
	}
	return false
}

// AllowTags reports whether the verb is granted on an event store for each of the sets of tags: the items of a query, or the events of an append. Each set needs
// one rule whose tags it has. No set is a query of everything, which needs a rule without tags.
func (g *Grants) AllowTags(v Verb, store string, sets [][]string) bool {
	if g.Allow(v, Events, store) {
		return true
	}
	for _, tags := range sets {
		if !g.allowsSet(v, store, tags) {
			return false
		}
	}
	return len(sets) > 0
}

func (g *Grants) allowsSet(v Verb, store string, tags []string) bool {
	for i := range g.rules {
		if r := &g.rules[i]; r.grants(v, Events, store) && r.coversTags(tags) {
			return true
		}
	}
	return false
}

// AllowID reports whether the verb is granted on an event store without tags, or for these tags, and then the id begins with one of those that the
// rule names, and a slash.
func (g *Grants) AllowID(v Verb, store string, tags []string, id string) bool {
	for i := range g.rules {
		if r := &g.rules[i]; r.grants(v, Events, store) && (len(r.tags) == 0 || r.coversTags(tags) && r.ownsID(tags, id)) {
			return true
		}
	}
	return false
}

// AllowAny reports whether any verb is granted on the name: what is listed to a caller.
func (g *Grants) AllowAny(k Kind, name string) bool {
	for i := range g.rules {
		if r := &g.rules[i]; r.kind == k && r.pattern.match(name) {
			return true
		}
	}
	return false
}
