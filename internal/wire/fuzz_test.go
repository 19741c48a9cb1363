package wire

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"unicode/utf8"

	"github.com/fxamacker/cbor/v2"

	"github.com/tidewire/tidewire/internal/engine"
)

var testLimits = Limits{Depth: 64, Values: 60_000}

// seeds are messages to begin with, in JSON.
var seeds = []string{
	`{"type":"publish","id":1,"stream":"s","payload":"p","key":"k","headers":{"a":[1,2.5e3,-0,null,true,{"b":"\u00e9\ud83d\ude00\ud800"}]}}`,
	`{"type":"publish","id":"x","stream":"s","messages":[{"payload":"p\n\"\\"},{"payload_base64":"YQ==","position":7,"time":"x"}]}`,
	`{"type":"subscribe","stream":"s","at":"2026-01-01T00:00:00Z","credits":5,"after":null}`, `{"id":{}}`,
	`{"type":"subscribe","id":3,"stream":"s","group":"g","share":true,"keys":["a","\u00e9"],"headers":{"a":"b"}}`, `{"type":"subscribe","share":1,"keys":["a",1]}`,
	`{"type":"commit","id":4,"stream":"s","group":"g","partition":3,"position":17}`, `{"payload":null}`,
	"{\"payload\":\"\xff\"}", `{"type":1,"id":7}`, ` {"delivery":"d","deliveries":[]} `, `[]`, ``, `{"a":1,}`, `{"a":01}`, `{"a" :-}`, `{"a":1}}`, `{"a":[1,]}`,
	`{"type":"append","id":2,"events":[{"type":"T","tags":["a","b"],"data":{"x":1},"id":"e"}],"condition":{"query":{"items":[{"types":["T"],"tags":["a"]}]},"after":3}}`,
	`{"type":"project","queries":[{},{"items":[]}],"limit":9223372036854775808}`,
}

// FuzzDecodeJSON: a message is taken as JSON if, and only if, encoding/json takes it.
func FuzzDecodeJSON(f *testing.F) {
	for _, text := range seeds {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d, r := Decoder{Limits: testLimits}, Request{}
		err := d.Decode(text, JSON, &r)
		valid := json.Valid(text) && utf8.Valid(text) && bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte{'{'})
		if err != nil && err.Text == "" || err == nil && !valid || err != nil && err.Broken && valid {
			t.Fatalf("%q: %v, valid %v", text, err, valid)
		}
		if r.ID != nil && (!json.Valid(r.ID) || len(r.ID) > maxIDBytes) {
			t.Fatalf("id %q", r.ID)
		}
		var again Request
		d.Identify(text, JSON, &again)
		if r.ID != nil && err == nil && !bytes.Equal(r.ID, again.ID) {
			t.Fatalf("%q has the id %q, and was identified as %q", text, r.ID, again.ID)
		}
		var plain struct {
			Payload, Stream *string
			Sequence        *int64
		}
		if err == nil && json.Unmarshal(text, &plain) == nil && r.unknown == nil { // other spellings are other fields here
			if r.Has(FieldPayload) && *plain.Payload != string(r.One.Payload) || r.Has(FieldStream) && *plain.Stream != r.Stream || r.Has(FieldSequence) && *plain.Sequence != r.Sequence {
				t.Fatalf("%q was read as %+v", text, r)
			}
		}
	})
}

// decodeCBOR decodes as other programs do.
func decodeCBOR(t testing.TB) cbor.DecMode {
	mode, err := cbor.DecOptions{DefaultMapType: reflect.TypeFor[map[string]any](), MaxNestedLevels: 256, IntDec: cbor.IntDecConvertSignedOrFail}.DecMode()
	if err != nil {
		t.Fatal(err)
	}
	return mode
}

