package queue

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// rotor is a part that compacts its journal on demand.
type rotor struct {
	*shardNode
	t *testing.T
	q *Queue
}

func newRotor(t *testing.T, rows int) rotor {
	t.Helper()
	q := testQueue(t)
	r := rotor{newShardNode(NewNode(q, NodeConfig{RotateRows: rows}), q.members[0]), t, q}
	s, _, err := q.members[0].load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.state = *s
	return r
}

// turn writes some rows and compacts the journal.
func (r rotor) turn(rows int) {
	r.t.Helper()
	mustWrite(r.t, r.q, &r.state, request{entries: slices.Repeat([]entry{{kind: kindPause}}, rows)}, written)
	base := r.state.base
	r.times.rotate = time.Time{}
	r.rotate(r.t.Context())
	mustWrite(r.t, r.q, &r.state, request{}, written)
	if r.state.base <= base {
		r.t.Fatal("the journal was not begun anew")
	}
	if err := vacuum(r.t.Context(), r.q.pool); err != nil {
		r.t.Fatal(err)
	}
}

// size is how many bytes the journal's file has.
func (r rotor) size() (bytes int64) {
	r.t.Helper()
	if err := r.q.pool.QueryRow(r.t.Context(), journalSizeSQL).Scan(&bytes); err != nil {
		r.t.Fatal(err)
	}
	return bytes
}

// blocks is how many blocks PostgreSQL looks at for a call of queue_write that
// begins after seen.
func (r rotor) blocks(conn *pgx.Conn, seen int64) (blocks int64) {
	r.t.Helper()
	args, err := (&request{seen: seen}).args(r.queue.id)
	if err != nil {
		r.t.Fatal(err)
	}
	return blocksOf(r.t, conn, writeSQL, args...)
}

// blocksOf is how many blocks PostgreSQL looks at for a query.
func blocksOf(t *testing.T, conn *pgx.Conn, sql string, args ...any) int64 {
	t.Helper()
	var text []byte
	if err := conn.QueryRow(t.Context(), `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) `+sql, args...).Scan(&text); err != nil {
		t.Fatal(err)
	}
	var plans []struct {
		Plan struct {
			Hit  int64 `json:"Shared Hit Blocks"`
			Read int64 `json:"Shared Read Blocks"`
		}
	}
	if err := json.Unmarshal(text, &plans); err != nil || len(plans) != 1 {
		t.Fatal(err, string(text))
	}
	return plans[0].Plan.Hit + plans[0].Plan.Read
}

// TestQueries_Cost: what a write, a record and a look read does not grow with the rows that are kept for a snapshot, and with
// those of other queues, also with plans that PostgreSQL has cached while the journals were nearly empty. Without a snapshot,
// the space of deleted rows is used again.
func TestQueries_Cost(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a second")
	}
	t.Parallel()
	r := newRotor(t, 1)
	lease(t, r.q, &r.state, 1, 10)
	conn := unlimited(t, r.q)
	until := r.state.leases[1]
	costs := func() (all, last, record int64) {
		all, last = r.blocks(conn, 0), r.blocks(conn, r.state.seen)
		for range 7 { // PostgreSQL takes the plan for all parameters after five
			note := request{own: 1, seen: r.state.seen, validUntil: &until, lease: time.Hour, entries: []entry{{kind: kindNote, token: 1}}}
			record += blocksOf(t, conn, recordTogetherSQL, togetherArgs([]*recordCall{{queue: r.queue, request: note, entries: note.entries}})...)
			record += blocksOf(t, conn, lookSQL, []int32{r.queue.id}, []int64{0})
			r.state.seen++
		}
		mustWrite(t, r.q, &r.state, request{}, written)
		return all, last, record
	}
	r.turn(100)
	all, last, record := costs()
	tx, err := unlimited(t, r.q).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT`); err != nil { // takes the snapshot, and no lock of a table
		t.Fatal(err)
	}
	for range 20 {
		r.turn(100)
	}
	if s := r.node.Stats(); s.Rotations != 21 {
		t.Errorf("%+v, want 21 rotations", s)
	}
	if _, err := r.q.pool.Exec(t.Context(), `INSERT INTO tidewire.queue_journal (queue, sequence, token, lo, hi, top, kind, base)
		SELECT q, n, 0, 0, 0, 0, 10, 1 FROM generate_series(1, 200) AS q, generate_series(1, 100) AS n`); err != nil {
		t.Fatal(err)
	}
	if all2, last2, record2 := costs(); all2 > 2*all+20 || last2 > 2*last+20 || record2 > 3*record+30 {
		t.Errorf("a read of all looks at %d blocks, one of nothing new at %d, and seven records at %d; before at %d, %d, %d", all2, last2, record2, all, last, record)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.turn(100)
	most := r.size()
	for range 20 {
		r.turn(100)
	}
	if now := r.size(); now > most {
		t.Errorf("the journal has grown from %d to %d bytes, want the space of deleted rows used again", most, now)
	}
}

// TestRotate_LockHeld: a compaction does not wait for long for a lock that another session keeps, and is tried again.
func TestRotate_LockHeld(t *testing.T) {
	t.Parallel()
	r := newRotor(t, 1)
	mustWrite(t, r.q, &r.state, request{entries: slices.Repeat([]entry{{kind: kindPause}}, 5)}, written)
	holder := unlimited(t, r.q)
	for _, step := range []struct {
		sql       string
		rotations int64
	}{{`BEGIN; SELECT pg_advisory_xact_lock(1953064037, -1000)`, 0}, {`ROLLBACK`, 1}} {
		MustExec(t, holder, step.sql)
		r.times.rotate = time.Time{}
		r.rotate(t.Context())
		if n := r.node.Stats().Rotations; int64(n) != step.rotations {
			t.Errorf("%d rotations after %s, want %d", n, step.sql, step.rotations)
		}
	}
}

// TestLoad_LostJournal: a queue whose journal is empty, after a restore of a
// backup of an earlier version, fails with an error that says what to do, and
// works once that was done.
func TestLoad_LostJournal(t *testing.T) {
	t.Parallel()
	r := newRotor(t, 1)
	lease(t, r.q, &r.state, 1, 10)
	MustExec(t, r.q.pool, `DELETE FROM tidewire.queue_journal`)
	if err := NewNode(r.q, NodeConfig{}).Run(t.Context()); !errors.Is(err, ErrJournalLost) || !strings.Contains(err.Error(), `tidewire.restart_queue('journal'`) {
		t.Errorf("Run: %v, want ErrJournalLost and what to do", err)
	}
	if _, err := r.q.Stats(t.Context()); !errors.Is(err, ErrJournalLost) {
		t.Errorf("Stats: %v, want ErrJournalLost", err)
	}
	if a, err := r.queue.record(t.Context(), r.queue.byPool(), request{own: 1, seen: r.state.seen, validUntil: new(time.Now().Add(time.Hour)), claim: 1}); a != nil || err != nil {
		t.Errorf("record: %+v, %v; want it left to queue_write", a, err)
	}
	restart := `SELECT tidewire.restart_queue('journal', 7)`
	MustExec(t, r.q.pool, restart)
	s, _, err := r.queue.load(t.Context())
	if err != nil || s.top != 7 || len(s.live) > 0 {
		t.Errorf("begun anew: %+v, %v; want all up to 7 done", s, err)
	}
	if _, err := r.q.pool.Exec(t.Context(), restart); err == nil {
		t.Error("a queue that has its journal was begun anew")
	}
}
