package gateway

import (
	"testing"

	"github.com/tidewire/tidewire/internal/engine"
)

// TestSearch_Matches: a text is found in the key, the headers and the payload, a value by its path.
func TestSearch_Matches(t *testing.T) {
	t.Parallel()
	m := engine.Message{Key: "Till-3", Headers: []byte(`{"trace": "abc"}`), Payload: []byte(`{"id": 9007199254740993, "a.b": {"c/d": [1.50, "Ä\n", null, {"x": [1, 2]}]}, "paid": true}`)}
	text := func(s string) *string { return &s }
	for _, one := range []struct {
		text  string
		fold  bool
		path  string
		value *string
		want  bool
	}{
		{text: "ill-", want: true}, {text: "till", want: false}, {text: "TILL", fold: true, want: true},
		{text: "abc", want: true}, {text: "9007199254740993", want: true}, {text: "Ä", want: true}, {text: "ä", want: false}, {text: "ä", fold: true, want: true},
		{path: "id", value: text("9007199254740993"), want: true}, {path: "id", value: text("9007199254740992")}, {path: "id", want: true}, {path: "none"},
		{path: "/a.b/c~1d/0", value: text("1.50"), want: true}, {path: "/a.b/c~1d/1", value: text("Ä\n"), want: true}, {path: "/a.b/c~1d/2", value: text("null"), want: true},
		{path: "/a.b/c~1d/3/x", value: text("[1,2]"), want: true}, {path: "/a.b/c~1d/4"}, {path: "/a.b/c~1d/-1"}, {path: "a.b"}, {path: "paid.x"},
		{path: "paid", value: text("true"), want: true}, {text: "abc", path: "paid", value: text("false")}, {text: "nothing", path: "paid"},
	} {
		s := newSearch(one.text, one.fold, one.path, one.value)
		if got := s.matches(&m); got != one.want {
			t.Errorf("%+v: %t", one, got)
		}
	}
	for _, one := range []struct { // bytes that are no UTF-8 are found as what they are
		text, payload string
		fold, want    bool
	}{
		{"\uFFFD", "\xff\xfeABC\x00\x80", false, false}, {"\uFFFD", "\xff", true, false}, {"\uFFFD", "real \uFFFD", true, true}, {"abc", "\xff\xfeABC\x00\x80", true, true},
		{"abc", "\xff\xfeABC", false, false}, {"\x00", "\xffABC\x00\x80", false, true}, {"ÉÉ", "\xc3\xc3\xa9É", true, true},
	} {
		s := newSearch(one.text, one.fold, "", nil)
		if got := s.matches(&engine.Message{Payload: []byte(one.payload)}); got != one.want {
			t.Errorf("%+v: %t", one, got)
		}
	}
	for _, payload := range []string{"", "{", "[", "\xff", `{"a"`, "7"} {
		if s := newSearch("", false, "a", nil); s.matches(&engine.Message{Payload: []byte(payload)}) {
			t.Errorf("%q has a value at a path", payload)
		}
	}
}
