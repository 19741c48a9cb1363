package tidewire

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// writer writes one message of the client after the other, as JSON or as CBOR.
type writer struct {
	buf  []byte
	cbor bool
}

// begin begins a message; the id is left out if it is 0.
func (w *writer) begin(kind string, id uint64) {
	if w.cbor {
		w.buf = append(w.buf[:0], cborMap)
		w.text("type", kind)
	} else {
		w.buf = append(w.buf[:0], `{"type":"`...)
		w.buf = append(append(w.buf, kind...), '"')
	}
	if id != 0 {
		w.number("id", int64(id))
	}
}

func (w *writer) end() {
	if w.cbor {
		w.buf = append(w.buf, cborBreak)
		return
	}
	w.buf = append(w.buf, '}')
}

// name writes the name of a field that is not the first one.
func (w *writer) name(name string) {
	if w.cbor {
		w.buf = append(appendHead(w.buf, cborText, uint64(len(name))), name...)
		return
	}
	w.buf = append(w.buf, ',', '"')
	w.buf = append(w.buf, name...)
	w.buf = append(w.buf, '"', ':')
}

func (w *writer) text(name, value string) {
	w.name(name)
	w.value(value)
}

// value writes a text. What is not UTF-8 becomes U+FFFD.
func (w *writer) value(text string) {
	if w.cbor {
		w.buf = appendCBORText(w.buf, text)
		return
	}
	w.buf = appendString(w.buf, text)
}

func (w *writer) number(name string, n int64) {
	w.name(name)
	if w.cbor {
		w.buf = appendInt(w.buf, n)
		return
	}
	w.buf = strconv.AppendInt(w.buf, n, 10)
}

// yes writes true.
func (w *writer) yes(name string) {
	w.name(name)
	if w.cbor {
		w.buf = append(w.buf, cborTrue)
		return
	}
	w.buf = append(w.buf, "true"...)
}

// array begins an array of n values. The caller writes them, with comma before each but the first, and then endArray.
func (w *writer) array(name string, n int) {
	w.name(name)
	if w.cbor {
		w.buf = appendHead(w.buf, cborArray, uint64(n))
		return
	}
	w.buf = append(w.buf, '[')
}

func (w *writer) comma() {
	if !w.cbor {
		w.buf = append(w.buf, ',')
	}
}

func (w *writer) endArray() {
	if !w.cbor {
		w.buf = append(w.buf, ']')
	}
}

func (w *writer) texts(name string, values []string) {
	w.array(name, len(values))
	for i, value := range values {
		if i > 0 {
			w.comma()
		}
		w.value(value)
	}
	w.endArray()
}

// json writes a value that is JSON.
func (w *writer) json(name string, value json.RawMessage) {
	w.name(name)
	if w.cbor {
		w.buf = appendJSONAsCBOR(w.buf, value)
		return
	}
	w.buf = append(w.buf, value...)
}

// fields writes the fields of an object that is JSON, into a message that is.
func (w *writer) fields(object json.RawMessage) {
	if len(object) > 2 {
		w.comma()
		w.buf = append(w.buf, object[1:len(object)-1]...)
	}
}

// payload writes a payload: as bytes, or as a text if that is what JSON can hold.
func (w *writer) payload(payload []byte) {
	switch {
	case w.cbor:
		w.name("payload")
		w.buf = append(appendHead(w.buf, cborBytes, uint64(len(payload))), payload...)
	case utf8.Valid(payload):
		w.name("payload")
		w.buf = appendString(w.buf, payload)
	default:
		w.name("payload_base64")
		w.buf = append(w.buf, '"')
		w.buf = base64.StdEncoding.AppendEncode(w.buf, payload)
		w.buf = append(w.buf, '"')
	}
}

const digits = "0123456789abcdef"

// appendString appends a text as a JSON string. What is not UTF-8 becomes U+FFFD.
func appendString[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		b := s[i]
		if b >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[from:i]...), "\uFFFD"...)
				from = i + 1
			}
			i += n
			continue
		}
		if b >= ' ' && b != '"' && b != '\\' {
			i++
			continue
		}
		dst = append(dst, s[from:i]...)
		switch b {
		case '"', '\\':
			dst = append(dst, '\\', b)
		case '\n':
			dst = append(dst, '\\', 'n')
		default:
			dst = append(dst, '\\', 'u', '0', '0', digits[b>>4], digits[b&15])
		}
		i++
		from = i
	}
	return append(append(dst, s[from:]...), '"')
}
