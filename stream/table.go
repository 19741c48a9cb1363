package stream

import (
	"fmt"
	"hash/fnv"
	"sync"

	"github.com/tidewire/tidewire/internal/pg"
)

// table is the target of a batchWriter's batches, with the lock that orders them
// and the SQL to write them.
type table struct {
	name      string // quoted for SQL, like the next
	positions string // the sequence
	lock      int32  // within pg.LockClass
	// columns after position, and the types of their values: the fields of a row in
	// a rowBatch, for each of which insertArray takes an array.
	columns string
	types   []uint32

	insertFmt string
	once      sync.Once
	texts     tableSQL
}

// tableSQL is the SQL to write to one table.
type tableSQL struct {
	takePositions, insertArray, head string
	stmtTake, stmtInsert             string // names of the prepared statements
}

// hashOf distinguishes tables in the names of statements, of which PostgreSQL uses
// only the first 63 bytes.
func hashOf(table string) string {
	h := fnv.New64a()
	h.Write([]byte(table))
	return fmt.Sprintf("%x", h.Sum64())
}

// OIDs of the types that batches hold.
const (
	oidBytea = 17
	oidInt8  = 20
	oidInt4  = 23
	oidText  = 25
	oidJSONB = 3802
)

// messagesTable is the table that the ingest endpoint fills.
func messagesTable(t pg.Table) *table {
	return &table{
		name: t.Quoted(""), positions: t.Quoted(pg.SuffixPositions), lock: lockMessages,
		columns: "payload", types: []uint32{oidBytea}, insertFmt: insertPayloadsFmt,
	}
}

// streamTable is the table of the stream with that id.
func streamTable(id int32) *table {
	name := fmt.Sprintf("tidewire.stream_%d", id)
	return &table{
		name: name, positions: name + pg.SuffixPositions, lock: id,
		columns: "payload, key, headers", types: rowTypes, insertFmt: insertMessagesFmt,
	}
}

// takeTypes are the types of the parameters of takePositions.
var takeTypes = []uint32{oidInt8, oidInt8, oidInt8}

// insertTypes are the types of the parameters of insertArray.
func (t *table) insertTypes() []uint32 {
	all := append(make([]uint32, 0, 4), oidInt8)
	for _, oid := range t.types {
		all = append(all, arrayOf[oid])
	}
	return all
}

// arrayOf maps the OID of a type to that of its array type.
var arrayOf = map[uint32]uint32{oidBytea: 1001, oidText: 1009, oidJSONB: 3807}

// sql builds the SQL on first use: a shared stream never needs it.
func (t *table) sql() *tableSQL {
	t.once.Do(func() {
		hash := hashOf(t.name)
		t.texts = tableSQL{
			takePositions: fmt.Sprintf(takePositionsFmt, t.lock, t.positions),
			insertArray:   fmt.Sprintf(t.insertFmt, t.name, t.positions),
			head:          fmt.Sprintf(headFmt, t.positions),
			stmtTake:      "tidewire_take_positions_" + hash,
			stmtInsert:    "tidewire_insert_array_" + hash,
		}
	})
	return &t.texts
}

// copySQL is one simple query: lock, COPY and commit share a round trip.
// settings come directly after BEGIN, and between comes before COPY.
func (t *table) copySQL(head int64, size int, writer, number int64, settings, between string) string {
	return fmt.Sprintf(copyFmt, t.lock, t.name, head, size, writer, number, t.columns, between, settings, t.positions)
}
