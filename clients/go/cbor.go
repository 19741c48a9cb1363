package tidewire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"strings"
)

// Kinds of CBOR values, in the first three bits of a value (RFC 8949), and some whole bytes.
const (
	cborUint   = 0 << 5
	cborInt    = 1 << 5
	cborBytes  = 2 << 5
	cborText   = 3 << 5
	cborArray  = 4 << 5
	cborObject = 5 << 5
	cborTag    = 6 << 5
	cborSimple = 7 << 5

	cborMap   = 0xbf // a map without a length
	cborBreak = 0xff
	cborFalse = 0xf4
	cborTrue  = 0xf5
	cborNull  = 0xf6

	cborDepth = 64
)

var errCBOR = errors.New("tidewire: the server has sent something that is not CBOR")

// appendHead appends the kind and the length, or the number, of a value.
func appendHead(dst []byte, kind byte, n uint64) []byte {
	switch {
	case n < 24:
		return append(dst, kind|byte(n))
	case n <= math.MaxUint8:
		return append(dst, kind|24, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, kind|25), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(dst, kind|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, kind|27), n)
}

func appendInt(dst []byte, n int64) []byte {
	if n < 0 {
		return appendHead(dst, cborInt, uint64(^n))
	}
	return appendHead(dst, cborUint, uint64(n))
}

func appendCBORText(dst []byte, text string) []byte {
	text = strings.ToValidUTF8(text, "\uFFFD")
	return append(appendHead(dst, cborText, uint64(len(text))), text...)
}

// appendJSONAsCBOR appends a value that is JSON.
func appendJSONAsCBOR(dst []byte, text json.RawMessage) []byte {
	var value any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&value) != nil {
		return append(dst, cborNull)
	}
	return appendValue(dst, value)
}

// appendValue appends a value that has come from JSON.
func appendValue(dst []byte, value any) []byte {
	switch v := value.(type) {
	case bool:
		if v {
			return append(dst, cborTrue)
		}
		return append(dst, cborFalse)
	case string:
		return appendCBORText(dst, v)
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return appendInt(dst, n)
		}
		f, _ := v.Float64()
		return binary.BigEndian.AppendUint64(append(dst, cborSimple|27), math.Float64bits(f))
	case []any:
		dst = appendHead(dst, cborArray, uint64(len(v)))
		for _, e := range v {
			dst = appendValue(dst, e)
		}
		return dst
	case map[string]any:
		dst = appendHead(dst, cborObject, uint64(len(v)))
		for name, e := range v {
			dst = appendValue(appendCBORText(dst, name), e)
		}
		return dst
	}
	return append(dst, cborNull)
}

// decoder reads CBOR. It trusts nothing that it reads.
type decoder struct {
	data []byte
	at   int
}

// head reads the beginning of a value. open says that it has no length, and ends with a break.
func (d *decoder) head() (kind byte, n uint64, open bool, err error) {
	for {
		if d.at >= len(d.data) {
			return 0, 0, false, errCBOR
		}
		b := d.data[d.at]
		d.at++
		kind = b & 0xe0
		switch info := b & 0x1f; {
		case info < 24:
			n = uint64(info)
		case info < 28:
			size := 1 << (info - 24)
			if len(d.data)-d.at < size {
				return 0, 0, false, errCBOR
			}
			n = 0
			for _, b := range d.data[d.at : d.at+size] {
				n = n<<8 | uint64(b)
			}
			d.at += size
		case info == 31 && kind >= cborBytes && kind <= cborObject:
			return kind, 0, true, nil
		default:
			return 0, 0, false, errCBOR
		}
		if kind != cborTag {
			return kind, n, false, nil
		}
	}
}

// ends takes the break after values without a length.
func (d *decoder) ends() bool {
	if d.at < len(d.data) && d.data[d.at] == cborBreak {
		d.at++
		return true
	}
	return false
}

// more reports whether an array or a map that began with n and open has another value; i counts those that were read.
func (d *decoder) more(i, n uint64, open bool) bool {
	if open {
		return !d.ends()
	}
	return i < n
}

