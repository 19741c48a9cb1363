package gateway

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"
)

// problem is why a message is refused: a code, and its own text if the code's
// text is not specific enough.
type problem struct {
	code code
	text string
	need need // the right that is missing, of codeForbidden
	// field is the path of the field that it is about, if the client gets it.
	field string
	// cause is for the audit log alone.
	cause error
}

// because returns a problem with the code's text, or nil if why is empty.
func because(why code) *problem {
	if why == "" {
		return nil
	}
	return &problem{code: why}
}

// wrong returns the problem of a field with an invalid value.
func wrong(why code, field, want string) *problem {
	return &problem{code: why, text: field + ": want " + want}
}

// malformed returns the problem of a field with a wrong type.
func malformed(field, want string) *problem { return wrong(codeMalformed, field, want) }

// unusable returns why a client may not use a name that it gives in a field, or nil.
func unusable(field, name string) *problem {
	if usable(name) {
		return nil
	}
	return wrong(codeName, field, fmt.Sprintf("a name of 1 to %d bytes without NUL, which does not begin with tidewire.", maxNameBytes))
}

// wantedTime is what a field that is a time wants.
const wantedTime = "a time as RFC 3339 writes it, such as 2027-01-31T12:00:00Z"

// moment is a time in a body. Its error has the path of the field, which that of time.Time lacks.
type moment struct{ time.Time }

// UnmarshalJSON implements json.Unmarshaler.
func (m *moment) UnmarshalJSON(text []byte) error {
	if m.Time.UnmarshalJSON(text) != nil {
		return &json.UnmarshalTypeError{Value: "string", Type: reflect.TypeFor[time.Time]()}
	}
	return nil
}

// tooLarge is the problem of a body, or what comes of it, that is larger than limit bytes.
func tooLarge(limit int) *problem {
	return &problem{code: codeTooLarge, text: fmt.Sprintf("too large: want at most %d bytes (--max-message)", limit)}
}

// between describes a range of numbers.
func between(low, high int64) string { return fmt.Sprintf("a number from %d to %d", low, high) }

var (
	errNoObject  = &problem{code: codeMalformed, text: "want a JSON object"}
	errNoUTF8    = &problem{code: codeMalformed, text: "not UTF-8: want JSON, which is UTF-8"}
	errShortBody = &problem{code: codeMalformed, text: "the body did not arrive: want as many bytes as announced, in time"}
	errBadID     = malformed("id", fmt.Sprintf("a string or number of at most %d bytes", maxIDBytes))
)

// message is the text for clients.
func (p *problem) message() string {
	if p.text == "" {
		return publicErrors[p.code]
	}
	return p.text
}

func (p *problem) reply() reply {
	return reply{Type: "error", Code: p.code, Message: p.message(), Verb: string(p.need.verb), Kind: string(p.need.kind), Name: p.need.name, Field: p.field}
}

// undecodable returns the problem for an error of encoding/json.
func undecodable(text []byte, err error) *problem {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return &problem{code: codeMalformed, text: fmt.Sprintf("not JSON: %s, at byte %d", syntax, syntax.Offset)}
	case errors.As(err, &kind) && kind.Type == reflect.TypeFor[time.Time]():
		return malformed(kind.Field, wantedTime)
	case errors.As(err, &kind):
		return malformed(pathAt(text, int(kind.Offset)-1), wanted(kind.Type))
	default: // an error of the only field with its own decoder
		return malformed("at", wantedTime)
	}
}

// wanted names a type as JSON does.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "an array"
	case reflect.Struct:
		return "an object"
	default:
		return "a whole number of 64 bits"
	}
}

// pathAt returns the path of the innermost value that contains the byte at an
// offset of a valid JSON text, such as "messages[2].payload".
func pathAt(json []byte, offset int) string {
	var path []byte
	for i := skipSpace(json, 0); i >= 0 && (json[i] == '{' || json[i] == '['); {
		i, path = step(json, i, offset, path)
	}
	return string(path)
}

// step goes from the object or array at i to its value that contains the byte
// at an offset, and appends its name. The first result is negative if there is
// none.
func step(json []byte, i, offset int, path []byte) (int, []byte) {
	object := json[i] == '{'
	i = skipSpace(json, i+1)
	for n := 0; json[i] != '}' && json[i] != ']'; n++ {
		name := ""
		if object {
			end := stringEnd(json, i)
			name = text(json[i:end])
			i = skipSpace(json, skipSpace(json, end)+1) // after the colon
		}
		end := valueEnd(json, i)
		if offset >= i && offset < end {
			return i, appendStep(path, object, name, n)
		}
		if i = skipSpace(json, end); json[i] == ',' {
			i = skipSpace(json, i+1)
		}
	}
	return -1, path
}

func appendStep(path []byte, object bool, name string, n int) []byte {
	if !object {
		return append(strconv.AppendInt(append(path, '['), int64(n), 10), ']')
	}
	if len(path) > 0 {
		path = append(path, '.')
	}
	return append(path, name...)
}

// pathOfKey returns the path of a key of an object, or of an object in it.
func pathOfKey(object []byte, name string) string {
	path := ""
	eachField(object, func(outer, value []byte) {
		if path == "" && text(outer) == name {
			path = name
		}
		eachField(value, func(inner, _ []byte) {
			if path == "" && text(inner) == name {
				path = text(outer) + "." + name
			}
		})
	})
	return cmp.Or(path, name)
}

// eachField calls f for the fields of an object, in order, up to the first syntax
// error: the text may be invalid JSON, or nested deeper than encoding/json accepts.
// The key includes its quotation marks. Values are not validated.
func eachField(text []byte, f func(key, value []byte)) {
	rest, more := bytes.CutPrefix(trimSpace(text), []byte{'{'})
	for more {
		var key, value []byte
		if key, rest = cutValue(rest); !isString(key) {
			return
		}
		if rest, more = bytes.CutPrefix(trimSpace(rest), []byte{':'}); !more {
			return
		}
		if value, rest = cutValue(rest); value == nil {
			return
		}
		f(key, value)
		rest, more = bytes.CutPrefix(trimSpace(rest), []byte{','})
	}
}

func trimSpace(text []byte) []byte { return bytes.TrimLeft(text, " \t\r\n") }

// cutValue returns the value at the start of a text, and the rest. The value is
// nil if it is incomplete.
func cutValue(text []byte) (value, rest []byte) {
	text = trimSpace(text)
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i = skipString(text, i+1)
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		default:
			if depth > 0 {
				continue
			}
			n := bytes.IndexAny(text, ",}] \t\r\n")
			if n <= 0 {
				return nil, nil
			}
			return text[:n], text[n:]
		}
		if i >= len(text) || depth < 0 {
			return nil, nil
		}
		if depth == 0 {
			return text[:i+1], text[i+1:]
		}
	}
	return nil, nil
}
