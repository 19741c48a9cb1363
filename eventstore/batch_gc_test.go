package eventstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/testkit"
)

// TestSweep_GivesUpManyRequests: reading the records of requests takes longer than
// Timeout allows for one batch.
func TestSweep_GivesUpManyRequests(t *testing.T) {
	Slow(t)
	t.Parallel()
	db, _ := prepared(t)
	s := reopen(t, db, Config{Timeout: 2 * time.Second})
	appendAndSweep(t, s)
	MustExec(t, db.Pool, `UPDATE tidewire.request_window SET since = since - interval '1 day'`)
	slow := Begin(t, db.Pool)
	MustExec(t, slow, fmt.Sprintf(`LOCK TABLE tidewire.request_%d_0, tidewire.request_%[1]d_1`, s.lock()))
	s.sweep(0, 0)
	testkit.Eventually(t, "the sweep has waited for twice the time of a batch", func() bool {
		var long bool
		err := db.Pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
			AND clock_timestamp() - query_start > $1)`, 2*s.cfg.Timeout).Scan(&long)
		return err != nil || long
	})
	if err := slow.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	swept(t, s)
	var folded bool // what follows is quick, unless the machine is slow
	err := db.Pool.QueryRow(t.Context(), `SELECT folded OR current = 1 FROM tidewire.request_window`).Scan(&folded)
	if err != nil || !folded {
		t.Errorf("folded: %v, %v: nothing is ever given up", folded, err)
	}
}

// swept waits until the Store sweeps no more.
func swept(t *testing.T, s *Store) {
	t.Helper()
	testkit.Eventually(t, "the sweep ends", func() bool { return !s.sweeper.busy.Load() })
}

// appendAndSweep appends as a client, and returns when the Store has swept: it does so
// after the first append, and before it takes the second.
func appendAndSweep(t *testing.T, s *Store) {
	t.Helper()
	for n := range int64(2) {
		if _, err := s.AppendAs(t.Context(), RequestID{Client: "p", Sequence: n}, Event{Type: "T"}); err != nil {
			t.Fatal(err)
		}
	}
	swept(t, s)
}

// TestSweep_VacuumsOldRequests: many records are deleted, and their table is used again
// only after it is small.
func TestSweep_VacuumsOldRequests(t *testing.T) {
	t.Parallel()
	db, s := prepared(t)
	appendAndSweep(t, s)
	for _, sql := range []string{
		fmt.Sprintf(`ALTER TABLE tidewire.request_%d_1 SET (autovacuum_enabled = false)`, s.lock()),
		fmt.Sprintf(`INSERT INTO tidewire.request_%d_1 (client, sequence, position) SELECT 'old', n, n FROM generate_series(1, 30000) AS n`, s.lock()),
		`UPDATE tidewire.request_window SET since = since - interval '1 day'`,
	} {
		MustExec(t, db.Pool, sql)
	}
	if err := s.rotateRequests(t.Context()); err != nil {
		t.Fatal(err)
	}
	var current int
	if err := db.Pool.QueryRow(t.Context(), `SELECT current FROM tidewire.request_window`).Scan(&current); err != nil || current != 1 {
		t.Errorf("the table in use is %d (%v): what was given up keeps its room", current, err)
	}
}
