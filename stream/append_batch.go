package stream

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/tidewire/tidewire/internal/streamwriter"
)

// Layout of PostgreSQL's binary COPY, which is how a rowBatch keeps its rows:
// https://www.postgresql.org/docs/current/sql-copy.html (Binary Format).
const (
	copySignature = "PGCOPY\n\xff\r\n\x00"
	copyHeader    = len(copySignature) + 4 + 4 // flags, length of the extension
	copyTrailer   = 2

	// A row: number of fields, then length and value of position and payload, and
	// of the columns that a table has after them.
	rowPosition = 2 + 4
	rowLength   = rowPosition + 8
	rowPayload  = rowLength + 4
)

// Compiles only if the two constants are equal.
var _ [streamwriter.RowOverhead]byte = [rowPayload]byte{}

// rowBatch collects rows in the binary COPY format, so that a payload is copied
// once between the socket and PostgreSQL. Positions are filled in when the batch is
// written. The zero value is ready for use; a rowBatch is not safe for concurrent
// use.
type rowBatch struct {
	buf  []byte
	lent *[]byte // where buf came from, nil if it is the batch's own
	rows int
	// extra is the number of fields after the payload: none in rows of the
	// messages table, key and headers in those of a stream.
	extra int
	// requests are the RequestIDs that the rows carry, in the order of the rows.
	// They are set just before the batch is written.
	requests []request
	// First is the position of the first row, set by batchWriter.Write; the others
	// follow without gaps.
	First int64
	at    time.Time // the time that was stored in the rows; zero if unknown
}

// Append copies one payload into the batch, a row of the messages table.
func (b *rowBatch) Append(payload []byte) { b.appendRow(payload, 0) }

// appendMessage copies one message into the batch, a row of a stream.
func (b *rowBatch) appendMessage(m *Message) {
	b.appendRow(m.Payload, 2)
	if m.Key == "" {
		b.buf = append(b.buf, fieldNull...)
	} else {
		b.buf = binary.BigEndian.AppendUint32(b.buf, uint32(len(m.Key)))
		b.buf = append(b.buf, m.Key...)
	}
	if len(m.Headers) == 0 {
		b.buf = append(b.buf, fieldNull...)
	} else {
		b.buf = binary.BigEndian.AppendUint32(b.buf, uint32(1+len(m.Headers)))
		b.buf = append(b.buf, jsonbVersion)
		b.buf = append(b.buf, m.Headers...)
	}
}

const (
	fieldNull    = "\xff\xff\xff\xff" // a length of -1
	jsonbVersion = 1                  // goes before the text of a binary jsonb
)

// appendRow begins a row; its extra fields are for the caller to append.
func (b *rowBatch) appendRow(payload []byte, extra int) {
	if b.rows == 0 {
		b.lend()
		b.buf = append(b.buf[:0], copySignature...)
		b.buf = append(b.buf, 0, 0, 0, 0, 0, 0, 0, 0)
		b.extra = extra
	}
	b.buf = append(b.buf,
		0, byte(2+extra), // fields
		0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0) // position, unknown as yet
	b.buf = binary.BigEndian.AppendUint32(b.buf, uint32(len(payload)))
	b.buf = append(b.buf, payload...)
	b.rows++
}

// Len is the number of rows.
func (b *rowBatch) Len() int { return b.rows }

// Bytes is the size of the batch in memory.
func (b *rowBatch) Bytes() int { return len(b.buf) }

// Reset empties the batch. Its memory goes back to the pool for any batch, unless
// it is larger than keep bytes.
func (b *rowBatch) Reset(keep int) {
	b.giveBack(keep)
	b.rows, b.First, b.at, b.requests = 0, 0, time.Time{}, nil
}

// number writes the positions from first on into the rows.
func (b *rowBatch) number(first int64) {
	b.First = first
	for at := copyHeader; at < len(b.buf); first++ {
		binary.BigEndian.PutUint64(b.buf[at+rowPosition:], uint64(first))
		at = b.rowEnd(at)
	}
}

