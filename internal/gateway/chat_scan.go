package gateway

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// A chat's bytes are published as they were sent, and every member parses them with its
// own JSON parser. Parsers differ: of two fields with the same name some take
// the first and some the last, and some ignore case. So each field that members
// trust must occur once and be spelled plainly, or the message is malformed.

// guarded are these fields.
var guarded = [...]string{"type", "id", "room", "user", "position", "time"}

// chatFields are the raw values of a chat message's fields; nil if a field is
// missing.
type chatFields struct {
	// values of guarded, in that order, and which of them occur twice or in
	// another spelling
	once   [len(guarded)][]byte
	forged [len(guarded)]bool

	text, ts, onLag, presence, batch, after, history []byte
	// client and sequence, and whether one of them occurs twice or in another spelling. They are fields of the server in stored rooms only.
	client, sequence []byte
	ambiguous        bool
}

// scanChat finds the fields of a valid JSON object, which begins with its brace,
// in one pass. The problem is a guarded field that occurs twice or in another
// spelling; the other fields are found nevertheless.
func scanChat(object []byte) (f chatFields, why *problem) {
	i := skipSpace(object, 1)
	for object[i] != '}' {
		end := stringEnd(object, i)
		key := object[i+1 : end-1]
		i = skipSpace(object, end) + 1 // the colon
		i = skipSpace(object, i)
		end = valueEnd(object, i)
		f.note(key, object[i:end])
		if i = skipSpace(object, end); object[i] == ',' {
			i = skipSpace(object, i+1)
		}
	}
	return f, f.settle()
}

// settle drops the ambiguous guarded fields, and returns the problem of the
// last one.
func (f *chatFields) settle() (why *problem) {
	for g, name := range guarded {
		if f.forged[g] {
			f.once[g] = nil
			why = malformed(name, "this field once, spelled in no other way")
		}
	}
	return why
}

// note records one field.
func (f *chatFields) note(key, value []byte) {
	plain := true
	for _, c := range key {
		if c == '\\' || c >= utf8.RuneSelf {
			plain = false
			break
		}
	}
	if !plain {
		f.noteUnusual(key, value)
		return
	}
	for g, name := range guarded {
		if len(key) == len(name) && bytes.EqualFold(key, []byte(name)) {
			if string(key) != name || f.once[g] != nil {
				f.forged[g] = true
				return
			}
			f.once[g] = value
			return
		}
	}
	f.noteOther(key, value)
}

// noteUnusual is note for a key with escapes or letters beyond ASCII.
func (f *chatFields) noteUnusual(key, value []byte) {
	name := text(append(append([]byte{'"'}, key...), '"'))
	upToNUL, _, _ := strings.Cut(name, "\x00") // parsers in C may stop at a NUL
	for g, guard := range guarded {
		if strings.EqualFold(upToNUL, guard) { // as encoding/json compares
			f.forged[g] = true
			return
		}
	}
	f.ambiguous = f.ambiguous || name == "client" || name == "sequence"
	f.noteOther([]byte(name), value)
}

// noteOther records a field that is not guarded; the last of several counts.
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
	case "batch":
		f.batch = value
	case "after":
		f.after = value
	case "history":
		f.history = value
	case "client":
		f.ambiguous = f.ambiguous || f.client != nil
		f.client = value
	case "sequence":
		f.ambiguous = f.ambiguous || f.sequence != nil
		f.sequence = value
	}
}

// text decodes a valid JSON string, "" for null.
func text(value []byte) (s string) {
	if isPlain(value) {
		return string(value[1 : len(value)-1])
	}
	json.Unmarshal(value, &s)
	return s
}

// isPlain reports whether a value is an ASCII string without escapes.
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

// The functions below are for valid JSON only: they find ends of values, and no
// errors.

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
		for b[i] != ',' && b[i] != '}' && b[i] != ']' && b[i] > ' ' {
			i++
		}
		return i
	}
}
