package stream

import (
	"encoding/binary"
	"errors"
	"time"
)

// pageFormat is the first byte of an encoded page.
const pageFormat = 1

var errPage = errors.New("stream: malformed page")

// appendPage encodes a page that one transaction has committed, for other processes: its messages have consecutive
// positions, one time and no headers. Without messages it says that the stream ends at position last, or 0 if that is
// not known.
//
//	format(1) count last                                                  without messages
//	format(1) count first time(µs) {key length, key, payload length, payload}   with count messages
//
// Numbers are varints (encoding/binary); only the time may be negative.
func appendPage(dst []byte, p tailPage, last int64) []byte {
	dst = binary.AppendUvarint(append(dst, pageFormat), uint64(len(p.messages)))
	if len(p.messages) == 0 {
		return binary.AppendUvarint(dst, uint64(last))
	}
	dst = binary.AppendUvarint(dst, uint64(p.first()))
	dst = binary.AppendVarint(dst, p.messages[0].Time.UnixMicro())
	for i := range p.messages {
		m := &p.messages[i]
		dst = append(binary.AppendUvarint(dst, uint64(len(m.Key))), m.Key...)
		dst = append(binary.AppendUvarint(dst, uint64(len(m.Payload))), m.Payload...)
	}
	return dst
}

// decodePage decodes a page into separate memory.
func decodePage(encoded []byte) (p tailPage, last int64, err error) {
	if len(encoded) == 0 || encoded[0] != pageFormat {
		return tailPage{}, 0, errPage
	}
	r := pageReader{rest: encoded[1:]}
	count, last := r.uvarint(), int64(r.uvarint())
	if last < 0 {
		return tailPage{}, 0, errPage
	}
	if count == 0 {
		return tailPage{}, last, r.end()
	}
	at := r.varint()
	if r.err != nil || last == 0 || count > uint64(len(r.rest)/2) { // a message takes at least 2 bytes
		return tailPage{}, 0, errPage
	}
	r.rest = append(make([]byte, 0, len(r.rest)), r.rest...)
	p.messages = make([]Message, count)
	for i := range p.messages {
		m := &p.messages[i]
		*m = Message{Position: last + int64(i), Key: string(r.bytes()), Payload: r.bytes(), Time: time.UnixMicro(at)}
		p.bytes += m.held()
	}
	if err := r.end(); err != nil || p.last() < p.first() {
		return tailPage{}, 0, errPage
	}
	return p, p.last(), nil
}

// pageReader decodes a page. After a failure all results are zero.
type pageReader struct {
	rest []byte
	err  error
}

func (r *pageReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if !r.skip(n) {
		return 0
	}
	return v
}

func (r *pageReader) varint() int64 {
	v, n := binary.Varint(r.rest)
	if !r.skip(n) {
		return 0
	}
	return v
}

// bytes returns the next bytes, after their length.
func (r *pageReader) bytes() []byte {
	n := r.uvarint()
	if r.err != nil || n > uint64(len(r.rest)) {
		r.err = errPage
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *pageReader) skip(n int) bool {
	if n <= 0 || r.err != nil {
		r.err = errPage
		return false
	}
	r.rest = r.rest[n:]
	return true
}

// end returns an error if the page was malformed or is not at its end.
func (r *pageReader) end() error {
	if r.err != nil || len(r.rest) > 0 {
		return errPage
	}
	return nil
}
