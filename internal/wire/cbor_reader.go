package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"
)

// Major types of CBOR, RFC 8949, section 3.1.
const (
	cborUint   = 0
	cborNegint = 1
	cborBytes  = 2
	cborText   = 3
	cborArray  = 4
	cborMap    = 5
	cborTag    = 6
	cborSimple = 7
)

// The low five bits of the first byte, after the major type.
const (
	cborFalse      = 20
	cborTrue       = 21
	cborNull       = 22
	cborUndefined  = 23
	cborHalf       = 25 // a float of 2 bytes
	cborFloat      = 26 // of 4
	cborDouble     = 27 // of 8
	cborIndefinite = 31
	cborBreak      = cborSimple<<5 | cborIndefinite
)

// cborReader is the reader of CBOR. Fields are texts; tags are read over; strings, arrays and maps may have a
// definite length or none. A fuzz test compares it with fxamacker/cbor.
type cborReader struct {
	state
	lefts []int64 // of each map and array around the next value: fields or elements left, -1 without a length
}

func (r *cborReader) reset(message []byte, limits Limits) {
	*r = cborReader{state: state{message: message, limits: limits}, lefts: r.lefts[:0]}
	if len(message) == 0 {
		r.fail(&Error{Text: "want a CBOR map", Broken: true})
	}
}

func (r *cborReader) broken(why string) bool {
	r.fail(&Error{Text: "not CBOR: " + why, Broken: true})
	return false
}

func (r *cborReader) ignore(name []byte) {
	r.noteUnknown(name)
	r.skip()
}

// head reads the first bytes of a value: its major type, the low bits, and the number that follows them.
func (r *cborReader) head() (major, low byte, n uint64, ok bool) {
	if r.i >= len(r.message) {
		return 0, 0, 0, r.broken("it ends too early")
	}
	major, low = r.message[r.i]>>5, r.message[r.i]&31
	size := 0
	switch {
	case low < 24:
		r.i++
		return major, low, uint64(low), true
	case low < 28:
		size = 1 << (low - 24)
	case low != cborIndefinite || major == cborUint || major == cborNegint || major == cborTag:
		return 0, 0, 0, r.broken("a value has a length that does not exist")
	}
	if len(r.message)-r.i <= size {
		return 0, 0, 0, r.broken("it ends too early")
	}
	r.i++
	switch size {
	case 1:
		n = uint64(r.message[r.i])
	case 2:
		n = uint64(binary.BigEndian.Uint16(r.message[r.i:]))
	case 4:
		n = uint64(binary.BigEndian.Uint32(r.message[r.i:]))
	case 8:
		n = binary.BigEndian.Uint64(r.message[r.i:])
	}
	r.i += size
	return major, low, n, true
}

// next returns the first byte of the next value, after its tags; 0xff, which begins none, at the end.
func (r *cborReader) next() byte {
	tags := 0
	for r.i < len(r.message) && r.message[r.i]>>5 == cborTag {
		if tags++; tags > r.limits.Depth {
			r.fail(&Error{Text: fmt.Sprintf("too many tags: want at most %d before a value", r.limits.Depth)})
			return cborBreak
		}
		if _, _, _, ok := r.head(); !ok {
			return cborBreak
		}
	}
	if r.i >= len(r.message) {
		r.broken("it ends too early")
		return cborBreak
	}
	return r.message[r.i]
}

func (r *cborReader) is(major byte) bool { return r.next()>>5 == major && r.err == nil }

// open enters a map or array.
func (r *cborReader) open(major byte, what string) bool {
	if !r.is(major) {
		r.wants(what)
		return false
	}
	if !r.begin() || !r.enter() {
		return false
	}
	_, low, n, ok := r.head()
	if !ok {
		return false
	}
	left := int64(-1)
	if low != cborIndefinite {
		if n > uint64(len(r.message)-r.i) { // each takes a byte or more
			return r.broken("a length is larger than the message")
		}
		left = int64(n)
	}
	r.lefts = append(r.lefts, left)
	return true
}

// follows reports whether there is one more field or element.
func (r *cborReader) follows() bool {
	if r.err != nil {
		return false
	}
	left := &r.lefts[len(r.lefts)-1]
	switch {
	case *left > 0:
		*left--
		return true
	case *left < 0 && r.i >= len(r.message):
		return r.broken("it ends too early")
	case *left < 0 && r.message[r.i] != cborBreak:
		return true
	case *left < 0:
		r.i++
	}
	r.lefts = r.lefts[:len(r.lefts)-1]
	r.depth--
	return false
}

func (r *cborReader) object() bool  { return r.open(cborMap, "a map") }
func (r *cborReader) array() bool   { return r.open(cborArray, "an array") }
func (r *cborReader) element() bool { return r.follows() }
func (r *cborReader) bytes() bool   { return r.is(cborBytes) }

func (r *cborReader) name() ([]byte, bool) {
	if !r.follows() {
		return nil, false
	}
	if !r.is(cborText) {
		r.fail(&Error{Text: "want a map whose keys are texts"})
		return nil, false
	}
	return r.str()
}

func (r *cborReader) null() bool {
	if c := r.next(); r.err != nil || c != cborSimple<<5|cborNull && c != cborSimple<<5|cborUndefined {
		return false
	}
	r.i++
	return r.begin()
}

