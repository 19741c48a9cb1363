package wire

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"
	"time"
	"unicode/utf8"
)

// Writer writes one message after another into Buf. The maps and arrays that it writes in CBOR have no length, so that
// what they hold need not be counted first.
type Writer struct {
	Buf      []byte
	Encoding Encoding

	time     time.Time // the last time that was written, and its text: messages of one batch have the same
	timeText []byte
}

// Open begins an object, as a field's value, an element, or the message itself.
func (w *Writer) Open() {
	if w.Encoding == CBOR {
		w.Buf = append(w.Buf, cborMap<<5|cborIndefinite)
		return
	}
	w.Buf = append(w.Buf, '{')
}

// Close ends an object.
func (w *Writer) Close() {
	if w.Encoding == CBOR {
		w.Buf = append(w.Buf, cborBreak)
		return
	}
	w.Buf = append(w.Buf, '}')
}

// OpenList begins an array.
func (w *Writer) OpenList() {
	if w.Encoding == CBOR {
		w.Buf = append(w.Buf, cborArray<<5|cborIndefinite)
		return
	}
	w.Buf = append(w.Buf, '[')
}

// CloseList ends an array.
func (w *Writer) CloseList() {
	if w.Encoding == CBOR {
		w.Buf = append(w.Buf, cborBreak)
		return
	}
	w.Buf = append(w.Buf, ']')
}

// Next begins an element of an array.
func (w *Writer) Next() {
	if w.Encoding == JSON && w.Buf[len(w.Buf)-1] != '[' {
		w.Buf = append(w.Buf, ',')
	}
}

// Name begins a field. The name has at most 23 bytes, and none that JSON has to escape.
func (w *Writer) Name(name string) {
	if w.Encoding == CBOR {
		w.Buf = append(append(w.Buf, cborText<<5|byte(len(name))), name...)
		return
	}
	if w.Buf[len(w.Buf)-1] != '{' {
		w.Buf = append(w.Buf, ',')
	}
	w.Buf = append(append(append(w.Buf, '"'), name...), '"', ':')
}

// Text writes a string, which has to be UTF-8.
func (w *Writer) Text(s string) { writeText(w, s) }

func writeText[T string | []byte](w *Writer, s T) {
	if w.Encoding == CBOR {
		w.Buf = append(appendHead(w.Buf, cborText, uint64(len(s))), s...)
		return
	}
	w.Buf = AppendText(w.Buf, s)
}

// Int writes a number.
func (w *Writer) Int(n int64) {
	if w.Encoding == CBOR {
		w.Buf = appendInt(w.Buf, n)
		return
	}
	w.Buf = strconv.AppendInt(w.Buf, n, 10)
}

// Bool writes true or false.
func (w *Writer) Bool(b bool) {
	if w.Encoding == CBOR {
		w.Buf = appendBool(w.Buf, b)
		return
	}
	w.Buf = strconv.AppendBool(w.Buf, b)
}

// Time writes a time as RFC 3339 has it, in UTC.
func (w *Writer) Time(t time.Time) {
	if w.timeText == nil || !t.Equal(w.time) {
		w.time, w.timeText = t, t.UTC().AppendFormat(w.timeText[:0], time.RFC3339Nano)
	}
	writeText(w, w.timeText)
}

// Encoded writes a value that is encoded already, such as the id of a request.
func (w *Writer) Encoded(value []byte) { w.Buf = append(w.Buf, value...) }

// JSON writes a valid value of JSON.
func (w *Writer) JSON(value []byte) {
	if w.Encoding == CBOR {
		w.Buf = appendCBOR(w.Buf, value)
		return
	}
	w.Buf = append(w.Buf, value...)
}

// Data writes a field of bytes. In JSON it is a text if they are UTF-8, and else base64, with a name of its own.
func (w *Writer) Data(name, base64Name string, data []byte) {
	if w.Encoding == JSON && utf8.Valid(data) {
		w.Name(name)
		w.Buf = AppendText(w.Buf, data)
		return
	}
	w.Bytes(name, base64Name, data)
}

// Bytes writes a field of bytes. In JSON it is base64, with a name of its own.
func (w *Writer) Bytes(name, base64Name string, data []byte) {
	if w.Encoding == CBOR {
		w.Name(name)
		w.Buf = append(appendHead(w.Buf, cborBytes, uint64(len(data))), data...)
		return
	}
	w.Name(base64Name)
	w.Buf = append(w.Buf, '"')
	w.Buf = append(base64.StdEncoding.AppendEncode(w.Buf, data), '"')
}

// appendHead appends the first bytes of a value of CBOR, in their shortest form.
func appendHead(out []byte, major byte, n uint64) []byte {
	major <<= 5
	switch {
	case n < 24:
		return append(out, major|byte(n))
	case n <= math.MaxUint8:
		return append(out, major|24, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(out, major|25), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(out, major|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(out, major|27), n)
}

func appendInt(out []byte, n int64) []byte {
	if n < 0 {
		return appendHead(out, cborNegint, uint64(-1-n))
	}
	return appendHead(out, cborUint, uint64(n))
}

func appendBool(out []byte, b bool) []byte {
	if b {
		return append(out, cborSimple<<5|cborTrue)
	}
	return append(out, cborSimple<<5|cborFalse)
}

func appendFloat(out []byte, f float64) []byte {
	return binary.BigEndian.AppendUint64(append(out, cborSimple<<5|cborDouble), math.Float64bits(f))
}

const hexDigits = "0123456789abcdef"

// AppendText appends valid UTF-8 as a string of JSON.
func AppendText[T string | []byte](dst []byte, text T) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, text[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(append(dst, text[from:]...), '"')
}
