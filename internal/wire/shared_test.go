package wire

import (
	"reflect"
	"testing"
)

// TestDecode_Sharing: the fields of groups that share partitions and of filters, in both encodings.
func TestDecode_Sharing(t *testing.T) {
	const text = `{"type":"subscribe","id":1,"stream":"s","group":"g","share":true,"keys":["a","é"],"headers":{"zone":"x"},"partition":7}`
	for e, message := range map[Encoding][]byte{JSON: []byte(text), CBOR: appendCBOR(nil, []byte(text))} {
		d, r := Decoder{Limits: testLimits}, Request{}
		if err := d.Decode(message, e, &r); err != nil {
			t.Fatal(err)
		}
		if !r.Share || r.Partition != 7 || !reflect.DeepEqual(r.Keys, []string{"a", "é"}) || string(r.One.Headers) != `{"zone":"x"}` {
			t.Errorf("%v: %+v", e, r)
		}
		if unknown := r.Unknown(Requests["subscribe"]); unknown == nil || unknown.Path != "partition" {
			t.Errorf("%v: subscribe takes a partition: %v", e, unknown)
		}
	}
	for text, want := range map[string]string{
		`{"share":"true"}`:             "share: want true or false",
		`{"partition":"3"}`:            "partition: want a whole number of 64 bits",
		`{"keys":{"a":1}}`:             "keys: want an array",
		`{"keys":["a",["b"]]}`:         "keys[1]: want a string",
		`{"share":true,"share":false}`: "share: want this field once",
	} {
		d, r := Decoder{Limits: testLimits}, Request{}
		if err := d.Decode([]byte(text), JSON, &r); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
