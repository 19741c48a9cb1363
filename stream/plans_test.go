package stream

import (
	"context"
	"fmt"
	"sync"
	"testing"
)

// TestShared_PlansAreKept: plans made while the shared table was small, and vacuumed, are kept
// when it has grown. They never walk through all of it.
func TestShared_PlansAreKept(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := db.Pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	exec(`ALTER TABLE tidewire.shared_message SET (autovacuum_enabled = false)`)
	exec(`VACUUM ANALYZE tidewire.shared_message`)
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer running.Wait()
	defer stop()
	var streams []*Stream
	var appenders []*Appender
	var ids []int32
	for i := range 10 {
		s, err := Ensure(t.Context(), db.Pool, fmt.Sprint("s", i), Options{})
		if err != nil {
			t.Fatal(err)
		}
		a := NewAppender(db.Pool, s, AppenderConfig{})
		running.Go(func() { a.Run(ctx) })
		streams, appenders, ids = append(streams, s), append(appenders, a), append(ids, s.id)
	}
	scans := func() (n int) {
		t.Helper()
		// What other sessions have counted is told when they end.
		db.Pool.Reset()
		if err := db.Pool.QueryRow(t.Context(), `SELECT pg_stat_get_numscans('tidewire.shared_message'::regclass)`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	use := func() {
		for range 10 { // PostgreSQL keeps a plan from the sixth use on
			var all sync.WaitGroup
			for _, a := range appenders {
				all.Go(func() {
					if _, err := a.Append(t.Context(), Message{}); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			for _, s := range streams[:3] {
				if _, err := s.Read(t.Context(), 0, 10); err != nil {
					t.Error(err)
				}
				if _, err := s.Head(t.Context()); err != nil {
					t.Error(err)
				}
			}
			exec(`SELECT FROM tidewire.stream_heads($1, $2)`, ids, make([]int64, len(ids)))
		}
	}
	before := scans()
	use()
	exec(`INSERT INTO tidewire.shared_message (stream, position, keyed, payload)
		SELECT id, 1000 + n, false, 'x' FROM tidewire.stream, generate_series(1, 1000) AS n`)
	use()
	stop()
	running.Wait() // the Lender's sessions as well
	if after := scans(); after != before {
		t.Errorf("the shared table was walked through %d times", after-before)
	}
}
