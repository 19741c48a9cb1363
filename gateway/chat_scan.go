package gateway

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// A chat's bytes are passed on as they were sent, and every member reads them
// with a JSON reader of its own. Readers differ: some take the first of two
// fields of one name, some the last, and some ignore case. So the fields that
// members trust are there once and spelled plainly, or the message is malformed.

// guarded are these fields.
var guarded = [...]string{"type", "id", "room", "user", "position"}

// chatFields are the values of a chat message's fields, as they stand in its
// bytes; nil where there is none.
type chatFields struct {
	// values of guarded, in that order
	once [len(guarded)][]byte

	text, ts, onLag, presence, after, history []byte
}

// scanChat finds the fields of a valid JSON object, which begins with its brace,
// in one pass. The error says that a guarded field is there twice, or in another
// spelling; the others are found nevertheless.
func scanChat(object []byte) (f chatFields, err error) {
	var twice [len(guarded)]bool
	i := skipSpace(object, 1)
	for object[i] != '}' {
		end := stringEnd(object, i)
		key := object[i+1 : end-1]
		i = skipSpace(object, end) + 1 // the colon
		i = skipSpace(object, i)
		end = valueEnd(object, i)
		if g := f.note(key, object[i:end]); g >= 0 {
			twice[g], err = true, errMalformed
		}
		if i = skipSpace(object, end); object[i] == ',' {
			i = skipSpace(object, i+1)
		}
	}
	for g := range twice {
		if twice[g] {
			f.once[g] = nil // nobody knows which is meant
		}
	}
	return f, err
}

// note takes in one field, and returns which of the guarded ones it forges, or -1.
func (f *chatFields) note(key, value []byte) int {
	plain := true
	for _, c := range key {
		if c == '\\' || c >= utf8.RuneSelf {
			plain = false
			break
		}
	}
	if !plain {
		return f.noteUnusual(key, value)
	}
	for g, name := range guarded {
		if len(key) == len(name) && bytes.EqualFold(key, []byte(name)) {
			if string(key) != name || f.once[g] != nil {
				return g
			}
			f.once[g] = value
			return -1
		}
	}
	f.noteOther(key, value)
	return -1
}

// noteUnusual is note for a key with escapes or letters beyond ASCII.
func (f *chatFields) noteUnusual(key, value []byte) int {
	name := text(append(append([]byte{'"'}, key...), '"'))
	upToNUL, _, _ := strings.Cut(name, "\x00") // all that readers in C see
	for g, guard := range guarded {
		if strings.EqualFold(upToNUL, guard) { // as encoding/json compares
			return g
		}
	}
	f.noteOther([]byte(name), value)
	return -1
}

// noteOther takes in a field of which the last counts.
func (f *chatFields) noteOther(key, value []byte) {
	switch string(key) {
	case "text":
		f.text = value
	case "ts":
		f.ts = value
	case "on_lag":
		f.onLag = value
	case "presence":
		f.presence = value
	case "after":
		f.after = value
	case "history":
		f.history = value
	}
}

// text returns the string that valid JSON says, "" for null.
func text(value []byte) (s string) {
	if isPlain(value) {
		return string(value[1 : len(value)-1])
	}
	json.Unmarshal(value, &s)
	return s
}

// isPlain reports whether a value is a string that stands for itself.
func isPlain(value []byte) bool {
	if len(value) < 2 || value[0] != '"' {
		return false
	}
	for _, c := range value {
		if c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// The functions below are for valid JSON only: they look for ends, not for errors.

func skipSpace(b []byte, i int) int {
	for b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r' {
		i++
	}
	return i
}

// stringEnd returns the offset after the string that begins at i.
func stringEnd(b []byte, i int) int {
	for i++; ; i++ {
		i += bytes.IndexByte(b[i:], '"')
		escapes := 0
		for b[i-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i + 1
		}
	}
}

// valueEnd returns the offset after the value that begins at i.
func valueEnd(b []byte, i int) int {
	switch b[i] {
	case '"':
		return stringEnd(b, i)
	case '{', '[':
		for depth := 0; ; {
			switch b[i] {
			case '"':
				i = stringEnd(b, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
	default:
		for b[i] != ',' && b[i] != '}' && b[i] > ' ' {
			i++
		}
		return i
	}
}
