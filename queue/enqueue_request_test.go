package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// kinds are queues of all kinds.
var kinds = map[string]queue.Options{"plain": {}, "priorities": {Priorities: 3}, "partitions": {Partitions: 3}}

// enqueuer runs an Enqueuer to the queue until the test ends.
func enqueuer(t *testing.T, q *queue.Queue) *queue.Enqueuer {
	t.Helper()
	e := queue.NewEnqueuer(q, queue.EnqueuerConfig{})
	e.Start()
	t.Cleanup(e.Stop)
	return e
}

// TestEnqueueAs_FindsTheFirst: a repetition, also by another process and with another delay, gets the place of the
// first call, and stores nothing.
func TestEnqueueAs_FindsTheFirst(t *testing.T) {
	t.Parallel()
	for name, opts := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, q := setup(t, opts)
			_, far := elsewhere(t, db.URL, "jobs")
			here, there := enqueuer(t, q), enqueuer(t, far)
			calls := map[string][]queue.Message{
				"without a key": {{Payload: []byte("a")}, {Payload: []byte("b")}},
				"with a key":    {{Key: "k", Payload: []byte("c")}},
				"one with":      {{Payload: []byte("d")}, {Key: "x", Payload: []byte("e")}, {Payload: []byte("f")}},
			}
			if opts.Priorities > 0 {
				calls["urgent"] = []queue.Message{{Payload: []byte("g"), Priority: 2}, {Key: "k", Payload: []byte("h"), Priority: 2}}
			}
			stored := int64(0)
			for client, msgs := range calls {
				request := stream.RequestID{Client: client, Sequence: 7}
				first, err := here.EnqueueAs(t.Context(), request, msgs...)
				if err != nil || first.Duplicate || first.Count != len(msgs) {
					t.Fatalf("%s: %+v, %v", client, first, err)
				}
				stored += int64(len(msgs))
				for i, e := range []*queue.Enqueuer{here, there, there} {
					for m := range msgs {
						msgs[m].Due = time.Now().Add(time.Hour)
					}
					again, err := e.EnqueueAs(t.Context(), request, msgs...)
					want := first
					want.Duplicate = true
					if err != nil || again != want {
						t.Errorf("%s, repetition %d: %+v, %v; want %+v", client, i, again, err, want)
					}
				}
			}
			n, _ := start(t, q, queue.NodeConfig{})
			c := n.Consume(queue.ConsumerOptions{Credits: 100})
			mustAck(t, receive(t, c, int(stored))...)
			wantDone(t, q)
			if s, err := q.Stats(t.Context()); err != nil || s.Head != stored {
				t.Errorf("%d messages, %v, want %d", s.Head, err, stored)
			}
		})
	}
}

// TestEnqueueAs_ManyCallersStoreOnce: callers of two processes repeat the same requests at the same time, and now and
// then stop waiting: each request is stored once, and one caller at most is told that it stored it.
func TestEnqueueAs_ManyCallersStoreOnce(t *testing.T) {
	t.Parallel()
	for name, opts := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, q := setup(t, opts)
			_, far := elsewhere(t, db.URL, "jobs")
			both := []*queue.Enqueuer{enqueuer(t, q), enqueuer(t, far)}
			var mu sync.Mutex
			at, stored := make(map[int64]int64), make(map[int64]int)
			call := func(e *queue.Enqueuer, sequence int64, patience time.Duration) (answered bool) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				m := queue.Message{Payload: fmt.Append(nil, sequence), Priority: int(sequence) % max(opts.Priorities, 1)}
				if sequence%2 > 0 {
					m.Key = fmt.Sprint("k", sequence)
				}
				got, err := e.EnqueueAs(ctx, stream.RequestID{Client: "p", Sequence: sequence}, m)
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return false
				}
				mu.Lock()
				defer mu.Unlock()
				if before := at[sequence]; before != 0 && before != got.First {
					t.Errorf("%d was answered %d and %d", sequence, before, got.First)
				}
				if at[sequence] = got.First; !got.Duplicate {
					stored[sequence]++
				}
				return true
			}
			var calling sync.WaitGroup
			for caller := range 8 {
				calling.Go(func() {
					random := rand.New(rand.NewPCG(uint64(caller), 3))
					for sequence := range int64(30) {
						call(both[caller%2], sequence, time.Duration(random.IntN(10))*time.Millisecond)
						for !call(both[(caller+1)%2], sequence, time.Minute) && !t.Failed() {
						}
					}
				})
			}
			calling.Wait()
			for sequence, times := range stored {
				if times > 1 {
					t.Errorf("%d callers were told that they stored %d", times, sequence)
				}
			}
			if s, err := q.Stats(t.Context()); err != nil || s.Head != 30 || len(at) != 30 {
				t.Errorf("%d messages, %d answered, %v, want 30", s.Head, len(at), err)
			}
		})
	}
}

