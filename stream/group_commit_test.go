package stream_test

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

// TestGroup_CommitAhead: a position after the end of the stream is rejected. The
// commits of other callers in its transaction are stored.
func TestGroup_CommitAhead(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	for range 3 {
		mustAppend(t, a, stream.Message{Payload: []byte("x")})
	}
	gs, stop := runGroups(t, db.Pool, stream.GroupsConfig{LaterEvery: time.Millisecond})
	g, other := openGroup(t, gs, s, "g"), openGroup(t, gs, s, "other")
	for _, position := range []int64{4, math.MaxInt64} {
		if got, err := g.Commit(t.Context(), position); !errors.Is(err, stream.ErrAhead) {
			t.Errorf("Commit(%d): %d, %v, want ErrAhead", position, got, err)
		}
	}
	if got, err := other.Commit(t.Context(), 2); err != nil || got != 2 {
		t.Errorf("Commit of another group: %d, %v", got, err)
	}
	if got, err := g.Commit(t.Context(), 3); err != nil || got != 3 {
		t.Errorf("Commit of the last message: %d, %v", got, err)
	}
	if err := g.Seek(t.Context(), 1000); err != nil {
		t.Errorf("Seek: %v", err)
	}
	if got, err := g.Commit(t.Context(), 1000); err != nil || got != 1000 {
		t.Errorf("Commit where Seek has gone: %d, %v", got, err)
	}
	var calling sync.WaitGroup // in one batch, mostly
	for n := range int64(20) {
		calling.Go(func() {
			if got, err := other.Commit(t.Context(), 3+n*n); (n == 0) != (err == nil) || n == 0 && got != 3 {
				t.Errorf("Commit(%d) beside others: %d, %v", 3+n*n, got, err)
			}
		})
	}
	calling.Wait()
	g.CommitLater(2000)
	stop()
	wantOffset(t, g, 1000)
}

// TestGroup_CommitLaterBesideAhead: a CommitLater is not lost because other callers
// commit positions after the end: few, many, or the one directly after the last.
func TestGroup_CommitLaterBesideAhead(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	for range 3 {
		mustAppend(t, a, stream.Message{Payload: []byte("x")})
	}
	for name, ahead := range map[string][]int64{
		"one": {1 << 40}, "next": {4}, "many": numbers(1000, 1500), "all that there are": append(numbers(4, 40), math.MaxInt64),
	} {
		t.Run(name, func(t *testing.T) {
			pool, writes := countingPool(t, db.URL, "commit_offsets")
			gs, stop := runGroups(t, pool, stream.GroupsConfig{LaterEvery: time.Hour}) // all in one batch
			g := openGroup(t, gs, s, name)
			other := openGroup(t, gs, s, name+", other")
			for _, position := range ahead {
				g.CommitLater(position)
				if position%2 == 0 {
					g.CommitLater(1 + position/2%3)
				}
			}
			for position := range int64(4) {
				g.CommitLater(position)
				other.CommitLater(position)
			}
			stop()
			wantOffset(t, g, 3)
			wantOffset(t, other, 3)
			if got := writes.count.Load(); got != 2 {
				t.Errorf("%d transactions, want one, and one more because of what is ahead", got)
			}
		})
	}
}

func numbers(from, to int64) []int64 {
	var all []int64
	for n := from; n < to; n++ {
		all = append(all, n)
	}
	return all
}

func offsetRows(t *testing.T, db pgtest.DB) (rows int) {
	t.Helper()
	err := db.Pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM tidewire.group_offset_0) + (SELECT count(*) FROM tidewire.group_offset_1)`).Scan(&rows)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestGroup_CommitLaterIsCoalesced calls CommitLater for many groups as fast as
// possible, and then repeatedly for the same one.
func TestGroup_CommitLaterIsCoalesced(t *testing.T) {
	t.Parallel()
	db, s := ensureOwn(t)
	reach(t, db.Pool, s)
	pool, writes := countingPool(t, db.URL, "commit_offsets")
	const every = 50 * time.Millisecond
	gs, stop := runGroups(t, pool, stream.GroupsConfig{LaterEvery: every})
	var all []*stream.Group
	for n := range 20 {
		all = append(all, openGroup(t, gs, s, fmt.Sprint(n)))
	}
	begun, position := time.Now(), int64(0)
	for time.Since(begun) < 10*every {
		position++
		for _, g := range all {
			g.CommitLater(position)
			g.CommitLater(position - 1)
		}
		time.Sleep(time.Millisecond)
	}
	most := int64(time.Since(begun)/every) + 1
	if n := writes.count.Load(); n == 0 || n > most {
		t.Errorf("%d writes, want 1 to %d", n, most)
	}
	if got, err := all[0].Commit(t.Context(), 1); err != nil || got != position {
		t.Errorf("Commit with others pending: %d, %v, want %d", got, err, position)
	}
	rows := offsetRows(t, db)
	for n := range int64(3) {
		for _, g := range all {
			g.CommitLater(position - n)
		}
		time.Sleep(2 * every)
	}
	if now := offsetRows(t, db); now != rows {
		t.Errorf("%d rows for what was committed already", now-rows)
	}
	all[7].CommitLater(position + 9)
	stop()
	wantOffset(t, all[7], position+9)
	if _, err := all[7].Commit(t.Context(), position+10); !errors.Is(err, stream.ErrClosed) {
		t.Errorf("Commit after the end: %v, want ErrClosed", err)
	}
	all[7].CommitLater(position + 10)
}

// TestGroup_CommitsShareTransactions blocks the first commit; those that come
// meanwhile share a transaction.
func TestGroup_CommitsShareTransactions(t *testing.T) {
	t.Parallel()
	db, s := ensureOwn(t)
	reach(t, db.Pool, s)
	pool, writes := countingPool(t, db.URL, "commit_offsets")
	gs, _ := runGroups(t, pool, stream.GroupsConfig{})
	const callers = 60
	var all []*stream.Group
	for n := range callers {
		all = append(all, openGroup(t, gs, s, fmt.Sprint(n)))
	}
	if _, err := all[0].Commit(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	before := writes.count.Load()
	tx := begin(t, db.Pool, "")
	exec(t, tx, `SELECT pg_advisory_xact_lock(1953064037, 2)`)
	var committing sync.WaitGroup
	for _, g := range all {
		committing.Go(func() {
			if got, err := g.Commit(t.Context(), 2); err != nil || got != 2 {
				t.Errorf("Commit: %d, %v", got, err)
			}
		})
	}
	time.Sleep(200 * time.Millisecond) // all have come
	rollBack(t, tx)
	committing.Wait()
	if n := writes.count.Load() - before; n == 0 || n > callers/4 {
		t.Errorf("%d transactions for %d commits", n, callers)
	}
}
