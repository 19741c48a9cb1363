package wire

import (
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
)

// typical are requests, in JSON.
var typical = map[string]string{
	"publish": `{"type":"publish","id":17,"stream":"orders","key":"customer-3","payload":"1 pear, and 2 apples"}`,
	"ack":     `{"type":"ack","id":18,"queue":"jobs","delivery":"6YGFJLMOLNEK-2"}`,
	"credit":  `{"type":"credit","subscription":"orders","n":100}`,
}

// TestDecode_NoGarbage: a request is read without an allocation, in both encodings.
func TestDecode_NoGarbage(t *testing.T) {
	for name, text := range typical {
		for e, message := range map[Encoding][]byte{JSON: []byte(text), CBOR: appendCBOR(nil, []byte(text))} {
			d, r := Decoder{Limits: testLimits}, Request{}
			if n := testing.AllocsPerRun(100, func() {
				r = Request{}
				if err := d.Decode(message, e, &r); err != nil || r.Type != name {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("%s in %v: %v allocations", name, e, n)
			}
		}
	}
}

// TestWriter_NoGarbage: nothing is allocated to write into a buffer that is large enough.
func TestWriter_NoGarbage(t *testing.T) {
	m := engine.Message{Position: 5, Key: "customer-3", Time: time.Now(), Payload: make([]byte, 1000)}
	for _, e := range []Encoding{JSON, CBOR} {
		w := Writer{Encoding: e}
		write := func() {
			w.Buf = w.Buf[:0]
			w.Open()
			w.Name("position")
			w.Int(m.Position)
			w.Name("key")
			w.Text(m.Key)
			w.Name("time")
			w.Time(m.Time)
			w.Data("payload", "payload_base64", m.Payload)
			w.Close()
		}
		write()
		if n := testing.AllocsPerRun(100, write); n != 0 {
			t.Errorf("%v: %v allocations", e, n)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	for name, text := range typical {
		for e, message := range map[Encoding][]byte{JSON: []byte(text), CBOR: appendCBOR(nil, []byte(text))} {
			b.Run(name+"/"+e.String(), func(b *testing.B) {
				d := Decoder{Limits: testLimits}
				for b.Loop() {
					var r Request
					if err := d.Decode(message, e, &r); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
