package gateway

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tidewire/tidewire/internal/engine"
)

// search selects messages: those that contain a text, and have a value at a path of their JSON. The zero value selects all.
type search struct {
	text  []byte
	fold  bool // of text: upper and lower case are the same, and text is in lower case
	path  []string
	value *string // nil: any
}

// newSearch returns a search for a text and a path, which is that of a JSON pointer if it begins with a slash, and else has dots between names.
func newSearch(text string, fold bool, path string, value *string) search {
	s := search{text: []byte(text), fold: fold, value: value}
	if fold {
		s.text = bytes.ToLower(s.text)
	}
	switch {
	case strings.HasPrefix(path, "/"):
		for name := range strings.SplitSeq(path[1:], "/") {
			s.path = append(s.path, strings.NewReplacer("~1", "/", "~0", "~").Replace(name))
		}
	case path != "":
		s.path = strings.Split(path, ".")
	}
	return s
}

// matches reports whether the search selects a message.
func (s *search) matches(m *engine.Message) bool {
	if len(s.text) > 0 && !s.in([]byte(m.Key)) && !s.in(m.Payload) && !s.in(m.Headers) {
		return false
	}
	return len(s.path) == 0 || s.has(m.Payload)
}

// in reports whether bytes contain the text.
func (s *search) in(data []byte) bool {
	if s.fold {
		data = lower(data)
	}
	return bytes.Contains(data, s.text)
}

// lower is bytes.ToLower that leaves bytes as they are which are no UTF-8: as U+FFFD they would match it.
func lower(data []byte) []byte {
	if utf8.Valid(data) {
		return bytes.ToLower(data)
	}
	lowered := make([]byte, 0, len(data))
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		if r == utf8.RuneError && n == 1 {
			lowered = append(lowered, data[0])
		} else {
			lowered = utf8.AppendRune(lowered, unicode.ToLower(r))
		}
		data = data[n:]
	}
	return lowered
}

// has reports whether JSON has the value at the path.
func (s *search) has(data json.RawMessage) bool {
	for _, name := range s.path {
		if data = member(data, name); data == nil {
			return false
		}
	}
	return s.value == nil || equals(data, *s.value)
}

// member returns the value of a member of an object, or of an array, nil if there is none.
func member(data json.RawMessage, name string) json.RawMessage {
	data = bytes.TrimLeft(data, " \t\r\n")
	if len(data) == 0 {
		return nil
	}
	switch data[0] {
	case '{':
		var members map[string]json.RawMessage
		if json.Unmarshal(data, &members) != nil {
			return nil
		}
		return members[name]
	case '[':
		n, err := strconv.Atoi(name)
		var items []json.RawMessage
		if err != nil || n < 0 || json.Unmarshal(data, &items) != nil || n >= len(items) {
			return nil
		}
		return items[n]
	}
	return nil
}

// equals reports whether a value of JSON is this one: a string with this text, or anything else that is written like it.
func equals(data json.RawMessage, want string) bool {
	if data[0] == '"' {
		var text string
		return json.Unmarshal(data, &text) == nil && text == want
	}
	var compact bytes.Buffer
	return json.Compact(&compact, data) == nil && compact.String() == want
}

// searched returns the search of the URL, or refuses the call.
func (c *call) searched() (s search, ok bool) {
	parameters := c.r.URL.Query()
	text, path := parameters.Get("text"), parameters.Get("path")
	var value *string
	if parameters.Has("value") {
		v := parameters.Get("value")
		value = &v
	}
	for _, one := range []struct {
		name, text string
	}{{"text", text}, {"path", path}, {"value", parameters.Get("value")}} {
		if len(one.text) > maxSearch || !utf8.ValidString(one.text) {
			c.refuseFor(wrong(codeParameter, one.name, "UTF-8 of at most "+strconv.Itoa(maxSearch)+" bytes"))
			return s, false
		}
	}
	switch {
	case text == "" && path == "":
		c.refuseFor(wrong(codeParameter, "text", "a text, or a path, to look for"))
		return s, false
	case strings.Count(path, ".")+strings.Count(path, "/") > maxSearchDepth:
		c.refuseFor(wrong(codeParameter, "path", "at most "+strconv.Itoa(maxSearchDepth)+" names"))
		return s, false
	case value != nil && path == "":
		c.refuseFor(wrong(codeParameter, "path", "a path beside value"))
		return s, false
	}
	fold := parameters.Has("any_case")
	if v := parameters.Get("any_case"); fold && v != "true" {
		c.refuseFor(wrong(codeParameter, "any_case", "true, or none"))
		return s, false
	}
	return newSearch(text, fold, path, value), true
}
