package queue

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
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
	pauses := make([]entry, rows)
	for i := range pauses {
		pauses[i] = entry{kind: kindPause}
	}
	mustWrite(r.t, r.q, &r.state, request{entries: pauses}, written)
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
func (r rotor) blocks(seen int64) (blocks int64) {
	r.t.Helper()
	args, err := (&request{seen: seen}).args(r.queue.id)
	if err != nil {
		r.t.Fatal(err)
	}
	return blocksOf(r.t, r.q.pool, writeSQL, args...)
}

// blocksOf is how many blocks PostgreSQL looks at for a query.
func blocksOf(t *testing.T, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, sql string, args ...any) int64 {
	t.Helper()
	var text []byte
	if err := db.QueryRow(t.Context(), `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) `+sql, args...).Scan(&text); err != nil {
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

// TestRotate_HeldSnapshot compacts the journal many times while a transaction
// keeps its snapshot: that one sees the state of its time, and reads do not scan
// the rows that are kept for it.
func TestRotate_HeldSnapshot(t *testing.T) {
	t.Parallel()
	r := newRotor(t, 1)
	mustWrite(t, r.q, &r.state, request{own: 1, lease: time.Hour, entries: []entry{{kind: kindLease, token: 1}}, claim: 10}, written)
	mustWrite(t, r.q, &r.state, request{own: 1, entries: []entry{done(1, span{2, 4})}}, written)
	for range 3 {
		r.turn(100)
	}
	was, fewest := r.state.clone(), r.blocks(0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tx, err := r.q.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	if _, err := tx.Exec(ctx, `SELECT`); err != nil { // takes the snapshot, and no lock of a table
		t.Fatal(err)
	}
	for range 50 {
		r.turn(100)
	}
	if s := r.node.Stats(); s.Rotations != 53 {
		t.Errorf("%+v, want 53 rotations", s)
	}
	if all, last := r.blocks(0), r.blocks(r.state.seen); all > 2*fewest+20 || last > 2*fewest+20 {
		t.Errorf("with a snapshot held a read of all looks at %d blocks and one of nothing new at %d, before at %d", all, last, fewest)
	}
	if got := r.stateSeenBy(tx); !reflect.DeepEqual(got, was) {
		t.Errorf("the snapshot sees %+v, want %+v", got, was)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	r.turn(100)
	most := r.size()
	for range 50 {
		r.turn(100)
	}
	if now := r.size(); now > most {
		t.Errorf("the journal has grown from %d to %d bytes, want the space of deleted rows used again", most, now)
	}
}

// stateSeenBy is the state of the journal in the transaction's snapshot.
func (r rotor) stateSeenBy(tx pgx.Tx) *state {
	r.t.Helper()
	rows, err := tx.Query(r.t.Context(), `SELECT sequence, kind, token, lo, hi, until, body FROM tidewire.queue_journal WHERE queue = 1000 ORDER BY sequence`)
	if err != nil {
		r.t.Fatal(err)
	}
	s := &state{}
	var e entry
	var until *time.Time
	_, err = pgx.ForEachRow(rows, []any{&e.sequence, &e.kind, &e.token, &e.lo, &e.hi, &until, &e.body}, func() error {
		if e.until = (time.Time{}); until != nil {
			e.until = *until
		}
		return s.apply(e)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// TestLoad_LostJournal: a queue whose journal is empty, after a restore of a
// backup of an earlier version, fails with an error that says what to do, and
// works once that was done.
func TestLoad_LostJournal(t *testing.T) {
	t.Parallel()
	r := newRotor(t, 1)
	mustWrite(t, r.q, &r.state, request{own: 1, lease: time.Hour, entries: []entry{{kind: kindLease, token: 1}}, claim: 10}, written)
	if _, err := r.q.pool.Exec(t.Context(), `DELETE FROM tidewire.queue_journal`); err != nil {
		t.Fatal(err)
	}
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
	if _, err := r.q.pool.Exec(t.Context(), restart); err != nil {
		t.Fatal(err)
	}
	s, _, err := r.queue.load(t.Context())
	if err != nil || s.top != 7 || len(s.live) > 0 {
		t.Errorf("begun anew: %+v, %v; want all up to 7 done", s, err)
	}
	if _, err := r.q.pool.Exec(t.Context(), restart); err == nil {
		t.Error("a queue that has its journal was begun anew")
	}
}