func (r *cborReader) text() ([]byte, bool) {
	if !r.is(cborText) {
		r.wants("a text")
		return nil, false
	}
	return r.str()
}

func (r *cborReader) data() ([]byte, bool) {
	if c := r.next() >> 5; r.err != nil || c != cborBytes && c != cborText {
		r.wants("a byte string or a text")
		return nil, false
	}
	return r.str()
}

// str reads a text, which has to be UTF-8, or a byte string.
func (r *cborReader) str() ([]byte, bool) {
	if !r.begin() {
		return nil, false
	}
	major, low, n, ok := r.head()
	if !ok {
		return nil, false
	}
	if low != cborIndefinite {
		return r.part(major, n)
	}
	var whole []byte
	for {
		if r.i < len(r.message) && r.message[r.i] == cborBreak {
			r.i++
			return whole, true
		}
		of, low, n, ok := r.head()
		if !ok || !r.begin() {
			return nil, false
		}
		if of != major || low == cborIndefinite {
			return nil, r.broken("a part of a string has another type")
		}
		part, ok := r.part(major, n)
		if !ok {
			return nil, false
		}
		whole = append(whole, part...)
	}
}

// part reads the bytes of a string whose length is known.
func (r *cborReader) part(major byte, n uint64) ([]byte, bool) {
	if n > uint64(len(r.message)-r.i) {
		return nil, r.broken("a length is larger than the message")
	}
	part := r.message[r.i : r.i+int(n) : r.i+int(n)]
	if major == cborText && !utf8.Valid(part) {
		return nil, r.broken("a text is not UTF-8")
	}
	r.i += int(n)
	return part, true
}

func (r *cborReader) boolean() (value, ok bool) {
	c := r.next()
	if value = c == cborSimple<<5|cborTrue; r.err == nil && (value || c == cborSimple<<5|cborFalse) {
		r.i++
		return value, r.begin()
	}
	r.wants("true or false")
	return false, false
}

// integer takes a float too that has no fraction: encoders of JavaScript write large numbers so.
func (r *cborReader) integer() (int64, bool) {
	if major := r.next() >> 5; r.err != nil || major != cborUint && major != cborNegint && major != cborSimple {
		r.wants(wantInteger)
		return 0, false
	}
	if !r.begin() {
		return 0, false
	}
	major, low, n, ok := r.head()
	switch {
	case !ok:
		return 0, false
	case major == cborUint && n <= math.MaxInt64:
		return int64(n), true
	case major == cborNegint && n <= math.MaxInt64:
		return -1 - int64(n), true
	case major == cborSimple && low >= cborHalf && low <= cborDouble:
		const exact = 1 << 53 // up to here each whole number is a float
		if f := floatOf(low, n); f == math.Trunc(f) && math.Abs(f) <= exact {
			return int64(f), true
		}
	}
	r.wants(wantInteger)
	return 0, false
}

// floatOf returns the float whose bits are n.
func floatOf(low byte, n uint64) float64 {
	switch low {
	case cborFloat:
		return float64(math.Float32frombits(uint32(n)))
	case cborDouble:
		return math.Float64frombits(n)
	}
	sign, exponent, fraction := 1.0, int(n>>10&31), float64(n&1023) // RFC 8949, appendix D
	if n>>15 == 1 {
		sign = -1
	}
	switch {
	case exponent == 31 && fraction == 0:
		return math.Inf(int(sign))
	case exponent == 31:
		return math.NaN()
	case exponent == 0:
		return sign * math.Ldexp(fraction, -24)
	}
	return sign * math.Ldexp(fraction+1024, exponent-25)
}

func (r *cborReader) scalar() ([]byte, bool) {
	c := r.next()
	from := r.i
	low := c & 31
	switch major := c >> 5; {
	case r.err != nil:
		return nil, false
	case major == cborText && low != cborIndefinite:
		if _, ok := r.str(); !ok {
			return nil, false
		}
	case major == cborUint || major == cborNegint || major == cborSimple && low >= cborHalf && low <= cborDouble:
		if _, _, _, ok := r.head(); !ok || !r.begin() {
			return nil, false
		}
	default:
		r.wants("a text or number")
		return nil, false
	}
	return r.message[from:r.i:r.i], true
}

// skip reads any value. It calls itself no deeper than Limits.Depth.
func (r *cborReader) skip() bool {
	switch r.next() >> 5 {
	case cborMap:
		r.object()
		for r.err == nil && r.follows() {
			r.skip() // the key, which may be anything here
			if !r.skip() {
				return false
			}
		}
	case cborArray:
		r.array()
		for r.err == nil && r.follows() {
			if !r.skip() {
				return false
			}
		}
	case cborBytes, cborText:
		r.str()
	default:
		if major, low, n, ok := r.head(); ok && major == cborSimple && (low == 24 && n < 32 || low == cborIndefinite) {
			return r.broken("a simple value that does not exist")
		}
		r.begin()
	}
	return r.err == nil
}

func (r *cborReader) end() bool {
	if r.err == nil && r.i < len(r.message) {
		return r.broken("there is something after the message")
	}
	return r.err == nil
}

// json translates any value. Texts, numbers, booleans, null, arrays, and maps whose keys are texts are values of
// JSON too; others are refused.
func (r *cborReader) json() ([]byte, bool) {
	out := r.appendJSON(nil)
	return out, r.err == nil
}
