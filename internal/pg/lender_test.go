package pg_test

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
)

func poolOf(t *testing.T, conns int) *pgxpool.Pool {
	t.Helper()
	pool, err := pg.Open(t.Context(), pg.PoolConfig{URL: pgtest.Open(t).URL, MaxConns: conns})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// held returns a Borrower that has a session with an open connection.
func held(t *testing.T, pool *pgxpool.Pool) *pg.Borrower {
	t.Helper()
	b := pg.NewBorrower(pool)
	if err := b.Hold(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Session().Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &b
}

// TestLender_Shares: many borrowers share a quarter of a pool's connections, and each
// gets its last session again while nobody else uses it.
func TestLender_Shares(t *testing.T) {
	t.Parallel()
	pool := poolOf(t, 12)
	var borrowed, most atomic.Int32
	var working sync.WaitGroup
	for range 20 {
		working.Go(func() {
			b := pg.NewBorrower(pool)
			defer b.Close()
			for range 10 {
				if err := b.Hold(t.Context()); err != nil {
					t.Error(err)
				}
				if err := b.Session().Connect(t.Context()); err != nil {
					t.Error(err)
				}
				n := borrowed.Add(1)
				for last := most.Load(); n > last && !most.CompareAndSwap(last, n); last = most.Load() {
				}
				borrowed.Add(-1)
				b.Release()
			}
		})
	}
	working.Wait()
	if n := most.Load(); n > 3 {
		t.Errorf("%d sessions were lent at once, want at most 3 of 12 connections", n)
	}
	testkit.Eventually(t, "the pool has let go of the closed connections", func() bool { return pool.Stat().AcquiredConns() == 0 })
	one, other := held(t, pool), held(t, pool)
	defer one.Close()
	defer other.Close()
	first := one.Session()
	one.Release()
	other.Release()
	if err := one.Hold(t.Context()); err != nil || one.Session() != first || !one.Again() {
		t.Errorf("another session than before, %v", err)
	}
}

// TestLender_Aside: the sessions for slow borrowers are separate from the others, and
// their number is limited.
func TestLender_Aside(t *testing.T) {
	t.Parallel()
	for conns, want := range map[int]int{1: 0, 2: 0, 3: 0, 4: 1, 8: 2} {
		pool := poolOf(t, conns)
		l := pg.JoinLender(pool)
		var aside []*pg.Session
		for s := l.BorrowAside(nil); s != nil; s = l.BorrowAside(nil) {
			aside = append(aside, s)
		}
		if len(aside) != want {
			t.Errorf("%d of %d connections are set aside, want %d", len(aside), conns, want)
		}
		usual, err := l.Borrow(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		l.Return(usual)
		for _, s := range aside {
			l.Return(s)
		}
		if s := l.BorrowAside(nil); (s != nil) != (want > 0) {
			t.Errorf("of %d connections none is set aside any more", conns)
		} else if s != nil {
			l.Return(s)
		}
		l.Leave()
	}
}

// TestLender_InTurn: a borrower that borrows in a loop does not starve the others.
func TestLender_InTurn(t *testing.T) {
	t.Parallel()
	pool := poolOf(t, 2) // one session
	busy := held(t, pool)
	defer busy.Close()
	served := make(chan struct{})
	go func() {
		defer close(served)
		for range 10 {
			b := pg.NewBorrower(pool)
			if err := b.Hold(t.Context()); err != nil {
				t.Error(err)
			}
			b.Close()
		}
	}()
	for {
		busy.Release()
		if err := busy.Hold(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-served:
			return
		default:
		}
	}
}

// TestSession_PreparesFew: a session keeps only some of very many sets of statements, and
// prepares an evicted set again.
func TestSession_PreparesFew(t *testing.T) {
	t.Parallel()
	b := held(t, poolOf(t, 4))
	defer b.Close()
	s := b.Session()
	for round := range 2 {
		for n := range 300 {
			if err := s.Prepare(t.Context(), n, map[string]string{fmt.Sprint("s", n): fmt.Sprint(`SELECT `, n)}); err != nil {
				t.Fatalf("round %d, statement %d: %v", round, n, err)
			}
		}
	}
	if s.HasRoom() {
		t.Error("there is room for another set, beside 256 that were used just now")
	}
	var kept int
	if err := s.Conn().QueryRow(t.Context(), `SELECT count(*) FROM pg_prepared_statements WHERE name ~ '^s[0-9]+$'`).Scan(&kept); err != nil || kept > 256 {
		t.Errorf("%d statements are prepared, %v", kept, err)
	}
}

// TestLockWait: the first wait is brief. Later waits are in PostgreSQL's queue if there is a
// session for that, else polls. After each Bound GoesOn returns false.
func TestLockWait(t *testing.T) {
	t.Parallel()
	b := held(t, poolOf(t, 4))
	defer b.Close()
	_, locked := b.Session().Conn().Exec(t.Context(), `DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '55P03'; END $$`)
	for aside, want := range map[bool]time.Duration{true: time.Hour, false: time.Millisecond} {
		pool := poolOf(t, 4)
		l := pg.JoinLender(pool)
		if !aside {
			taken := l.BorrowAside(nil)
			defer l.Leave()
			defer l.Return(taken)
		} else {
			defer l.Leave()
		}
		b := held(t, pool)
		defer b.Close()
		wait := pg.LockWait{Bound: time.Hour}
		if first := wait.Next(); first > 100*time.Millisecond {
			t.Errorf("waits for %v at first", first)
		}
		if !wait.GoesOn(locked) {
			t.Error("does not go on")
		}
		b.Release()
		if err := wait.Hold(t.Context(), b); err != nil || wait.Next() != want {
			t.Errorf("then waits for %v, %v, want %v", wait.Next(), err, want)
		}
		if wait.GoesOn(io.EOF) {
			t.Error("goes on after another error")
		}
	}
	short := pg.LockWait{Bound: time.Nanosecond}
	if short.GoesOn(locked) {
		t.Error("nobody looks who keeps the lock")
	}
}

// TestLender_Lifetime: a connection that is older than those of the pool may be is not
// lent again.
func TestLender_Lifetime(t *testing.T) {
	t.Parallel()
	pool := poolOf(t, 4)
	b := held(t, pool)
	defer b.Close()
	b.Outlive()
	b.Release()
	if err := b.Hold(t.Context()); err != nil || b.Session().Conn() != nil {
		t.Errorf("the session has its old connection, %v", err)
	}
}
