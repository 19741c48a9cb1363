package stream_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

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

// TestAppendAs_LostConnectionsStoreOnce lets callers of several nodes repeat the
// same few requests, beside others without a RequestID, while connections are cut
// around COMMIT.
func TestAppendAs_LostConnectionsStoreOnce(t *testing.T) {
	t.Parallel()
	for seed := range pgtest.Seeds() {
		for name, method := range allMethods {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				t.Parallel()
				db, s := ensure(t)
				cfg := stream.AppenderConfig{Writer: stream.WriterConfig{Method: method}}
				nodes := []*stream.Appender{
					run(t, cutPool(t, db, randomPlan(seed, 400)), s, cfg),
					run(t, cutPool(t, db, randomPlan(seed+100, 400)), s, cfg),
					run(t, db.Pool, s, cfg),
				}
				var r retries
				var others atomic.Int64
				var calling sync.WaitGroup
				for n, a := range nodes {
					for c := range 4 {
						calling.Go(func() {
							random := rand.New(rand.NewPCG(seed, uint64(10*n+c)))
							for sequence := range int64(15) {
								p := stream.RequestID{Client: fmt.Sprint("p", c%2), Sequence: sequence}
								r.append(t, a, p, time.Duration(random.IntN(20))*time.Millisecond)
								for !r.append(t, a, p, time.Minute) && !t.Failed() {
								}
								mustAppend(t, a, messages("other")...)
								others.Add(1)
							}
						})
					}
				}
				calling.Wait()
				if len(r.first) != 30 {
					t.Errorf("%d requests answered, want 30", len(r.first))
				}
				r.check(t, everything(t, s), others.Load())
			})
		}
	}
}

// TestAppendAs_RotatesUnderLoad rotates the records continually while each request
// is sent twice: within KeepRequests a repetition gets its recorded result, and
// nothing is ever stored twice.
func TestAppendAs_RotatesUnderLoad(t *testing.T) {
	t.Parallel()
	db, s := ensureOwn(t)
	const fold, swap = `SELECT tidewire.fold_requests(1000, $1)`, `SELECT tidewire.swap_requests(1000, $1)`
	nodes := pools(t, db.URL, 2)
	var r retries
	var calling, rotating sync.WaitGroup
	over := make(chan struct{})
	rotated := 0
	rotating.Go(func() {
		for done := false; !done; {
			select {
			case <-over:
				done = true
			default:
			}
			_, err := db.Pool.Exec(context.Background(), agedSQL, stream.KeepRequests)
			var due, swapped bool
			if err == nil {
				err = db.Pool.QueryRow(context.Background(), fold, stream.KeepRequests).Scan(&due)
			}
			if err == nil && due {
				if db.Pool.QueryRow(context.Background(), swap, stream.KeepRequests).Scan(&swapped) == nil && swapped {
					rotated++
				}
			}
			if err != nil {
				t.Error(err)
			}
		}
	})
	for n, pool := range nodes {
		a := run(t, pool, s, stream.AppenderConfig{})
		for c := range 4 {
			calling.Go(func() {
				for sequence := range int64(30) {
					p := stream.RequestID{Client: fmt.Sprint(n, c), Sequence: sequence}
					if !r.append(t, a, p, time.Minute) {
						return
					}
					// So soon rotated that it may be too old, but not stored again.
					if again, err := a.AppendAs(soon(t), p, messages("twice")...); err == nil && (again.Count() != 2 || !again.Duplicate) {
						t.Errorf("%v again: %+v", p, again)
					}
				}
			})
		}
	}
	calling.Wait()
	close(over)
	rotating.Wait()
	if rotated == 0 {
		t.Error("nothing was rotated")
	}
	r.check(t, everything(t, s), 0)
}
