package tidewire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

var (
	errJSON   = errors.New("tidewire: the server has sent something that is not JSON")
	errNumber = errors.New("tidewire: the server has sent something else in place of a whole number")
)

// scanner walks over the fields of one JSON object. It allocates nothing. Nested values are skipped, not checked.
type scanner struct {
	data []byte
	at   int
}

func (s *scanner) space() {
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// begin steps into the object.
func (s *scanner) begin() error {
	s.space()
	if s.at >= len(s.data) || s.data[s.at] != '{' {
		return errJSON
	}
	s.at++
	return nil
}

// next returns the name of the next field, without its quotation marks, and its value; nil and nil after the last one.
func (s *scanner) next() (name, value []byte, err error) {
	s.space()
	if s.at < len(s.data) && s.data[s.at] == ',' {
		s.at++
		s.space()
	}
	if s.at < len(s.data) && s.data[s.at] == '}' {
		s.at++
		return nil, nil, nil
	}
	if name, err = s.text(); err != nil {
		return nil, nil, err
	}
	s.space()
	if s.at >= len(s.data) || s.data[s.at] != ':' {
		return nil, nil, errJSON
	}
	s.at++
	s.space()
	from := s.at
	if err := s.skip(); err != nil {
		return nil, nil, err
	}
	return name[1 : len(name)-1], s.data[from:s.at], nil
}

// text takes a string, with its quotation marks.
func (s *scanner) text() ([]byte, error) {
	from := s.at
	if from >= len(s.data) || s.data[from] != '"' {
		return nil, errJSON
	}
	for i := from + 1; ; {
		n := bytes.IndexByte(s.data[i:], '"')
		if n < 0 {
			return nil, errJSON
		}
		end := i + n
		back := end
		for back > from+1 && s.data[back-1] == '\\' {
			back--
		}
		if (end-back)%2 == 0 {
			s.at = end + 1
			return s.data[from:s.at], nil
		}
		i = end + 1
	}
}

// skip takes a value of any kind.
func (s *scanner) skip() error {
	depth := 0
	for {
		s.space()
		if s.at >= len(s.data) {
			return errJSON
		}
		switch b := s.data[s.at]; b {
		case '"':
			if _, err := s.text(); err != nil {
				return err
			}
		case '{', '[':
			depth++
			s.at++
			continue
		case '}', ']':
			if depth == 0 {
				return errJSON
			}
			depth--
			s.at++
		case ',', ':':
			if depth == 0 {
				return errJSON
			}
			s.at++
			continue
		default:
			for s.at < len(s.data) && !bytes.ContainsRune([]byte(",}] \t\r\n:"), rune(s.data[s.at])) {
				s.at++
			}
		}
		if depth == 0 {
			return nil
		}
	}
}

// unquote appends what a JSON string says. Lone surrogates become U+FFFD.
func unquote(dst, text []byte) ([]byte, error) {
	if len(text) < 2 || text[0] != '"' {
		return dst, errJSON
	}
	text = text[1 : len(text)-1]
	for {
		n := bytes.IndexByte(text, '\\')
		if n < 0 {
			return append(dst, text...), nil
		}
		dst = append(dst, text[:n]...)
		if n+1 >= len(text) {
			return dst, errJSON
		}
		c := text[n+1]
		text = text[n+2:]
		switch c {
		case '"', '\\', '/':
			dst = append(dst, c)
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, rest, ok := codePoint(text)
			if !ok {
				return dst, errJSON
			}
			dst, text = utf8.AppendRune(dst, r), rest
		default:
			return dst, errJSON
		}
	}
}

// codePoint takes the digits after \u, and a second half if there is one.
func codePoint(text []byte) (rune, []byte, bool) {
	if len(text) < 4 {
		return 0, nil, false
	}
	n, err := strconv.ParseUint(string(text[:4]), 16, 32)
	if err != nil {
		return 0, nil, false
	}
	r, text := rune(n), text[4:]
	if !utf16.IsSurrogate(r) {
		return r, text, true
	}
	if len(text) >= 6 && text[0] == '\\' && text[1] == 'u' {
		if low, err := strconv.ParseUint(string(text[2:6]), 16, 32); err == nil {
			if both := utf16.DecodeRune(r, rune(low)); both != utf8.RuneError {
				return both, text[6:], true
			}
		}
	}
	return utf8.RuneError, text, true
}

// number reads a whole number, which may be written as a float.
func number(value []byte) (int64, error) {
	if n, err := strconv.ParseInt(string(value), 10, 64); err == nil {
		return n, nil
	}
	f, err := strconv.ParseFloat(string(value), 64)
	if err != nil || !isInt64(f) {
		return 0, errNumber
	}
	return int64(f), nil
}

// isInt64 reports whether f is within an int64.
func isInt64(f float64) bool { return f >= math.MinInt64 && f < math.MaxInt64 }

// fields fills in from JSON.
func (in *incoming) fields(data []byte) error {
	*in = incoming{raw: data, partition: -1}
	s := scanner{data: data}
	if err := s.begin(); err != nil {
		return err
	}
	for {
		name, value, err := s.next()
		if err != nil || name == nil {
			return err
		}
		if string(value) == "null" {
			continue
		}
		if err := in.field(name, value); err != nil && in.wrong == nil {
			in.wrong = fmt.Errorf("the field %q: %w", name, err)
		}
	}
}

// field takes one field. Texts that name something are left as they are on the wire, since the library has chosen most of them.
func (in *incoming) field(name, value []byte) (err error) {
	var n int64
	switch string(name) {
	case "type":
		in.kind = plain(value)
	case "id":
		n, err = number(value)
		in.id = uint64(n)
	case "subscription":
		in.subscription, err = in.unquoted(value)
	case "queue":
		in.queue, err = in.unquoted(value)
	case "room":
		in.room, err = in.unquoted(value)
	case "delivery":
		in.delivery, err = in.unquoted(value)
	case "key":
		in.key, err = in.unquoted(value)
	case "time":
		in.time = plain(value)
	case "position":
		in.position, err = number(value)
		in.has = err == nil
	case "count":
		in.count, err = number(value)
	case "partition":
		n, err = number(value)
		in.partition = int(n)
	case "attempt":
		n, err = number(value)
		in.attempt = int(n)
	case "duplicate":
		in.duplicate = string(value) == "true"
	case "headers":
		err = json.Unmarshal(value, &in.headers)
	case "payload":
		in.payload, err = unquote(make([]byte, 0, len(value)), value)
	case "payload_base64":
		in.payload, err = base64.StdEncoding.DecodeString(string(plain(value)))
	}
	return err
}

// unquoted returns what a string says, without a copy if it has no escapes.
func (in *incoming) unquoted(value []byte) ([]byte, error) {
	if bytes.IndexByte(value, '\\') < 0 {
		return plain(value), nil
	}
	return unquote(nil, value)
}

// plain returns a string without its quotation marks.
func plain(value []byte) []byte {
	if len(value) < 2 || value[0] != '"' {
		return nil
	}
	return value[1 : len(value)-1]
}
