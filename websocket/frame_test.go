package websocket

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestHeader_encoding(t *testing.T) {
	t.Parallel()
	key := [4]byte{1, 2, 3, 4}
	for _, test := range []struct {
		name string
		h    Header
		want []byte
	}{
		{"empty text", Header{Fin: true, Op: OpText}, []byte{0x81, 0}},
		{"7 bit at its end", Header{Fin: true, Op: OpBinary, Length: 125}, []byte{0x82, 125}},
		{"16 bit at its start", Header{Fin: true, Op: OpBinary, Length: 126}, []byte{0x82, 126, 0, 126}},
		{"16 bit at its end", Header{Op: OpText, Length: 65535}, []byte{0x01, 126, 0xFF, 0xFF}},
		{"64 bit at its start", Header{Op: OpText, Length: 65536}, []byte{0x01, 127, 0, 0, 0, 0, 0, 1, 0, 0}},
		{"64 bit at its end", Header{Op: OpText, Length: 1<<63 - 1}, []byte{0x01, 127, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}},
		{"masked", Header{Fin: true, Op: OpPing, Masked: true, Key: key, Length: 3}, []byte{0x89, 0x83, 1, 2, 3, 4}},
		{"masked 16 bit", Header{Fin: true, Op: OpText, Masked: true, Key: key, Length: 300}, []byte{0x81, 0xFE, 1, 44, 1, 2, 3, 4}},
		{"reserved bits", Header{RSV: 5, Op: OpContinuation}, []byte{0x50, 0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := AppendHeader(nil, test.h); !bytes.Equal(got, test.want) {
				t.Fatalf("encoded %x, want %x", got, test.want)
			}
			for cut := range test.want {
				if _, n, err := ParseHeader(test.want[:cut]); n != 0 || err != nil {
					t.Fatalf("%d bytes of it: n %d, %v", cut, n, err)
				}
			}
			for _, b := range [][]byte{test.want, append(test.want, 0xAA)} {
				got, n, err := ParseHeader(b)
				if got != test.h || n != len(test.want) || err != nil {
					t.Fatalf("parsed %+v, %d, %v", got, n, err)
				}
			}
		})
	}
}

func TestAppendClose(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 100)
	for _, test := range []struct {
		code   StatusCode
		reason string
		want   error
	}{
		{StatusGoingAway, "bye", &CloseError{StatusGoingAway, "bye"}},
		{4999, "", &CloseError{4999, ""}},
		{StatusNone, "unsaid", &CloseError{StatusNone, ""}},
		{0, "", &CloseError{StatusNone, ""}},
		{StatusNormal, long, &CloseError{StatusNormal, long[:122]}},
	} {
		frame := AppendClose(nil, test.code, test.reason)
		h, n, err := ParseHeader(frame)
		if err != nil || h.Validate() != nil || h.Op != OpClose {
			t.Fatalf("%v: %+v, %v", test, h, err)
		}
		var got *CloseError
		if !errors.As(parseClose(frame[n:]), &got) || got.Error() != test.want.Error() {
			t.Errorf("got %v, want %v", got, test.want)
		}
	}
}

func FuzzHeader(f *testing.F) {
	f.Add([]byte{0x81, 0xFE, 1, 44, 1, 2, 3, 4})
	f.Add([]byte{0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, n, err := ParseHeader(b)
		if err != nil || n == 0 {
			return
		}
		if again := AppendHeader(nil, h); !bytes.Equal(again, b[:n]) {
			t.Fatalf("%x became %x", b[:n], again)
		}
	})
}

func FuzzMask(f *testing.F) {
	f.Add([]byte("some text to mask, longer than thirty-two bytes in all"), uint32(0x01020304), uint8(3), uint8(7))
	f.Fuzz(func(t *testing.T, b []byte, k uint32, pos, cut uint8) {
		key := [4]byte{byte(k), byte(k >> 8), byte(k >> 16), byte(k >> 24)}
		want := bytes.Clone(b)
		var or byte
		for i := range want {
			want[i] ^= key[(int(pos)+i)%4]
			or |= want[i]
		}
		whole := bytes.Clone(b)
		if seen := xor(whole, word(key, int(pos))); (seen&highBits == 0) != (or < 0x80) {
			t.Errorf("saw %x in % x", seen, whole)
		}
		pieces := bytes.Clone(b)
		at := min(int(cut), len(b))
		if next := Mask(pieces[at:], key, Mask(pieces[:at], key, int(pos))); next != int(pos)+len(b) {
			t.Errorf("position %d", next)
		}
		if !bytes.Equal(whole, want) || !bytes.Equal(pieces, want) {
			t.Errorf("key %x at %d:\n got %x\n and %x\nwant %x", key, pos, whole, pieces, want)
		}
	})
}

// couldBecomeText is a simple reference for checkText: it tries possible
// continuations.
func couldBecomeText(b []byte) bool {
	tails := []string{""}
	for depth := 0; depth < 4; depth++ {
		var longer []string
		for _, tail := range tails {
			if utf8.Valid(append(bytes.Clone(b), tail...)) {
				return true
			}
			for _, next := range []byte{0x80, 0x90, 0xA0} { // each lies in another of UTF-8's ranges
				longer = append(longer, tail+string([]byte{next}))
			}
		}
		tails = longer
	}
	return false
}

func TestCheckText(t *testing.T) {
	t.Parallel()
	bytesOfInterest := []byte{0, 'a', 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1,
		0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF}
	var try func(b []byte)
	try = func(b []byte) {
		whole, ok := checkText(b)
		if want := couldBecomeText(b); ok != want {
			t.Errorf("%x: ok %v, want %v", b, ok, want)
		}
		if ok && !utf8.Valid(b[:whole]) {
			t.Errorf("%x: %d whole bytes", b, whole)
		}
		if ok && (whole == len(b)) != utf8.Valid(b) {
			t.Errorf("%x: %d whole bytes of %d", b, whole, len(b))
		}
		if len(b) < 2 || ok && (len(b) < 3 || b[0] >= 0xF0 && len(b) < 4) {
			for _, next := range bytesOfInterest {
				try(append(b[:len(b):len(b)], next))
			}
		}
	}
	try(nil)
}