// bytes reads a text or bytes. What it returns may be a part of the data.
func (d *decoder) bytes() ([]byte, error) {
	kind, n, open, err := d.head()
	if err != nil || kind != cborBytes && kind != cborText {
		return nil, errCBOR
	}
	return d.rest(kind, n, open)
}

// rest reads a text or bytes after the head.
func (d *decoder) rest(kind byte, n uint64, open bool) ([]byte, error) {
	if !open {
		if n > uint64(len(d.data)-d.at) {
			return nil, errCBOR
		}
		d.at += int(n)
		return d.data[d.at-int(n) : d.at], nil
	}
	var all []byte
	for !d.ends() {
		part, n, open, err := d.head()
		if err != nil || part != kind || open {
			return nil, errCBOR
		}
		chunk, err := d.rest(kind, n, false)
		if err != nil {
			return nil, err
		}
		all = append(all, chunk...)
	}
	return all, nil
}

// number reads a whole number.
func (d *decoder) number() (int64, error) {
	at := d.at
	if kind, n, _, err := d.head(); err == nil && kind == cborUint && n <= math.MaxInt64 {
		return int64(n), nil
	}
	d.at = at
	value, err := d.value(cborDepth)
	switch n := value.(type) {
	case int64:
		return n, err
	case float64:
		if isInt64(n) {
			return int64(n), err
		}
	}
	return 0, errNumber
}

// value reads any value: nil, bool, int64, float64, string, []byte, []any or map[string]any.
func (d *decoder) value(depth int) (any, error) {
	at := d.at
	kind, n, open, err := d.head()
	if err != nil || depth > cborDepth {
		return nil, errCBOR
	}
	switch kind {
	case cborUint:
		if n > math.MaxInt64 {
			return float64(n), nil
		}
		return int64(n), nil
	case cborInt:
		if n > math.MaxInt64 {
			return -1 - float64(n), nil
		}
		return ^int64(n), nil
	case cborBytes:
		b, err := d.rest(kind, n, open)
		return bytes.Clone(b), err
	case cborText:
		b, err := d.rest(kind, n, open)
		return string(b), err
	case cborArray:
		return d.list(n, open, depth)
	case cborObject:
		return d.object(n, open, depth)
	}
	return simple(d.data[at], d.at-at, n)
}

// simple returns a value of the last kind, which has size bytes.
func simple(first byte, size int, n uint64) (any, error) {
	switch {
	case first == cborFalse || first == cborTrue:
		return first == cborTrue, nil
	case first == cborNull || first == cborNull+1:
		return nil, nil
	case size == 3:
		return half(uint16(n)), nil
	case size == 5:
		return float64(math.Float32frombits(uint32(n))), nil
	case size == 9:
		return math.Float64frombits(n), nil
	}
	return nil, errCBOR
}

// half returns a number of 16 bits.
func half(bits uint16) float64 {
	exponent, fraction := int(bits>>10&31), float64(bits&1023)
	var f float64
	switch exponent {
	case 0:
		f = math.Ldexp(fraction, -24)
	case 31:
		f = math.Inf(1)
		if fraction != 0 {
			f = math.NaN()
		}
	default:
		f = math.Ldexp(fraction+1024, exponent-25)
	}
	if bits>>15 != 0 {
		return -f
	}
	return f
}

func (d *decoder) list(n uint64, open bool, depth int) (any, error) {
	all := []any{}
	for i := uint64(0); d.more(i, n, open); i++ {
		value, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		all = append(all, value)
	}
	return all, nil
}

func (d *decoder) object(n uint64, open bool, depth int) (any, error) {
	all := map[string]any{}
	for i := uint64(0); d.more(i, n, open); i++ {
		name, err := d.bytes()
		if err != nil {
			return nil, err
		}
		if all[string(name)], err = d.value(depth + 1); err != nil {
			return nil, err
		}
	}
	return all, nil
}