// rowEnd returns where the row that begins at ends.
func (b *rowBatch) rowEnd(at int) int {
	at += rowPayload + int(binary.BigEndian.Uint32(b.buf[at+rowLength:]))
	for range b.extra {
		at = b.fieldEnd(at)
	}
	return at
}

// fieldEnd returns where the field whose length stands at ends.
func (b *rowBatch) fieldEnd(at int) int {
	length := int32(binary.BigEndian.Uint32(b.buf[at:]))
	return at + 4 + int(max(length, 0)) // NULL has length -1 and no value
}

// split returns the first rows and the remaining rows as two separate batches.
func (b *rowBatch) split(rows int) (head, tail *rowBatch) {
	at := b.skip(0, rows)
	return &rowBatch{buf: slices.Clone(b.buf[:at]), rows: rows, extra: b.extra},
		&rowBatch{buf: slices.Concat(b.buf[:copyHeader], b.buf[at:]), rows: b.rows - rows, extra: b.extra}
}

// skip returns the offset in buf after the next rows, starting at offset at; 0
// means the first row.
func (b *rowBatch) skip(at, rows int) (end int) {
	end = max(at, copyHeader)
	for range rows {
		end = b.rowEnd(end)
	}
	return end
}

// take appends the next rows of another batch, starting at offset at, and returns
// the offset after them (see skip).
func (b *rowBatch) take(from *rowBatch, at, rows int) (end int) {
	end = from.skip(at, rows)
	if b.rows == 0 {
		b.lend()
		b.buf, b.extra = append(b.buf[:0], from.buf[:copyHeader]...), from.extra
	}
	b.buf = append(b.buf, from.buf[max(at, copyHeader):end]...)
	b.rows += rows
	return end
}

// copyData returns the complete COPY stream. The trailer is appended after the rows
// but not kept in the batch.
func (b *rowBatch) copyData() []byte {
	return append(b.buf, 0xff, 0xff)
}

// appendArray appends one field of all rows, 0 being the payload, as a binary
// array with elements of the type given.
func (b *rowBatch) appendArray(dst []byte, field int, oid uint32) []byte {
	return b.appendElements(appendArrayHeader(dst, oid, b.rows), field)
}

// appendArrayHeader begins a binary array of n elements of the given type.
func appendArrayHeader(dst []byte, oid uint32, n int) []byte {
	dst = binary.BigEndian.AppendUint32(dst, 1) // dimensions
	dst = binary.BigEndian.AppendUint32(dst, 1) // may hold NULLs; PostgreSQL looks for itself
	dst = binary.BigEndian.AppendUint32(dst, oid)
	dst = binary.BigEndian.AppendUint32(dst, uint32(n))
	return binary.BigEndian.AppendUint32(dst, 1) // lower bound
}

// appendElements appends one field of all rows, as elements of a binary array.
func (b *rowBatch) appendElements(dst []byte, field int) []byte {
	for at := copyHeader; at < len(b.buf); at = b.rowEnd(at) {
		from := at + rowLength
		for range field {
			from = b.fieldEnd(from)
		}
		dst = append(dst, b.buf[from:b.fieldEnd(from)]...) // an element is laid out like a field
	}
	return dst
}

// messages returns the rows of a stream as a reader will get them, in separate memory;
// nil if one has headers.
func (b *rowBatch) messages() []Message {
	all := make([]Message, 0, b.rows)
	buf := slices.Clone(b.buf)
	for at := copyHeader; at < len(buf); at = b.rowEnd(at) {
		payload := buf[at+rowPayload:][:binary.BigEndian.Uint32(buf[at+rowLength:])]
		key := at + rowPayload + len(payload)
		if headers := b.fieldEnd(key); string(buf[headers:headers+4]) != fieldNull {
			return nil
		}
		m := Message{Position: b.First + int64(len(all)), Payload: slices.Clip(payload), Time: b.at}
		if end := b.fieldEnd(key); end > key+4 {
			m.Key = string(buf[key+4 : end])
		}
		all = append(all, m)
	}
	return all
}
