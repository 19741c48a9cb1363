package stream_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

// TestSharedRequests_RotateUnderLoad: nodes repeat each other's requests to several streams, some of
// which move, while two processes continually rotate the records, a few blocks at a time. Each
// request is stored once, and there is no deadlock.
func TestSharedRequests_RotateUnderLoad(t *testing.T) {
	t.Parallel()
	notShort(t)
	forSeeds(t, func(t *testing.T, seed uint64) {
		db := setup(t)
		const nStreams, nSequences = 4, 20
		nodes := pools(t, db.URL, 2)
		asked := make([]retries, nStreams)
		var streams []*stream.Stream
		var calling, rotating sync.WaitGroup
		over := make(chan struct{})
		for i := range nStreams {
			one := ensureNamed(t, db.Pool, fmt.Sprint("s", i), false)
			streams = append(streams, one)
			for n, pool := range nodes {
				a := run(t, pool, ensureNamed(t, pool, fmt.Sprint("s", i), false), stream.AppenderConfig{})
				for c := range 2 {
					random := rand.New(rand.NewPCG(seed, uint64(100*i+10*n+c)))
					calling.Go(func() {
						for sequence := range int64(nSequences) {
							p := stream.RequestID{Client: fmt.Sprint("p", n, c), Sequence: sequence}
							if !asked[i].append(t, a, p, time.Minute) {
								return
							}
							// So soon rotated that it may be too old, but not stored again.
							again := stream.RequestID{Client: p.Client, Sequence: random.Int64N(sequence + 1)}
							if got, err := a.AppendAs(soon(t), again, messages("twice")...); err == nil && (got.Count() != 2 || !got.Duplicate) {
								t.Errorf("%v again: %+v", again, got)
							}
							if i < 2 && n == 0 && c == 0 && sequence == int64(5+8*i) {
								moveStream(t, pool, one)
							}
						}
					})
				}
			}
		}
		var rotated [2]int
		for n := range rotated {
			rotating.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(n)))
				for done := false; !done; {
					select {
					case <-over:
						done = true
					default:
					}
					if _, err := db.Pool.Exec(context.Background(), agedSharedSQL, stream.KeepRequests); err != nil {
						t.Error(err)
					}
					var in, blocks *int64
					for block, end := int64(0), int64(1); block < end; {
						next := block + 1 + random.Int64N(3)
						err := db.Pool.QueryRow(context.Background(), `SELECT turn, blocks FROM tidewire.fold_shared_requests($1, $2, $3)`,
							stream.KeepRequests, block, next).Scan(&in, &blocks)
						if err != nil {
							t.Error(err)
						}
						if in == nil {
							break
						}
						block, end = next, *blocks
					}
					if in == nil {
						continue
					}
					var swapped bool
					if err := db.Pool.QueryRow(context.Background(), `SELECT tidewire.swap_shared_requests($1)`, *in).Scan(&swapped); err != nil {
						t.Error(err)
					}
					if swapped {
						rotated[n]++
					}
				}
			})
		}
		calling.Wait()
		close(over)
		rotating.Wait()
		if rotated[0]+rotated[1] == 0 {
			t.Error("nothing was rotated")
		}
		for i, s := range streams {
			if len(asked[i].first) != 4*nSequences {
				t.Errorf("stream %d: %d requests answered, want %d", i, len(asked[i].first), 4*nSequences)
			}
			asked[i].check(t, everything(t, s), 0)
			if shared := i >= 2; isShared(t, db, s) != shared {
				t.Errorf("stream %d: shared is %t", i, !shared)
			}
		}
	})
}

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

// retries records all answers to clients, including those to repetitions.
type retries struct {
	mu     sync.Mutex
	first  map[stream.RequestID]int64
	stored map[stream.RequestID]bool // by a call with that answer
}

// append appends as the client, two messages that name the request. Now and then it
// stops waiting, like a client that will retry.
func (r *retries) append(t *testing.T, a *stream.Appender, p stream.RequestID, patience time.Duration) (answered bool) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stored, err := a.AppendAs(ctx, p, messages(fmt.Sprint(p.Client, " ", p.Sequence, " a"), fmt.Sprint(p.Client, " ", p.Sequence, " b"))...)
	if err != nil {
		if ctx.Err() == nil {
			t.Errorf("%v: %v", p, err)
		}
		return false
	}
	first := stored.First
	if stored.Count() != 2 {
		t.Errorf("%v: %+v, want two messages", p, stored)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first == nil {
		r.first, r.stored = make(map[stream.RequestID]int64), make(map[stream.RequestID]bool)
	}
	if before := r.first[p]; before != 0 && before != first {
		t.Errorf("%v was answered %d and %d", p, before, first)
	}
	if !stored.Duplicate {
		if r.stored[p] {
			t.Errorf("two callers of %v were told that they stored it", p)
		}
		r.stored[p] = true
	}
	r.first[p] = first
	return true
}

// check wants each request once, at its returned position, and otherwise only the
// messages of other callers.
func (r *retries) check(t *testing.T, all []stream.Message, others int64) {
	t.Helper()
	if want := 2*len(r.first) + int(others); len(all) != want {
		t.Errorf("%d messages stored, want %d", len(all), want)
	}
	stored := make(map[string]int64)
	for _, m := range all {
		if stored[string(m.Payload)] != 0 && string(m.Payload) != "other" {
			t.Errorf("%q is stored twice", m.Payload)
		}
		stored[string(m.Payload)] = m.Position
	}
	for p, first := range r.first {
		name := fmt.Sprint(p.Client, " ", p.Sequence)
		if stored[name+" a"] != first || stored[name+" b"] != first+1 {
			t.Errorf("%s is at %d and %d, its answer said %d", name, stored[name+" a"], stored[name+" b"], first)
		}
	}
}
