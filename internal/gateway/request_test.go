package gateway

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/wire"
)

// FuzzParseRequest compares the stored message of a publish with its decoded JSON fields.
func FuzzParseRequest(f *testing.F) {
	for _, text := range []string{
		`{"type":"publish","id":1,"stream":"s","payload":"p","key":"k","headers":{"a":1}}`,
		`{"type":"publish","id":"x","stream":"s","messages":[{"payload":"p"},{"payload_base64":"YQ=="}]}`,
		`{"type":"subscribe","stream":"s","at":"2026-01-01T00:00:00Z","credits":5}`, `{"id":{}}`, `{"payload":null}`,
		"{\"payload\":\"\xff\"}", `{"type":1,"id":7}`, ` {"delivery":"d","deliveries":[]}`, `[]`, ``,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d := wire.Decoder{Limits: newDecoders(64).limits()}
		r, why := parseRequest(&d, text, wire.JSON)
		if why == nil && (!json.Valid(text) || !utf8.Valid(text)) {
			t.Fatalf("%q was taken", text)
		}
		if r.ID != nil && (!json.Valid(r.ID) || len(r.ID) > maxIDBytes) {
			t.Fatalf("id %q", r.ID)
		}
		if why != nil {
			if why.message() == "" {
				t.Fatalf("%q is refused without a word", text)
			}
			return
		}
		messages, why := r.messages(new([1]engine.Message))
		if (len(messages) == 0) != (why != nil) || len(messages) > maxBatch || why != nil && why.message() == "" {
			t.Fatalf("%d messages and %v", len(messages), why)
		}
		for _, m := range messages {
			for _, e := range []wire.Encoding{wire.JSON, wire.CBOR} {
				w := wire.Writer{Encoding: e}
				w.Open()
				writeBody(&w, &m)
				w.Close()
				back, why := parseRequest(&d, w.Buf, e)
				if why != nil {
					t.Fatalf("%q: %v", w.Buf, why)
				}
				again := back.One
				if again.Key != m.Key || !bytes.Equal(again.Payload, m.Payload) || (len(again.Headers) > 0) != (len(m.Headers) > 0) {
					t.Fatalf("%+v came back as %+v", m, again)
				}
			}
		}
		if tokens, why := r.tokens(); (len(tokens) == 0) != (why != nil) {
			t.Fatalf("tokens %q and %v", tokens, why)
		}
		if _, why := r.start(); why != nil && why.message() == "" {
			t.Fatal(why.code)
		}
	})
}
