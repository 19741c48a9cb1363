package gateway

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

func TestCutFields(t *testing.T) {
	t.Parallel()
	for object, want := range map[string]string{
		`{"id":1}`:                            `{}`,
		` { "id" : "x" } `:                    ` {  } `,
		`{"id":1,"a":2}`:                      `{"a":2}`,
		`{"a":2,"id":1}`:                      `{"a":2}`,
		`{"a":2 , "id":1 , "b":3}`:            `{"a":2 , "b":3}`,
		"{\n\t\"id\": 1,\n\t\"a\": 2\n}":      "{\n\t\"a\": 2\n}",
		"{\n\t\"a\": 2,\n\t\"id\": 1\n}":      "{\n\t\"a\": 2\n}",
		`{"a":{"id":1},"id":{"id":2}}`:        `{"a":{"id":1}}`,
		`{"a":[{"id":1}],"b":"id","id":null}`: `{"a":[{"id":1}],"b":"id"}`,
		`{"client":"c","id":1,"sequence":2}`:  `{}`,
		`{"client":"c","a":1,"sequence":2}`:   `{"a":1}`,
		`{"a":"\"id\":1,","id":"}{,\\"}`:      `{"a":"\"id\":1,"}`,
		`{"Id":1,"i\u0064":2,"idle":3}`:       `{"Id":1,"i\u0064":2,"idle":3}`,
		`{"id":1,"id":2,"a":1,"id":3}`:        `{"a":1}`,
		`{}`:                                  `{}`,
		" {\n} ":                              " {\n} ",
	} {
		if got := cutFields(nil, []byte(object), "id", "client", "sequence"); string(got) != want {
			t.Errorf("%s: got %s, want %s", object, got, want)
		}
	}
}

// FuzzCutFields: what is left is the same JSON value without the fields, and its fields have the same bytes.
func FuzzCutFields(f *testing.F) {
	for _, seed := range []string{
		`{"id":1}`, ` { "id" : "x" , "a":1} `, `{"a":2,"id":1,"b":[{"id":2},"]"]}`, `{"id":1,"client":"c","sequence":2}`, `{"a":"\"","id":"\\"}`, `{"id":1,"id":[{}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		if !json.Valid(object) || trimSpace(object)[0] != '{' {
			return
		}
		got := cutFields([]byte("before"), object, "id", "client")
		rest, ok := bytes.CutPrefix(got, []byte("before"))
		if !ok || !json.Valid(rest) {
			t.Fatalf("%q: left %q", object, got)
		}
		var want, left [][2]string
		var dropped int
		eachField(object, func(key, value []byte) {
			if name := string(key); name == `"id"` || name == `"client"` {
				dropped++
				return
			}
			want = append(want, [2]string{string(key), string(value)})
		})
		eachField(rest, func(key, value []byte) { left = append(left, [2]string{string(key), string(value)}) })
		if !reflect.DeepEqual(left, want) {
			t.Fatalf("%q: left %q, want %q", object, left, want)
		}
		if dropped == 0 && !bytes.Equal(rest, object) {
			t.Fatalf("%q has no such field, and became %q", object, rest)
		}
		before, after := map[string]json.RawMessage{}, map[string]json.RawMessage{}
		json.Unmarshal(object, &before)
		json.Unmarshal(rest, &after)
		for name := range before { // an escaped name is another one
			if _, has := after[name]; !has && name != "id" && name != "client" {
				t.Fatalf("%q lost %q", object, name)
			}
		}
		for name, value := range after {
			if name != "id" && name != "client" && !bytes.Equal(before[name], value) {
				t.Fatalf("%q: %q became %q", object, name, value)
			}
		}
	})
}

func TestStoredForm(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 26, 9, 5, 7, 89_999_999, time.FixedZone("", 3600))
	got := storedForm([]byte(` {"id":1,"type":"chat","text":"x" } `), at)
	if want := ` {"type":"chat","text":"x" ,"time":"2026-11-26T08:05:07.089Z"}`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if !isChat(got) {
		t.Error("what is stored is no chat")
	}
}
