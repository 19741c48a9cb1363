package eventstore

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pgtest"
)

// neverTogether fills the store with that many events of each of two tags. No event has
// both. It returns a condition that fails on an event with both tags.
func neverTogether(t *testing.T, db pgtest.DB, s *Store, events, items int) Condition {
	t.Helper()
	one, two := tagHash("one"), tagHash("two")
	for _, sql := range []string{
		`INSERT INTO tidewire.events_1 SELECT n, now(), false, 'T', NULL, ARRAY[CASE n % 2 WHEN 0 THEN 'one' ELSE 'two' END], '' FROM generate_series(1, $1::bigint) AS n
		 WHERE $2::bigint IS NOT NULL AND $3::bigint IS NOT NULL AND $4::bigint IS NOT NULL AND $5::bigint IS NOT NULL AND $6::bigint IS NOT NULL`,
		`INSERT INTO tidewire.events_1_tag SELECT CASE n % 2 WHEN 0 THEN $2::bigint ELSE $3::bigint END, n, CASE n % 2 WHEN 0 THEN $4::bigint ELSE $5::bigint END, $6::int, (SELECT ctid FROM tidewire.events_1 WHERE position = n)
		 FROM generate_series(1, $1::bigint) AS n`,
	} {
		if _, err := db.Pool.Exec(t.Context(), sql, events, one, two, signature(one), signature(two), int64(typeHash("T"))); err != nil {
			t.Fatal(err)
		}
	}
	_, err := db.Pool.Exec(t.Context(), `
WITH moved AS (SELECT setval('tidewire.events_1_position_seq', $1::bigint) AS head)
INSERT INTO tidewire.events_1_batch SELECT head, 1, 1, 1, now() FROM moved`, events)
	if err != nil {
		t.Fatal(err)
	}
	var q Query
	for range items {
		q.Items = append(q.Items, Item{Types: []string{"T"}, Tags: []string{"one", "two"}})
	}
	return Condition{FailIfEventsMatch: q}
}

// reopen returns a Store of the same events with another configuration.
func reopen(t *testing.T, db pgtest.DB, cfg Config) *Store {
	t.Helper()
	s, err := ensureStore(t.Context(), db.Pool, "", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(t.Context()) })
	return s
}

