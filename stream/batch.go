package stream

import (
	"encoding/binary"
)

// Layout of PostgreSQL's binary COPY, which is how a Batch keeps its rows:
// https://www.postgresql.org/docs/current/sql-copy.html (Binary Format).
const (
	copySignature = "PGCOPY\n\xff\r\n\x00"
	copyHeader    = len(copySignature) + 4 + 4 // flags, length of the extension
	copyTrailer   = 2

	// A row: number of fields, then length and value of position and payload.
	rowPosition = 2 + 4
	rowLength   = rowPosition + 8
	rowPayload  = rowLength + 4
)

// RowOverhead is what a row takes in a Batch beyond its payload, in bytes.
const RowOverhead = rowPayload

// Batch gathers rows in the form in which COPY takes them, so that a payload
// is copied once between the socket and PostgreSQL. Positions are filled in
// when the batch is written. The zero value is ready for use; a Batch is not
// safe for concurrent use.
type Batch struct {
	buf  []byte
	rows int
	// First is the position of the first row, set by Writer.Write; the others
	// follow without gaps.
	First int64
}

// Append copies one payload into the batch.
func (b *Batch) Append(payload []byte) {
	if b.rows == 0 {
		b.buf = append(b.buf[:0], copySignature...)
		b.buf = append(b.buf, 0, 0, 0, 0, 0, 0, 0, 0)
	}
	b.buf = append(b.buf,
		0, 2, // two fields
		0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0) // position, unknown as yet
	b.buf = binary.BigEndian.AppendUint32(b.buf, uint32(len(payload)))
	b.buf = append(b.buf, payload...)
	b.rows++
}

// Len is the number of rows.
func (b *Batch) Len() int { return b.rows }

// Bytes is the size of the batch in memory.
func (b *Batch) Bytes() int { return len(b.buf) }

// Reset empties the batch and keeps its memory for the next rows, unless one
// unusual batch made it larger than keep bytes.
func (b *Batch) Reset(keep int) {
	if cap(b.buf) > keep {
		b.buf = nil
	}
	b.buf, b.rows, b.First = b.buf[:0], 0, 0
}

// number writes the positions from first on into the rows.
func (b *Batch) number(first int64) {
	b.First = first
	for at := copyHeader; at < len(b.buf); first++ {
		binary.BigEndian.PutUint64(b.buf[at+rowPosition:], uint64(first))
		at += rowPayload + int(binary.BigEndian.Uint32(b.buf[at+rowLength:]))
	}
}

// copyData returns the whole of what COPY reads. The trailer is appended
// behind the rows and not kept: the batch stays as it is.
func (b *Batch) copyData() []byte {
	return append(b.buf, 0xff, 0xff)
}

const oidBytea = 17

// appendArray appends the payloads as a binary bytea[].
func (b *Batch) appendArray(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, 1) // dimensions
	dst = binary.BigEndian.AppendUint32(dst, 0) // no NULLs
	dst = binary.BigEndian.AppendUint32(dst, oidBytea)
	dst = binary.BigEndian.AppendUint32(dst, uint32(b.rows))
	dst = binary.BigEndian.AppendUint32(dst, 1) // lower bound
	for at := copyHeader; at < len(b.buf); {
		end := at + rowPayload + int(binary.BigEndian.Uint32(b.buf[at+rowLength:]))
		dst = append(dst, b.buf[at+rowLength:end]...) // length and payload are laid out alike
		at = end
	}
	return dst
}
