package eventstore

import (
	"encoding/binary"
	"strings"
)

// OIDs of the element types of array parameters.
// https://www.postgresql.org/docs/current/catalog-pg-type.html
const (
	oidBool  = 16
	oidBytea = 17
	oidInt8  = 20
	oidInt4  = 23
	oidText  = 25
)

// column is the elements of an array parameter, each encoded as its length and
// its value, in PostgreSQL's binary format. Columns can be concatenated without
// decoding their elements.
type column []byte

func (c *column) null() { *c = binary.BigEndian.AppendUint32(*c, 0xffffffff) }

func (c *column) text(s string) {
	*c = append(binary.BigEndian.AppendUint32(*c, uint32(len(s))), s...)
}

func (c *column) bytes(b []byte) {
	*c = append(binary.BigEndian.AppendUint32(*c, uint32(len(b))), b...)
}

func (c *column) int4(v int32) {
	*c = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(*c, 4), uint32(v))
}

func (c *column) int8(v int64) {
	*c = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(*c, 8), uint64(v))
}

func (c *column) bool(v bool) {
	b := byte(0)
	if v {
		b = 1
	}
	*c = append(*c, 0, 0, 0, 1, b)
}

// textArray appends the strings as the text of an array, such as {"a","b\"c"}:
// arrays within arrays would all have to have the same length.
func (c *column) textArray(elements []string) {
	at := len(*c)
	*c = append(*c, 0, 0, 0, 0, '{') // the length is filled in below
	for i, s := range elements {
		if i > 0 {
			*c = append(*c, ',')
		}
		*c = append(*c, '"')
		if strings.IndexByte(s, '"') < 0 && strings.IndexByte(s, '\\') < 0 {
			*c = append(*c, s...)
		} else {
			for i := range len(s) {
				if s[i] == '"' || s[i] == '\\' {
					*c = append(*c, '\\')
				}
				*c = append(*c, s[i])
			}
		}
		*c = append(*c, '"')
	}
	*c = append(*c, '}')
	binary.BigEndian.PutUint32((*c)[at:], uint32(len(*c)-at-4))
}

// packed appends an event in the format of a page, without its position, time and
// data: see migrate/sql.
func (c *column) packed(e *Event) {
	at := len(*c)
	*c = append(*c, 0, 0, 0, 0, 0) // the length is filled in below
	if e.JSON {
		(*c)[at+4] = packedJSON
	}
	*c = binary.BigEndian.AppendUint32(*c, uint32(len(e.Data)))
	*c = append(*c, byte(len(e.Type)), byte(len(e.ID)), byte(len(e.Tags)))
	*c = append(append(*c, e.Type...), e.ID...)
	for _, tag := range e.Tags {
		*c = append(binary.BigEndian.AppendUint16(*c, uint16(len(tag))), tag...)
	}
	binary.BigEndian.PutUint32((*c)[at:], uint32(len(*c)-at-4))
}

// params is the parameters of a statement in binary. They share one buffer,
// which may move while it grows.
type params struct {
	buf  []byte
	ends []int
	out  [][]byte
}

func (p *params) reset(keep int) {
	if cap(p.buf) > keep {
		p.buf = nil
	}
	p.buf, p.ends = p.buf[:0], p.ends[:0]
}

// null appends a NULL.
func (p *params) null() { p.ends = append(p.ends, -1) }

func (p *params) end() { p.ends = append(p.ends, len(p.buf)) }

func (p *params) int4(v int32) { p.buf = binary.BigEndian.AppendUint32(p.buf, uint32(v)); p.end() }

func (p *params) int8(v int64) { p.buf = binary.BigEndian.AppendUint64(p.buf, uint64(v)); p.end() }

func (p *params) bool(v bool) {
	b := byte(0)
	if v {
		b = 1
	}
	p.buf = append(p.buf, b)
	p.end()
}

// array appends an array of n elements.
func (p *params) array(oid uint32, n int, elements column) {
	p.arrayHeader(oid, n)
	p.buf = append(p.buf, elements...)
	p.end()
}

// arrayHeader begins an array; the caller appends its elements.
func (p *params) arrayHeader(oid uint32, n int) {
	if n == 0 {
		p.buf = binary.BigEndian.AppendUint32(p.buf, 0) // an empty array has no dimension
		p.buf = binary.BigEndian.AppendUint32(p.buf, 0)
		p.buf = binary.BigEndian.AppendUint32(p.buf, oid)
		return
	}
	p.buf = binary.BigEndian.AppendUint32(p.buf, 1) // dimensions
	p.buf = binary.BigEndian.AppendUint32(p.buf, 1) // may hold NULLs; PostgreSQL checks the elements
	p.buf = binary.BigEndian.AppendUint32(p.buf, oid)
	p.buf = binary.BigEndian.AppendUint32(p.buf, uint32(n))
	p.buf = binary.BigEndian.AppendUint32(p.buf, 1) // lower bound
}

// values returns the parameters; they are valid until the next reset.
func (p *params) values() [][]byte {
	p.out = p.out[:0]
	from := 0
	for _, end := range p.ends {
		if end < 0 {
			p.out = append(p.out, nil)
			continue
		}
		p.out = append(p.out, p.buf[from:end])
		from = end
	}
	return p.out
}

// int8s and texts decode a binary array without NULLs; nil is an array that is
// NULL or empty.
func int8s(raw []byte) []int64 {
	return decodeArray(raw, func(b []byte) int64 { return int64(binary.BigEndian.Uint64(b)) })
}

func int4s(raw []byte) []int32 {
	return decodeArray(raw, func(b []byte) int32 { return int32(binary.BigEndian.Uint32(b)) })
}

func texts(raw []byte) []string {
	return decodeArray(raw, func(b []byte) string { return string(b) })
}

const arrayHeader = 20

func decodeArray[T any](raw []byte, element func([]byte) T) []T {
	if len(raw) < arrayHeader {
		return nil
	}
	all := make([]T, 0, binary.BigEndian.Uint32(raw[12:]))
	for at := arrayHeader; at < len(raw); {
		size := int(binary.BigEndian.Uint32(raw[at:]))
		all = append(all, element(raw[at+4:at+4+size]))
		at += 4 + size
	}
	return all
}
