package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// jsonReader is the reader of JSON. It accepts exactly what encoding/json accepts, apart from bytes that are no
// UTF-8: a fuzz test compares them.
type jsonReader struct {
	state
	first bool // nothing of the innermost object or array has been read
}

// reset begins a message. It notes an error if that is no UTF-8, or no object.
func (r *jsonReader) reset(message []byte, limits Limits) {
	*r = jsonReader{state: state{message: message, limits: limits}}
	switch trimmed := bytes.TrimLeft(message, " \t\r\n"); {
	case len(trimmed) == 0 || trimmed[0] != '{':
		r.fail(&Error{Text: "want a JSON object", Broken: true})
	case !utf8.Valid(message):
		r.fail(&Error{Text: "not UTF-8: want JSON, which is UTF-8", Broken: true})
	}
}

// broken notes that the message is no JSON. encoding/json says why.
func (r *jsonReader) broken() bool {
	if r.err != nil {
		return false
	}
	e := &Error{Text: "not JSON", Broken: true}
	if syntax := syntaxError(r.message); syntax != nil {
		e.Text = fmt.Sprintf("not JSON: %s, at byte %d", syntax, syntax.Offset)
	}
	r.fail(e)
	return false
}

// orBroken returns the error, unless the message is no JSON after that place: that is said first. What encoding/json finds too deep
// is JSON.
func (r *jsonReader) orBroken(e *Error) *Error {
	if syntax := syntaxError(r.message); syntax == nil || strings.Contains(syntax.Error(), "max depth") {
		return e
	}
	r.err = nil
	r.broken()
	return r.err
}

func syntaxError(text []byte) *json.SyntaxError {
	syntax, _ := json.Unmarshal(text, new(json.RawMessage)).(*json.SyntaxError)
	return syntax
}

func (r *jsonReader) ignore(name []byte) {
	r.noteUnknown(name)
	r.skip()
}

func (r *jsonReader) space() {
	for r.i < len(r.message) {
		switch r.message[r.i] {
		case ' ', '\t', '\r', '\n':
			r.i++
		default:
			return
		}
	}
}

// next returns the first byte of the next value or punctuation mark, 0 at the end.
func (r *jsonReader) next() byte {
	if r.i < len(r.message) && r.message[r.i] > ' ' {
		return r.message[r.i]
	}
	r.space()
	if r.i >= len(r.message) {
		return 0
	}
	return r.message[r.i]
}

// open enters an object or array, whose first byte is given.
func (r *jsonReader) open(with byte, what string) bool {
	if r.next() != with {
		r.wants(what)
		return false
	}
	if !r.begin() || !r.enter() {
		return false
	}
	r.i++
	r.first = true
	return true
}

// follows reports whether there is one more field or element, and reads the comma before it.
func (r *jsonReader) follows(last byte) bool {
	c := r.next()
	switch {
	case c == last:
		r.i++
		r.depth--
		r.first = false
		return false
	case r.first:
		r.first = false
		return r.err == nil
	case c != ',':
		return r.broken()
	}
	r.i++
	if r.next() == last { // a comma after the last one
		return r.broken()
	}
	return true
}

func (r *jsonReader) object() bool  { return r.open('{', "an object") }
func (r *jsonReader) array() bool   { return r.open('[', "an array") }
func (r *jsonReader) element() bool { return r.follows(']') }
func (r *jsonReader) bytes() bool   { return false }

func (r *jsonReader) name() ([]byte, bool) {
	if !r.follows('}') {
		return nil, false
	}
	if r.next() != '"' {
		return nil, r.broken()
	}
	name, ok := r.quoted()
	if !ok || r.next() != ':' {
		return nil, r.broken()
	}
	r.i++
	return name, true
}

func (r *jsonReader) null() bool { return r.next() == 'n' && r.begin() && r.literal("null") }

// literal reads a word of JSON.
func (r *jsonReader) literal(word string) bool {
	if len(r.message)-r.i < len(word) || string(r.message[r.i:r.i+len(word)]) != word {
		return r.broken()
	}
	r.i += len(word)
	return true
}

