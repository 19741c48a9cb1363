package stream_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

// TestSharedRequests_Straggler: a request is recorded in a table that goes out of use, and comes into
// use again, before the record is committed. It is found there until it expires.
func TestSharedRequests_Straggler(t *testing.T) {
	t.Parallel()
	for _, rotations := range []int{1, 2, 3} {
		t.Run(fmt.Sprint(rotations), func(t *testing.T) {
			t.Parallel()
			db, s := ensure(t)
			p := stream.RequestID{Client: "p", Sequence: 1}
			straggler := begin(t, db.Pool, pgx.ReadCommitted)
			appendAs(t, straggler, s, p, "once")
			for n := range rotations {
				rotateShared(t, db, s)
				if got := turn(t, db); got != n+1 {
					t.Errorf("after rotation %d it is turn %d", n+1, got)
				}
			}
			commitTx(t, straggler)
			if got := sharedRecords(t, db, s); got != [3]int{1, 0, 0} {
				t.Errorf("records and floors: %v", got)
			}
			a := run(t, db.Pool, s, stream.AppenderConfig{})
			wantRequest(t, a, p, stream.Appended{First: 1, Last: 1})
			for n := 0; sharedRecords(t, db, s) != [3]int{0, 0, 1}; n++ {
				if n == 2 {
					t.Fatalf("records and floors two rotations later: %v", sharedRecords(t, db, s))
				}
				wantRequest(t, a, p, stream.Appended{First: 1, Last: 1})
				rotateShared(t, db, s)
			}
			wantOldRequest(t, a, p)
			wantStored(t, s, "once")
		})
	}
}

// twoOldStreams creates two streams with one request each, whose records are due for folding.
func twoOldStreams(t *testing.T) (db pgtest.DB, moving, other *stream.Stream, p stream.RequestID) {
	db, moving = ensure(t)
	other = ensureNamed(t, db.Pool, "other", false)
	p = stream.RequestID{Client: "p", Sequence: 1}
	for _, s := range []*stream.Stream{moving, other} {
		a, stop := start(t, db.Pool, s, stream.AppenderConfig{})
		for sequence := range int64(3) {
			mustAppendAs(t, a, stream.RequestID{Client: "p", Sequence: sequence}, "x")
		}
		stop()
	}
	rotateShared(t, db, moving)
	exec(t, db.Pool, agedSharedSQL, 2*stream.KeepRequests)
	return db, moving, other, p
}

// removals are the statements that remove the records of a stream, besides a fold.
var removals = map[string]string{"move": `SELECT tidewire.own_stream($1)`, "drop": `SELECT tidewire.drop_stream_tables($1)`}

// TestSharedRequests_FoldBesideARemoval: a fold does not wait for a stream that is being moved or
// dropped, but folds the others.
func TestSharedRequests_FoldBesideARemoval(t *testing.T) {
	t.Parallel()
	for what, sql := range removals {
		for _, commit := range []bool{true, false} {
			t.Run(fmt.Sprint(what, commit), func(t *testing.T) {
				t.Parallel()
				db, s, other, p := twoOldStreams(t)
				removal := begin(t, db.Pool, pgx.ReadCommitted)
				exec(t, removal, sql, s.ID())
				rotateShared(t, db, s)
				if got := sharedRecords(t, db, other); got != [3]int{0, 0, 1} {
					t.Errorf("records and floors of the other: %v", got)
				}
				if !commit {
					rollBack(t, removal)
					wantRequest(t, run(t, db.Pool, s, stream.AppenderConfig{}), p, stream.Appended{First: 2, Last: 2})
					return
				}
				commitTx(t, removal)
				if got := sharedRecords(t, db, s); got != [3]int{} {
					t.Errorf("records and floors: %v", got)
				}
				if what == "move" {
					wantRequest(t, run(t, db.Pool, s, stream.AppenderConfig{}), p, stream.Appended{First: 2, Last: 2})
				}
			})
		}
	}
}

// TestSharedRequests_RemovalBesideAFold: a move or drop waits for the fold, and takes the floors.
func TestSharedRequests_RemovalBesideAFold(t *testing.T) {
	t.Parallel()
	for what, sql := range removals {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			db, s, _, p := twoOldStreams(t)
			fold := begin(t, db.Pool, pgx.ReadCommitted)
			exec(t, fold, `SELECT tidewire.fold_shared_requests($1, 0, 100)`, stream.KeepRequests)
			removed := make(chan error, 1)
			go func() {
				_, err := db.Pool.Exec(context.Background(), sql, s.ID())
				removed <- err
			}()
			awaitLockWaiter(t, db)
			commitTx(t, fold)
			if err := <-removed; err != nil {
				t.Fatalf("%s: %s %v", what, pg.Code(err), err)
			}
			if got := sharedRecords(t, db, s); got != [3]int{} {
				t.Errorf("records and floors: %v", got)
			}
			if what == "move" {
				a := run(t, db.Pool, s, stream.AppenderConfig{})
				wantOldRequest(t, a, p)
				mustAppendAs(t, a, stream.RequestID{Client: "p", Sequence: 3}, "new")
				wantStored(t, s, "x, x, x, new")
			}
		})
	}
}