// TestAppendIf_TooExpensive: appends with conditions that are too expensive do not
// disturb other appends, alone or in the same batch.
func TestAppendIf_TooExpensive(t *testing.T) {
	t.Parallel()
	db, s := prepared(t)
	condition := neverTogether(t, db, s, 40_000, 500)
	s = reopen(t, db, Config{CheckTimeout: 20 * time.Millisecond, Timeout: 5 * time.Second})
	var callers sync.WaitGroup
	for c := range 6 {
		callers.Go(func() {
			for n := range 10 {
				name := fmt.Sprint(c, ".", n)
				if c < 2 {
					if _, err := s.AppendIf(t.Context(), []Event{{Type: "E", ID: name}}, condition); !errors.Is(err, ErrTooExpensive) {
						t.Errorf("%v, want ErrTooExpensive", err)
					}
					continue
				}
				if _, err := s.AppendIf(t.Context(), []Event{{Type: "C", Tags: []string{name}}}, Condition{FailIfEventsMatch: Tagged(name)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	if stored, err := s.Query(t.Context(), Typed("E", "C"), ReadOptions{}); err != nil || len(stored) != 40 {
		t.Errorf("%d events stored, want those with cheap conditions; %v", len(stored), err)
	}
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := s.AppendIfTx(t.Context(), tx, []Event{{Type: "E"}}, condition); !errors.Is(err, ErrTooExpensive) {
		t.Errorf("in a transaction: %v, want ErrTooExpensive", err)
	}
	if _, err := s.AppendTx(t.Context(), tx, Event{Type: "F"}); err != nil {
		t.Errorf("the transaction does not go on: %v", err)
	}
	if err := s.Watch(t.Context(), condition); !errors.Is(err, ErrTooExpensive) {
		t.Errorf("watched: %v, want ErrTooExpensive", err)
	}
}

// TestAppendIf_CheckedApart: an expensive condition that stays below CheckTimeout is
// checked without the lock, and correctly.
func TestAppendIf_CheckedApart(t *testing.T) {
	t.Parallel()
	db, s := prepared(t)
	condition := neverTogether(t, db, s, 5_000, 3)
	s = reopen(t, db, Config{CheckTimeout: time.Minute})
	if _, err := s.AppendIf(t.Context(), []Event{{Type: "First"}}, condition); err != nil {
		t.Fatal(err)
	}
	if apart := s.Stats().CheckedApart; apart != 1 {
		t.Errorf("checked apart %d times, want once", apart)
	}
	var mu sync.Mutex
	accepted := 0
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			_, err := s.AppendIf(t.Context(), []Event{{Type: "T", Tags: []string{"one", "two"}}}, condition)
			if err != nil && !errors.Is(err, ErrConflict) {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				accepted++
			}
		})
	}
	callers.Wait()
	if accepted != 1 {
		t.Errorf("%d of those were accepted that exclude each other, want one", accepted)
	}
	err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
		_, err := s.AppendIfTx(t.Context(), tx, []Event{{Type: "T"}}, condition)
		return err
	})
	var conflict *ConflictError
	if !errors.As(err, &conflict) || conflict.Position <= 5000 {
		t.Errorf("in a transaction: %v, want the conflict after 5000", err)
	}
}

// TestQueries_CheckUnderLockGivesUp: a check under the lock reads only a few rows,
// even if the condition needs many.
func TestQueries_CheckUnderLockGivesUp(t *testing.T) {
	t.Parallel()
	db, s := prepared(t)
	condition := neverTogether(t, db, s, 50_000, 20)
	conn, err := db.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for name, q := range map[string]Query{
		"typed": condition.FailIfEventsMatch, "any type": Tagged("one", "two"),
	} {
		var p probes
		p.add(&q, &s.frequency)
		args := append(p.calls(0), append(p.columns(), p.textColumn(p.tags), p.tagless, underLock.budget(p.lookups()))...)
		const sql = `SELECT positions FROM tidewire.events_1_conflicts($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`
		blocks, _, text := lowest(t, 2000, conn.Conn(), ``, sql, args)
		if blocks > 2000 {
			t.Errorf("%s: %d blocks\n%s", name, blocks, text)
		}
		var positions []int64
		err := conn.QueryRow(t.Context(), sql, append([]any{pgx.QueryExecModeDescribeExec}, args...)...).Scan(&positions)
		if err != nil || len(positions) != 1 || positions[0] != 0 {
			t.Errorf("%s: %v, %v, want 0 for undecided", name, positions, err)
		}
	}
}

// TestForget_InSlices: old batch rows are deleted, but never the last row and young
// rows.
func TestForget_InSlices(t *testing.T) {
	t.Parallel()
	db, s := prepared(t)
	_, err := db.Pool.Exec(t.Context(), `
INSERT INTO tidewire.events_1_batch (position, first_position, writer, number, created_at)
SELECT n, n, CASE n % 4 WHEN 0 THEN n ELSE n % 4 END, CASE n % 4 WHEN 0 THEN 0 ELSE n END,
	now() - CASE n % 4 WHEN 1 THEN interval '2 days' WHEN 3 THEN interval '0' ELSE interval '10 minutes' END
FROM generate_series(1, 2501) AS n`)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.forgetAll(t.Context(), 3, 1000); err != nil {
		t.Fatal(err)
	}
	// Of transactions none are left, of 1 the last, of 2 all, of 3 those from 1000 on.
	var tx, one, two, three int
	err = db.Pool.QueryRow(t.Context(), `
SELECT count(*) FILTER (WHERE number = 0), count(*) FILTER (WHERE writer = 1 AND number > 0),
	count(*) FILTER (WHERE writer = 2 AND number > 0), count(*) FILTER (WHERE writer = 3 AND number > 0)
FROM tidewire.events_1_batch`).Scan(&tx, &one, &two, &three)
	if err != nil || tx != 0 || one != 1 || two != 625 || three != 375 {
		t.Errorf("%d, %d, %d, %d rows are left, want 0, 1, 625, 375; %v", tx, one, two, three, err)
	}
	if c := (Config{LockTimeout: math.MaxInt64}).withDefaults(); c.LockTimeout > keepMarks/2 {
		t.Errorf("a lock is waited for %v, rows are kept for %v", c.LockTimeout, keepMarks)
	}
}

// TestTail_ManyLookups: checks that would take the committer long are left to PostgreSQL.
func TestTail_ManyLookups(t *testing.T) {
	t.Parallel()
	written := tail{maxEvents: 10_000, epoch: 1}
	for n := range 1000 {
		seg := written.segment()
		var f tailIndex
		f.add("A", []string{"t"})
		f.key(tagHash("t"))
		seg.facts.join(&f)
		written.extend(seg, int64(n), basis{int64(n + 1), 1, int64(n + 1)})
	}
	for items, refused := range map[int]bool{10: true, 100: false} {
		var q Query
		for range items {
			q.Items = append(q.Items, Item{Tags: []string{"t"}})
		}
		c := &call{conditional: true, query: newHashed(q)}
		if conflict := written.check(c); (conflict != nil) != refused || c.held != 0 {
			t.Errorf("%d items: %v, held up to %d", items, conflict, c.held)
		}
	}
}
