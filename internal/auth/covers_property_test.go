package auth

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// ruleMaker makes random rules, and things that rules are about.
type ruleMaker struct{ *rand.Rand }

func (m ruleMaker) one(of ...string) string { return of[m.IntN(len(of))] }

func (m ruleMaker) some(most int, of ...string) string {
	var text strings.Builder
	for range 1 + m.IntN(most) {
		text.WriteString(m.one(of...))
	}
	return text.String()
}

func (m ruleMaker) kind() Kind {
	return []Kind{Room, User, Stream, Queue, Events, Events, Events, Ingest, Server}[m.IntN(9)]
}

// rule makes a rule of few letters, so that many rules overlap.
func (m ruleMaker) rule() string {
	kind := m.kind()
	var list []string
	for _, v := range verbs[kind] {
		if m.IntN(2) == 0 {
			list = append(list, string(v))
		}
	}
	if list == nil {
		list = []string{string(verbs[kind][0])}
	}
	pattern := func() string { return m.some(3, "a", "/", "*", "**", `\*`, `\#`, "é") }
	text := strings.Join(list, ",") + " " + string(kind) + ":"
	if kind == Server || kind == Ingest {
		return text + m.one("*", "**")
	}
	text += pattern()
	if kind == Events {
		for range m.IntN(3) {
			text += "#" + pattern()
		}
	}
	return text
}

func (m ruleMaker) rules(t *testing.T, most int) []Rule {
	var all []Rule
	for range 1 + m.IntN(most) {
		text := m.rule()
		r, err := ParseLiteralRule(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		all = append(all, r)
	}
	return all
}

func (m ruleMaker) name() string { return m.some(4, "a", "/", "*", "#", "é", "\xc3") }

func (m ruleMaker) sets() (sets [][]string) {
	for range m.IntN(3) {
		var tags []string
		for range m.IntN(4) {
			tags = append(tags, m.name())
		}
		sets = append(sets, tags)
	}
	return sets
}

// TestCaller_LacksNothing: if a caller lacks none of the rules of a key, the key may do nothing that the caller may not, whatever it asks for.
func TestCaller_LacksNothing(t *testing.T) {
	t.Parallel()
	m := ruleMaker{rand.New(rand.NewPCG(3, 4))}
	given, granted := 0, 0
	for range 20_000 {
		own, wanted := m.rules(t, 4), m.rules(t, 2)
		caller := &Caller{grants: &Grants{rules: own}}
		if caller.Lacks(wanted) != "" {
			continue
		}
		given++
		key := &Grants{rules: wanted}
		for range 20 {
			kind, name, sets := m.kind(), m.name(), m.sets()
			if kind == Server || kind == Ingest {
				name = ""
			}
			v := verbs[kind][m.IntN(len(verbs[kind]))]
			var tags []string
			if len(sets) > 0 {
				tags = sets[0]
			}
			id := m.name()
			if len(tags) > 0 {
				id = tags[m.IntN(len(tags))] + "/" + id
			}
			for what, may := range map[string]func(*Grants) bool{
				"allow": func(g *Grants) bool { return g.Allow(v, kind, name) },
				"tags":  func(g *Grants) bool { return g.AllowTags(v, name, sets) },
				"id":    func(g *Grants) bool { return g.AllowID(v, name, tags, id) },
				"see":   func(g *Grants) bool { return g.AllowAny(kind, name) },
			} {
				if !may(key) {
					continue
				}
				granted++
				if !may(caller.grants) {
					t.Fatalf("%s: a caller with %v has given %v, which alone grants %s %s:%q %q, id %q", what, fmt.Sprint(own), fmt.Sprint(wanted), v, kind, name, sets, id)
				}
			}
		}
	}
	if given < 150 || granted < 1500 {
		t.Errorf("only %d keys, %d rights", given, granted)
	}
}