// TestEnqueueAs_Unique: a repetition of a unique message, and of its duplicate, gets the answer of the first call, also by
// another process and after the end of the period.
func TestEnqueueAs_Unique(t *testing.T) {
	t.Parallel()
	for name, opts := range kinds {
		for _, own := range []bool{false, true} {
			t.Run(fmt.Sprint(name, own), func(t *testing.T) {
				t.Parallel()
				db, q := setup(t, opts)
				if own {
					count(t, db.Pool, `SELECT count(tidewire.own_stream(id)::text) FROM tidewire.queue`)
				}
				_, far := elsewhere(t, db.URL, "jobs")
				here, there := enqueuer(t, q), enqueuer(t, far)
				enqueue := func(e *queue.Enqueuer, sequence int64) queue.Enqueued {
					t.Helper()
					at, err := e.EnqueueAs(t.Context(), stream.RequestID{Client: "p", Sequence: sequence}, only("k", "x", stream.KeepRequests))
					if err != nil {
						t.Fatal(err)
					}
					return at
				}
				first := enqueue(here, 1)
				again := first
				again.Duplicate = true
				if first.Duplicate || first.Count != 1 || enqueue(there, 1) != again || enqueue(there, 2) != again {
					t.Errorf("the first is %+v, its repetition %+v, and its duplicate %+v", first, enqueue(there, 1), enqueue(there, 2))
				}
				endPeriods(t, db.Pool)
				for sequence := range int64(2) {
					if got := enqueue(here, 1+sequence); got != again {
						t.Errorf("%d after the end of the period: %+v, want %+v", 1+sequence, got, again)
					}
				}
				if next := enqueue(there, 3); next.Duplicate || next.First == first.First {
					t.Errorf("a new one after the end of the period: %+v", next)
				}
			})
		}
	}
}

// endPeriods lets more than ten minutes pass for unique messages.
func endPeriods(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `DO $do$
		DECLARE one text;
		BEGIN
			FOR one IN SELECT relname FROM pg_class WHERE relname ~ '^(shared_)?request(_\d+)?_[01]$' LOOP
				EXECUTE format($$UPDATE tidewire.%I SET sequence = sequence - 1000000000 WHERE client LIKE 'unique/%%'$$, one);
			END LOOP;
		END
		$do$`)
	if err != nil {
		t.Fatal(err)
	}
}

