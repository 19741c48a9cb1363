package tidewire

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// TestAppendixOfRFC8949 reads examples of the standard.
func TestAppendixOfRFC8949(t *testing.T) {
	for _, test := range []struct {
		hex  string
		want any
	}{
		{"\x00", int64(0)}, {"\x17", int64(23)}, {"\x18\x18", int64(24)}, {"\x19\x03\xe8", int64(1000)},
		{"\x1b\x00\x00\x00\xe8\xd4\xa5\x10\x00", int64(1000000000000)},
		{"\x1b\xff\xff\xff\xff\xff\xff\xff\xff", float64(18446744073709551615)},
		{"\x20", int64(-1)}, {"\x39\x03\xe7", int64(-1000)},
		{"\xf9\x3c\x00", 1.0}, {"\xf9\x7b\xff", 65504.0}, {"\xf9\xc4\x00", -4.0}, {"\xfa\x47\xc3\x50\x00", 100000.0},
		{"\xfb\x3f\xf1\x99\x99\x99\x99\x99\x9a", 1.1},
		{"\xf4", false}, {"\xf5", true}, {"\xf6", nil}, {"\xf7", nil},
		{"\xc1\x1a\x51\x4b\x67\xb0", int64(1363896240)},
		{"\x44\x01\x02\x03\x04", []byte{1, 2, 3, 4}}, {"\x64IETF", "IETF"},
		{"\x5f\x42\x01\x02\x43\x03\x04\x05\xff", []byte{1, 2, 3, 4, 5}}, {"\x7f\x65strea\x64ming\xff", "streaming"},
		{"\x83\x01\x02\x03", []any{int64(1), int64(2), int64(3)}}, {"\x9f\xff", []any{}},
		{"\x9f\x01\x82\x02\x03\x9f\x04\x05\xff\xff", []any{int64(1), []any{int64(2), int64(3)}, []any{int64(4), int64(5)}}},
		{"\xbf\x63Fun\xf5\x63Amt\x21\xff", map[string]any{"Fun": true, "Amt": int64(-2)}},
	} {
		d := decoder{data: []byte(test.hex)}
		got, err := d.value(0)
		if err != nil || !reflect.DeepEqual(got, test.want) || d.at != len(test.hex) {
			t.Errorf("%x: got %#v, %v, want %#v", test.hex, got, err, test.want)
		}
		d = decoder{data: []byte(test.hex)}
		if err := d.skip(0); err != nil || d.at != len(test.hex) {
			t.Errorf("%x: skip: %v at %d", test.hex, err, d.at)
		}
	}
}

func TestCBORThatIsCutOff(t *testing.T) {
	whole := []byte("\xbf\x64type\x67message\x67payload\x5f\x42\x01\x02\xff\x67headers\xa1\x61a\x9f\x01\xf9\x3c\x00\xff\xff")
	var in incoming
	if err := in.cborFields(whole); err != nil || string(in.payload) != "\x01\x02" {
		t.Fatalf("got %q, %v", in.payload, err)
	}
	for n := range whole {
		if err := in.cborFields(whole[:n]); err == nil {
			t.Errorf("the first %d bytes are taken", n)
		}
	}
}

// FuzzCBOR reads anything, which must not fail in another way than with an error.
func FuzzCBOR(f *testing.F) {
	f.Add([]byte("\xbf\x64type\x62ok\x62id\x01\x68position\x1a\x00\x01\x00\x00\xff"))
	f.Add([]byte("\xa2\x64type\x67message\x67payload\x5f\x42\x01\x02\xff"))
	f.Add([]byte("\x9b\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var in incoming
		in.cborFields(data)
		if text, err := cborToJSON(data); err == nil && !json.Valid(text) {
			t.Errorf("%x becomes %s, which is not JSON", data, text)
		}
		value, err := (&decoder{data: data}).value(0)
		d := decoder{data: data}
		if err == nil && d.skip(0) != nil {
			t.Errorf("%x is %#v, and cannot be skipped", data, value)
		}
	})
}

// FuzzJSONAsCBOR writes JSON as CBOR, and reads it again.
func FuzzJSONAsCBOR(f *testing.F) {
	f.Add(`{"a":[1,-1,1.5,"x",null,true,{"b":{}}],"n":9007199254740993}`)
	f.Fuzz(func(t *testing.T, text string) {
		var want any
		if json.Unmarshal([]byte(text), &want) != nil {
			return
		}
		d := decoder{data: appendJSONAsCBOR(nil, json.RawMessage(text))}
		value, err := d.value(0)
		if err != nil {
			return // nested too deep
		}
		again, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		var got any
		if err := json.Unmarshal(again, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s becomes %s", text, again)
		}
	})
}

// FuzzScanner reads anything, which must not fail in another way than with an error, and what encoding/json has written.
func FuzzScanner(f *testing.F) {
	f.Add([]byte(`{"type":"message","payload":"a\"\\\u00e9\ud83d\ude00","key":"k","headers":{"a":[1,"]"]},"position":7}`), "k", int64(1))
	f.Add([]byte(`{"payload":"\`), "\"\\", int64(-1))
	f.Fuzz(func(t *testing.T, data []byte, key string, position int64) {
		var in incoming
		in.fields(data)
		key = strings.ToValidUTF8(key, "?")
		text, err := json.Marshal(map[string]any{"key": key, "position": position, "payload": key, "headers": map[string]any{key: []string{key, "]}"}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := in.fields(text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if string(in.key) != key || string(in.payload) != key || in.position != position || len(in.headers) != 1 {
			t.Errorf("%s is read as %+v", text, in)
		}
	})
}

func TestStringsOfJSON(t *testing.T) {
	for _, text := range []string{"", "plain", "é\u2028😀", "\x00\x1f\"\\\n\t/", "\xff\xfea\xc3", strings.Repeat("\\\"", 100)} {
		encoded := appendString(nil, text)
		var want string
		if err := json.Unmarshal(encoded, &want); err != nil {
			t.Fatalf("%q is written as %s: %v", text, encoded, err)
		}
		if want != strings.ToValidUTF8(text, "\uFFFD") && !strings.Contains(text, "\xff\xfe") {
			t.Errorf("%q is written as %s", text, encoded)
		}
		for _, encoded := range [][]byte{encoded, must(json.Marshal(text))} {
			json.Unmarshal(encoded, &want)
			if got, err := unquote(nil, encoded); err != nil || string(got) != want {
				t.Errorf("%s is read as %q, %v, want %q", encoded, got, err, want)
			}
		}
	}
}

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}
