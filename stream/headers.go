package stream

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Limits of jsonb and of programs that read it; JSON itself has none of them.
const (
	maxNesting  = 64  // PostgreSQL's parser uses its stack
	maxNumber   = 400 // characters; every float64 can be written with fewer
	maxExponent = 308 // of float64; the type numeric would store all the zeros
)

// validHeaders checks that text is a JSON object that jsonb can hold.
func validHeaders(text []byte) error {
	switch {
	case len(text) > MaxHeaders:
		return invalid("headers", "%d bytes, want at most %d", len(text), MaxHeaders)
	case !json.Valid(text) || !utf8.Valid(text):
		return invalid("headers", "not JSON in UTF-8")
	case bytes.TrimLeft(text, " \t\r\n")[0] != '{':
		return invalid("headers", "not a JSON object")
	}
	depth := 0
	for i := 0; i < len(text); {
		rest := text[i:]
		switch c := rest[0]; {
		case c == '"':
			n := stringLen(rest)
			if !validEscapes(rest[:n]) {
				return invalid("headers", "a string with U+0000 or half a surrogate pair")
			}
			i += n
			continue
		case c == '-' || '0' <= c && c <= '9':
			n := numberLen(rest)
			if !validNumber(rest[:n]) {
				return invalid("headers", "a number out of range")
			}
			i += n
			continue
		case c == '{' || c == '[':
			if depth++; depth > maxNesting {
				return invalid("headers", "nested deeper than %d", maxNesting)
			}
		case c == '}' || c == ']':
			depth--
		}
		i++
	}
	return nil
}

// stringLen is the length of the JSON string that text begins with.
func stringLen(text []byte) int {
	for i := 1; ; i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
}

// validEscapes reports whether every \u escape of a JSON string is a character
// other than U+0000, or a complete surrogate pair.
func validEscapes(s []byte) bool {
	for {
		at := bytes.IndexByte(s, '\\')
		if at < 0 {
			return true
		}
		s = s[at:]
		if s[1] != 'u' {
			s = s[2:]
			continue
		}
		r := escaped(s)
		s = s[6:]
		if r == 0 {
			return false
		}
		if !utf16.IsSurrogate(r) {
			continue
		}
		if !bytes.HasPrefix(s, []byte(`\u`)) || utf16.DecodeRune(r, escaped(s)) == utf8.RuneError {
			return false
		}
		s = s[6:]
	}
}

// escaped returns the XXXX of the \uXXXX that s begins with.
func escaped(s []byte) rune {
	v, _ := strconv.ParseUint(string(s[2:6]), 16, 16) // json.Valid has checked the digits
	return rune(v)
}

// numberLen is the length of the JSON number that text begins with.
func numberLen(text []byte) int {
	return len(text) - len(bytes.TrimLeft(text, "+-.0123456789eE"))
}

func validNumber(s []byte) bool {
	if len(s) > maxNumber {
		return false
	}
	at := bytes.IndexAny(s, "eE")
	if at < 0 {
		return true
	}
	exponent, err := strconv.Atoi(string(s[at+1:]))
	return err == nil && -maxExponent <= exponent && exponent <= maxExponent
}