// TestEnqueueAs_ManyCallersOfAUniqueMessage: callers of two processes repeat requests with the same unique keys, and now and
// then stop waiting: each key is stored once, and all answers to a request are the same.
func TestEnqueueAs_ManyCallersOfAUniqueMessage(t *testing.T) {
	t.Parallel()
	for name, opts := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, q := setup(t, opts)
			_, far := elsewhere(t, db.URL, "jobs")
			both := []*queue.Enqueuer{enqueuer(t, q), enqueuer(t, far)}
			const keys, perKey = 10, 3
			var mu sync.Mutex
			at := make(map[int64]int64) // by key
			call := func(e *queue.Enqueuer, sequence int64, patience time.Duration) (answered bool) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				key := sequence % keys
				got, err := e.EnqueueAs(ctx, stream.RequestID{Client: "p", Sequence: sequence}, only(fmt.Sprint(key), "x", stream.KeepRequests))
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return false
				}
				mu.Lock()
				defer mu.Unlock()
				if before := at[key]; before != 0 && before != got.First {
					t.Errorf("key %d was answered %d and %d", key, before, got.First)
				}
				at[key] = got.First
				return true
			}
			var calling sync.WaitGroup
			for caller := range 8 {
				calling.Go(func() {
					random := rand.New(rand.NewPCG(uint64(caller), 4))
					for sequence := range int64(keys * perKey) {
						call(both[caller%2], sequence, time.Duration(random.IntN(10))*time.Millisecond)
						for !call(both[(caller+1)%2], sequence, time.Minute) && !t.Failed() {
						}
					}
				})
			}
			calling.Wait()
			if s, err := q.Stats(t.Context()); err != nil || s.Head != keys || len(at) != keys {
				t.Errorf("%d messages, %d answered, %v, want %d", s.Head, len(at), err, keys)
			}
		})
	}
}

// TestEnqueueAs_Invalid: a rejected request is not recorded, and can be sent again as it should be.
func TestEnqueueAs_Invalid(t *testing.T) {
	t.Parallel()
	_, q := setup(t, queue.Options{Partitions: 8})
	e := enqueuer(t, q)
	plain := queue.Message{Payload: []byte("x")}
	for _, bad := range []struct {
		client   string
		sequence int64
		msgs     []queue.Message
	}{
		{"", 1, []queue.Message{plain}}, {"p", -1, []queue.Message{plain}}, {"unique/1000000/00", 1, []queue.Message{plain}},
		{"p", 1, []queue.Message{only("a", "x", time.Minute), plain}}, {"p", -1, []queue.Message{only("a", "x", time.Minute)}},
		{"", 0, []queue.Message{only("a", "x", time.Minute)}}, {"p", 1, nil},
	} {
		if at, err := e.EnqueueAs(t.Context(), stream.RequestID{Client: bad.client, Sequence: bad.sequence}, bad.msgs...); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("%q, %d, %d messages: %+v, %v, want ErrInvalid", bad.client, bad.sequence, len(bad.msgs), at, err)
		}
	}
	request := stream.RequestID{Client: "p", Sequence: 1}
	var several []queue.Message
	for i := range 50 {
		several = append(several, keyed(fmt.Sprint(i), "x"))
	}
	if _, err := e.EnqueueAs(t.Context(), request, several...); !errors.Is(err, queue.ErrCrossPartition) {
		t.Errorf("keys of several partitions: %v, want ErrCrossPartition", err)
	}
	if at, err := e.EnqueueAs(t.Context(), request, plain); err != nil || at.Duplicate {
		t.Errorf("after rejections: %+v, %v", at, err)
	}
	if _, err := q.EnqueueAs(t.Context(), request, plain); !errors.Is(err, queue.ErrNotRunning) {
		t.Errorf("without a Client: %v, want ErrNotRunning", err)
	}
}

// TestEnqueueAs_OfClient: the queues of a Client enqueue requests, and a queue that was made again knows none of the
// dropped one.
func TestEnqueueAs_OfClient(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	c, err := queue.Open(t.Context(), db.Pool, queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	request := stream.RequestID{Client: "p", Sequence: 1}
	for range 2 {
		q, err := c.Ensure(t.Context(), "jobs", queue.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			if at, err := q.EnqueueAs(t.Context(), request, queue.Message{}); err != nil || at.Duplicate != (i > 0) {
				t.Fatalf("call %d: %+v, %v", i, at, err)
			}
		}
		if err := c.Drop(t.Context(), "jobs"); err != nil {
			t.Fatal(err)
		}
	}
}
