package auth

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxPattern is the longest pattern of a rule in bytes. Names have at most 128.
const MaxPattern = 256

// usualName is the longest name in bytes for which match needs no memory: all names, and most tags.
const usualName = 128

// maxPlaceholder is the longest value in bytes that is put in for a placeholder.
const maxPlaceholder = 128

// part is one piece of a pattern: a literal, a wildcard or a placeholder.
type part struct {
	kind partKind
	text string // of a literal; of a placeholder its name
}

type partKind uint8

const (
	literal     partKind = iota
	star                 // any bytes but '/'
	doubleStar           // any bytes
	placeholder          // the value of a claim
)

// pattern matches names byte for byte. '*' stands for any bytes but '/', '**' for any bytes, "{sub}" and "{claim.x}" for a value of the caller's token.
// A backslash takes the next byte literally.
type pattern []part

// parsePattern splits the text before any value is put in: a value can never become a wildcard.
func parsePattern(text string) (pattern, error) {
	if text == "" || len(text) > MaxPattern || !utf8.ValidString(text) {
		return nil, fmt.Errorf("pattern %q: want 1 to %d bytes of UTF-8", text, MaxPattern)
	}
	var (
		parts pattern
		plain []byte
	)
	flush := func() {
		if len(plain) > 0 {
			parts, plain = append(parts, part{literal, string(plain)}), nil
		}
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '\\':
			if i++; i == len(text) {
				return nil, fmt.Errorf("pattern %q: nothing comes after the last backslash", text)
			}
			plain = append(plain, text[i])
		case '*':
			flush()
			if i+1 < len(text) && text[i+1] == '*' {
				i++
				parts = append(parts, part{doubleStar, ""})
				continue
			}
			parts = append(parts, part{star, ""})
		case '{':
			end := strings.IndexByte(text[i:], '}')
			if end < 0 {
				return nil, fmt.Errorf("pattern %q: a { without }; a literal brace is \\{", text)
			}
			name := text[i+1 : i+end]
			if name != "sub" && !validClaimPath(name) {
				return nil, fmt.Errorf("pattern %q: want {sub} or {claim.NAME} in place of {%s}", text, name)
			}
			flush()
			parts = append(parts, part{placeholder, name})
			i += end
		case '}':
			return nil, fmt.Errorf("pattern %q: a } without {; a literal brace is \\}", text)
		default:
			plain = append(plain, c)
		}
	}
	flush()
	return parts, nil
}

// validClaimPath reports whether a placeholder is "claim." and a path of names with dots between them.
func validClaimPath(name string) bool {
	path, ok := strings.CutPrefix(name, "claim.")
	if !ok {
		return false
	}
	for step := range strings.SplitSeq(path, ".") {
		if step == "" || strings.ContainsAny(step, "{}*\\/# ") {
			return false
		}
	}
	return true
}

// bind returns the pattern with the values of the placeholders as literals. It returns false if a value is missing, empty, too long or has a '/': then the
// pattern matches nothing.
func (p pattern) bind(value func(name string) (string, bool)) (pattern, bool) {
	bound := make(pattern, len(p))
	for i, piece := range p {
		if piece.kind == placeholder {
			v, ok := value(piece.text)
			if !ok || v == "" || len(v) > maxPlaceholder || strings.Contains(v, "/") {
				return nil, false
			}
			piece = part{literal, v}
		}
		bound[i] = piece
	}
	return bound, true
}

func (p pattern) hasPlaceholder() bool {
	return slices.ContainsFunc(p, func(piece part) bool { return piece.kind == placeholder })
}

// match reports whether the bound pattern matches all of the name. It takes time in proportion to the length of both, whatever they are: it keeps the set of
// positions that the pattern so far can end at (a simulation of the nondeterministic automaton), and never goes back.
func (p pattern) match(name string) bool {
	if len(p) == 1 && p[0].kind == literal {
		return name == p[0].text
	}
	var memory [2 * (usualName + 1)]bool // on the stack
	states := memory[:]
	if len(name) > usualName {
		states = make([]bool, 2*(len(name)+1))
	}
	at, next := states[:len(name)+1], states[len(name)+1:2*(len(name)+1)] // at[i]: the parts so far match name[:i]
	at[0] = true
	for _, piece := range p {
		clear(next)
		alive := false
		switch piece.kind {
		case literal:
			for i, here := range at {
				if here && strings.HasPrefix(name[i:], piece.text) {
					next[i+len(piece.text)], alive = true, true
				}
			}
		case star, doubleStar:
			reached := false
			for i := range next {
				if i > 0 && piece.kind == star && name[i-1] == '/' {
					reached = false
				}
				reached = reached || at[i]
				next[i], alive = reached, alive || reached
			}
		case placeholder: // never bound: matches nothing
		}
		if !alive {
			return false
		}
		at, next = next, at
	}
	return at[len(name)]
}