// FuzzDecodeCBOR: what is taken is well-formed CBOR; and what is said to be none is not, or has text that is no UTF-8.
func FuzzDecodeCBOR(f *testing.F) {
	for _, text := range seeds {
		if json.Valid([]byte(text)) {
			f.Add(appendCBOR(nil, []byte(text)))
			var v any
			json.Unmarshal([]byte(text), &v)
			if b, err := cbor.Marshal(v); err == nil {
				f.Add(b)
			}
		}
	}
	for _, b := range [][]byte{{0xa1, 0x7f, 0x61, 'a', 0xff, 0x5f, 0x41, 1, 0xff}, {0xbb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {0xbf, 0xff}, {0xd9, 0xd9, 0xf7, 0xa0}, {0xa1, 0x62, 'i', 'd', 0xf9, 0x3c, 0}, {0xbf}, bytes.Repeat([]byte{0xce}, 200)} {
		f.Add(b)
	}
	mode := decodeCBOR(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		d, r := Decoder{Limits: testLimits}, Request{}
		err := d.Decode(b, CBOR, &r)
		formed := mode.Wellformed(b)
		if err == nil && formed != nil {
			t.Fatalf("%x was taken: %v", b, formed)
		}
		if err != nil && err.Broken && formed == nil && len(b) > 0 {
			var v any
			if wrong := mode.Unmarshal(b, &v); wrong == nil {
				t.Fatalf("%x was not taken, %v, and is %v", b, err, v)
			}
		}
		if r.One.Headers != nil && err == nil && !json.Valid(r.One.Headers) {
			t.Fatalf("%x: headers %q", b, r.One.Headers)
		}
		for _, e := range r.Events {
			if e.JSON && !json.Valid(e.Data) {
				t.Fatalf("%x: data %q", b, e.Data)
			}
		}
		d.Identify(b, CBOR, new(Request))
	})
}

// FuzzTranslate: JSON that was translated to CBOR is the same value for another program, and again when it comes back.
func FuzzTranslate(f *testing.F) {
	for _, text := range seeds {
		f.Add([]byte(text))
	}
	f.Add([]byte(`{"a":[18446744073709551615,-9223372036854775808,1e400,0.1,1e2]}`))
	mode := decodeCBOR(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) || !utf8.Valid(text) {
			return
		}
		var r jsonReader
		r.reset([]byte("{}"), testLimits)
		r.message = text
		if r.skip(); r.err != nil {
			return // nested too deeply
		}
		b := appendCBOR(nil, text)
		if err := mode.Wellformed(b); err != nil {
			t.Fatalf("%s became %x: %v", text, b, err)
		}
		var back cborReader
		back.reset(b, Limits{1 << 30, 1 << 30})
		again, ok := back.json()
		if !ok || !back.end() || !json.Valid(again) {
			t.Fatalf("%s came back as %s: %v", text, again, back.err)
		}
		var one, other any
		if json.Unmarshal(text, &one) == nil && json.Unmarshal(again, &other) == nil && !reflect.DeepEqual(one, other) {
			t.Fatalf("%s came back as %s", text, again)
		}
	})
}

// FuzzWriter: a message that was written can be read again, in both encodings.
func FuzzWriter(f *testing.F) {
	f.Add("plain", []byte("bytes\xff"), int64(-1))
	f.Add("\"\\\x00\x1f\n\u2028é😀\x7f", []byte("{\"a\":\"b\"}"), int64(1)<<40)
	f.Fuzz(func(t *testing.T, text string, data []byte, n int64) {
		if !utf8.ValidString(text) {
			return
		}
		for _, e := range []Encoding{JSON, CBOR} {
			w := Writer{Encoding: e}
			w.Open()
			w.Name("key")
			w.Text(text)
			w.Data("payload", "payload_base64", data)
			w.Name("sequence")
			w.Int(n)
			w.Name("backwards")
			w.Bool(true)
			w.Name("deliveries")
			w.OpenList()
			w.Next()
			w.Text(text)
			w.Next()
			w.Text("")
			w.CloseList()
			w.Close()
			d, r := Decoder{Limits: testLimits}, Request{}
			if err := d.Decode(w.Buf, e, &r); err != nil {
				t.Fatalf("%v: %q: %v", e, w.Buf, err)
			}
			want := engine.Message{Key: text, Payload: r.One.Payload}
			if !bytes.Equal(r.One.Payload, data) || !reflect.DeepEqual(r.One, want) || r.Sequence != n || !r.Backwards || !reflect.DeepEqual(r.Deliveries, []string{text, ""}) {
				t.Fatalf("%v: %q was read as %+v", e, w.Buf, r)
			}
		}
	})
}

// FuzzAppendText: encoding/json decodes the encoded text to the original.
func FuzzAppendText(f *testing.F) {
	f.Add("plain")
	f.Add("\"\\\x00\x1f\n\u2028é😀\x7f")
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return
		}
		var back string
		if err := json.Unmarshal(AppendText(nil, text), &back); err != nil || back != text {
			t.Fatalf("%q came back as %q, %v", text, back, err)
		}
		if !bytes.Equal(AppendText(nil, text), AppendText(nil, []byte(text))) {
			t.Fatal("bytes differ from text")
		}
	})
}