func (r *jsonReader) text() ([]byte, bool) {
	if r.next() != '"' {
		r.wants("a string")
		return nil, false
	}
	return r.quoted()
}

func (r *jsonReader) data() ([]byte, bool) { return r.text() }

func (r *jsonReader) boolean() (value, ok bool) {
	switch r.next() {
	case 't':
		return true, r.begin() && r.literal("true")
	case 'f':
		return false, r.begin() && r.literal("false")
	}
	r.wants("true or false")
	return false, false
}

func (r *jsonReader) integer() (int64, bool) {
	c := r.next()
	if c != '-' && (c < '0' || c > '9') {
		r.wants(wantInteger)
		return 0, false
	}
	number, ok := r.number()
	if !ok {
		return 0, false
	}
	n, ok := parseInteger(number)
	if !ok {
		r.wants(wantInteger)
	}
	return n, ok
}

const wantInteger = "a whole number of 64 bits"

// parseInteger reads a number of JSON that has neither fraction nor exponent.
func parseInteger(number []byte) (n int64, ok bool) {
	negative := number[0] == '-'
	if negative {
		number = number[1:]
	}
	most := uint64(math.MaxInt64)
	if negative {
		most++
	}
	var u uint64
	for _, c := range number {
		if c < '0' || c > '9' || u > most/10 {
			return 0, false
		}
		if u = u*10 + uint64(c-'0'); u > most {
			return 0, false
		}
	}
	if negative {
		return int64(-u), true
	}
	return int64(u), true
}

// number reads a number: -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?
func (r *jsonReader) number() ([]byte, bool) {
	if !r.begin() {
		return nil, false
	}
	from := r.i
	if r.message[r.i] == '-' {
		r.i++
	}
	if r.i < len(r.message) && r.message[r.i] == '0' {
		r.i++
	} else if !r.digits() {
		return nil, r.broken()
	}
	if r.i < len(r.message) && r.message[r.i] == '.' {
		if r.i++; !r.digits() {
			return nil, r.broken()
		}
	}
	if r.i < len(r.message) && r.message[r.i]|0x20 == 'e' {
		r.i++
		if r.i < len(r.message) && (r.message[r.i] == '+' || r.message[r.i] == '-') {
			r.i++
		}
		if !r.digits() {
			return nil, r.broken()
		}
	}
	return r.message[from:r.i], true
}

// digits reads one digit or more.
func (r *jsonReader) digits() bool {
	from := r.i
	for r.i < len(r.message) && r.message[r.i] >= '0' && r.message[r.i] <= '9' {
		r.i++
	}
	return r.i > from
}

func (r *jsonReader) scalar() ([]byte, bool) {
	c, from := r.next(), r.i
	switch {
	case c == '"':
		if _, ok := r.quoted(); !ok {
			return nil, false
		}
	case c == '-' || c >= '0' && c <= '9':
		return r.number()
	default:
		r.wants("a string or number")
		return nil, false
	}
	return r.message[from:r.i], true
}

func (r *jsonReader) json() ([]byte, bool) {
	r.next()
	from := r.i
	if !r.skip() {
		return nil, false
	}
	return r.message[from:r.i:r.i], true
}

// skip reads any value. It calls itself no deeper than Limits.Depth.
func (r *jsonReader) skip() bool {
	switch c := r.next(); c {
	case '{':
		r.object()
		for {
			if _, ok := r.name(); !ok {
				return r.err == nil
			}
			if !r.skip() {
				return false
			}
		}
	case '[':
		r.array()
		for r.element() {
			if !r.skip() {
				return false
			}
		}
		return r.err == nil
	case 'n':
		return r.null()
	case 't', 'f':
		_, ok := r.boolean()
		return ok
	default:
		if c != '"' && c != '-' && (c < '0' || c > '9') {
			return r.broken()
		}
		_, ok := r.scalar()
		return ok
	}
}

func (r *jsonReader) end() bool {
	if r.err == nil && r.next() != 0 || r.i < len(r.message) {
		return r.broken()
	}
	return r.err == nil
}
