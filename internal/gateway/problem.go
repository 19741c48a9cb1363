package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
)

// problem is why a message is refused: a code, and words of its own where the
// code's sentence does not say what is wrong.
type problem struct {
	code code
	text string
}

// because is a problem of which the code says everything; nil if there is no code.
func because(why code) *problem {
	if why == "" {
		return nil
	}
	return &problem{code: why}
}

// wrong is a field that is not what is wanted there.
func wrong(why code, field, want string) *problem {
	return &problem{why, field + ": want " + want}
}

// malformed is a field of another kind than is wanted there.
func malformed(field, want string) *problem { return wrong(codeMalformed, field, want) }

// between says which numbers are wanted.
func between(low, high int64) string { return fmt.Sprintf("a number from %d to %d", low, high) }

var (
	errNoObject  = &problem{codeMalformed, "want a JSON object"}
	errNoUTF8    = &problem{codeMalformed, "not UTF-8: want JSON, which is UTF-8"}
	errTooRich   = &problem{codeMalformed, fmt.Sprintf("more than %d values: send them in several messages", maxElements)}
	errShortBody = &problem{codeMalformed, "the body did not arrive: want as many bytes as announced, in time"}
	errBadID     = malformed("id", fmt.Sprintf("a string or number of at most %d bytes", maxIDBytes))
)

// message is what clients read.
func (p *problem) message() string {
	if p.text == "" {
		return publicErrors[p.code]
	}
	return p.text
}

func (p *problem) reply() reply { return reply{Type: "error", Code: p.code, Message: p.message()} }

// undecodable says what encoding/json found wrong with a text.
func undecodable(text []byte, err error) *problem {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return &problem{codeMalformed, fmt.Sprintf("not JSON: %s, at byte %d", syntax, syntax.Offset)}
	case errors.As(err, &kind):
		return malformed(pathAt(text, int(kind.Offset)-1), wanted(kind.Type))
	default: // of the one field that decodes itself
		return malformed("at", "a time as RFC 3339 writes it")
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

// pathAt returns the path of the innermost value of a valid JSON text that has the
// byte at an offset, such as "messages[2].payload".
func pathAt(json []byte, offset int) string {
	var path []byte
	for i := skipSpace(json, 0); i >= 0 && (json[i] == '{' || json[i] == '['); {
		i, path = step(json, i, offset, path)
	}
	return string(path)
}

// step goes from the object or array at i to its value that has the byte at an
// offset, and appends its name. The first result is below 0 if there is none.
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

// eachField calls f for the fields of an object, in their order, as far as the text
// can be read: it may be no JSON, or nested deeper than encoding/json reads. The
// key has its quotation marks. A value is not checked.
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

// cutValue returns the value that a text begins with, and what follows. The value
// is nil if it does not end.
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
