package wire

import (
	"math"
	"strconv"
	"strings"
)

// appendJSON appends the next value as JSON. It calls itself no deeper than Limits.Depth.
func (r *cborReader) appendJSON(out []byte) []byte {
	c := r.next()
	if r.err != nil {
		return out
	}
	switch c >> 5 {
	case cborMap:
		return r.appendObject(out)
	case cborArray:
		out = append(out, '[')
		r.array()
		for n := 0; r.element(); n++ {
			if n > 0 {
				out = append(out, ',')
			}
			out = r.appendJSON(out)
		}
		return append(out, ']')
	case cborText:
		text, _ := r.str()
		return AppendText(out, text)
	case cborBytes:
		r.wants("a value of JSON, which has no byte strings")
		return out
	}
	r.begin()
	major, low, n, ok := r.head()
	switch {
	case !ok:
	case major == cborUint:
		return strconv.AppendUint(out, n, 10)
	case major == cborNegint && n == math.MaxUint64:
		return append(out, "-18446744073709551616"...)
	case major == cborNegint:
		return strconv.AppendUint(append(out, '-'), n+1, 10)
	case low == cborFalse:
		return append(out, "false"...)
	case low == cborTrue:
		return append(out, "true"...)
	case low == cborNull || low == cborUndefined:
		return append(out, "null"...)
	case low >= cborHalf && low <= cborDouble:
		if f := floatOf(low, n); !math.IsInf(f, 0) && !math.IsNaN(f) {
			return strconv.AppendFloat(out, f, 'g', -1, 64)
		}
	}
	r.wants("a value of JSON")
	return out
}

func (r *cborReader) appendObject(out []byte) []byte {
	out = append(out, '{')
	r.object()
	for n := 0; ; n++ {
		name, ok := r.name()
		if !ok {
			return append(out, '}')
		}
		if n > 0 {
			out = append(out, ',')
		}
		out = append(AppendText(out, name), ':')
		out = r.appendJSON(out)
	}
}

// appendCBOR appends a value of JSON, which has to be valid, as CBOR. Numbers that are no whole numbers of 64 bits become
// floats.
func appendCBOR(out, text []byte) []byte {
	var r jsonReader
	r.state = state{message: text, limits: Limits{math.MaxInt, math.MaxInt}}
	return r.appendCBOR(out)
}

// appendCBOR appends the next value. What is nested deeper than a message may be was not stored by a client.
func (r *jsonReader) appendCBOR(out []byte) []byte {
	switch c := r.next(); c {
	case '{':
		out = append(out, cborMap<<5|cborIndefinite)
		r.object()
		for {
			name, ok := r.name()
			if !ok {
				return append(out, cborBreak)
			}
			out = appendHead(out, cborText, uint64(len(name)))
			out = r.appendCBOR(append(out, name...))
		}
	case '[':
		out = append(out, cborArray<<5|cborIndefinite)
		r.array()
		for r.element() {
			out = r.appendCBOR(out)
		}
		return append(out, cborBreak)
	case '"':
		text, _ := r.quoted()
		return append(appendHead(out, cborText, uint64(len(text))), text...)
	case 't', 'f':
		value, _ := r.boolean()
		return appendBool(out, value)
	case 'n':
		r.null()
		return append(out, cborSimple<<5|cborNull)
	default:
		if c != '-' && (c < '0' || c > '9') { // no JSON
			r.broken()
			return append(out, cborSimple<<5|cborNull)
		}
		number, _ := r.number()
		return appendNumber(out, number)
	}
}

// appendNumber appends a number of JSON.
func appendNumber(out, number []byte) []byte {
	if n, ok := parseInteger(number); ok && string(number) != "-0" {
		return appendInt(out, n)
	}
	if n, err := strconv.ParseUint(string(number), 10, 64); err == nil {
		return appendHead(out, cborUint, n)
	}
	f, err := strconv.ParseFloat(string(number), 64)
	if err != nil && strings.HasPrefix(string(number), "-") { // out of range
		f = -math.MaxFloat64
	} else if err != nil {
		f = math.MaxFloat64
	}
	return appendFloat(out, f)
}
