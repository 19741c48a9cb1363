package stream

import "fmt"

// table is where a Writer's batches go, with the lock that orders them and the
// SQL to write there. Every table has its positions from a sequence called
// <table>_position_seq.
type table struct {
	name string
	lock int32 // within pg.LockClass
	// columns behind position, and the types of their values: what a row of a
	// Batch holds, and of what insertArray takes an array each.
	columns string
	types   []uint32

	takePositions, insertArray, head string
	stmtTake, stmtInsert             string // names of the prepared ones
}

// OIDs of the types that batches hold.
const (
	oidBytea = 17
	oidText  = 25
	oidJSONB = 3802
)

// messagesTable is what the ingest endpoint fills.
func messagesTable() *table {
	t := &table{name: "public.messages", lock: LockMessages, columns: "payload", types: []uint32{oidBytea}}
	return t.withSQL(insertPayloadsFmt)
}

// streamTable is the table of the stream with that id.
func streamTable(id int32) *table {
	t := &table{
		name: fmt.Sprintf("tidewire.stream_%d", id), lock: id,
		columns: "payload, key, headers", types: []uint32{oidBytea, oidText, oidJSONB},
	}
	return t.withSQL(insertMessagesFmt)
}

func (t *table) withSQL(insertFmt string) *table {
	t.takePositions = fmt.Sprintf(takePositionsFmt, t.lock, t.name)
	t.insertArray = fmt.Sprintf(insertFmt, t.name)
	t.head = fmt.Sprintf(headFmt, t.name)
	t.stmtTake = fmt.Sprintf("tidewire_take_positions_%d", t.lock)
	t.stmtInsert = fmt.Sprintf("tidewire_insert_array_%d", t.lock)
	return t
}

// copySQL is one simple query: lock, COPY and commit share a round trip.
// settings come directly behind BEGIN, and between comes in front of COPY.
func (t *table) copySQL(head int64, size int, writer, number int64, settings, between string) string {
	return fmt.Sprintf(copyFmt, t.lock, t.name, head, size, writer, number, t.columns, between, settings)
}
