package stream

import (
	"context"
	"fmt"
	"sync"
	"testing"
)

// TestShared_PlansAreKept: plans made while the shared table was small, and vacuumed, are kept
// when it has grown. They never scan the whole table.
func TestShared_PlansAreKept(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := db.Pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	tables := []string{"message", "request_0", "request_1", "request_floor"}
	for _, table := range tables {
		exec(`ALTER TABLE tidewire.shared_` + table + ` SET (autovacuum_enabled = false)`)
		exec(`VACUUM ANALYZE tidewire.shared_` + table)
	}
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
		a.Start()
		running.Go(func() { <-ctx.Done(); a.Stop() })
		streams, appenders, ids = append(streams, s), append(appenders, a), append(ids, s.id)
	}
	scans := func() (n int) {
		t.Helper()
		// Other sessions report their statistics when they end.
		db.Pool.Reset()
		if err := db.Pool.QueryRow(t.Context(), `SELECT sum(pg_stat_get_numscans(('tidewire.shared_' || name)::regclass)) FROM unnest($1::text[]) AS name`,
			tables).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	sequence := int64(0)
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
			sequence++
			for range 2 { // a request to each, and its repetition
				for _, a := range appenders {
					all.Go(func() {
						if _, err := a.AppendAs(t.Context(), RequestID{Client: "p", Sequence: sequence}, Message{}); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
			}
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
	for _, table := range tables[1:3] {
		exec(`INSERT INTO tidewire.shared_` + table + ` (stream, client, sequence, position, count)
			SELECT id, '` + table + `', n, n, 1 FROM tidewire.stream, generate_series(1, 1000) AS n`)
	}
	exec(`INSERT INTO tidewire.shared_request_floor (stream, client, sequence)
		SELECT id, n::text, 1 FROM tidewire.stream, generate_series(1, 1000) AS n`)
	use()
	stop()
	running.Wait() // the sessions of the Lender end as well
	if after := scans(); after != before {
		t.Errorf("the shared table was walked through %d times, or those of requests", after-before)
	}
}
