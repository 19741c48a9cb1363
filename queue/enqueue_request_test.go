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

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// TestEnqueueAs_FindsTheFirst: a repetition, also by another process and with another delay, gets the place of the
// first call, and stores nothing.
func TestEnqueueAs_FindsTheFirst(t *testing.T) {
	t.Parallel()
	eachKind(t, queue.Options{}, func(t *testing.T, db pgtest.DB, q *queue.Queue) {
		_, far := elsewhere(t, db.URL, q.Name())
		here, there := enqueuer(t, q), enqueuer(t, far)
		urgent := max(1, q.Options().Priorities) - 1
		stored := int64(0)
		for client, msgs := range map[string][]queue.Message{
			"without a key": {keyed("", "a"), keyed("", "b")},
			"with a key":    {keyed("k", "c")},
			"one with":      {keyed("", "d"), keyed("x", "e"), keyed("", "f")},
			"urgent":        {graded(urgent, "g"), {Key: "u", Payload: []byte("h"), Priority: urgent}},
		} {
			request := stream.RequestID{Client: client, Sequence: 7}
			first, err := here.EnqueueAs(t.Context(), request, msgs...)
			if err != nil || first.Duplicate || first.Count != len(msgs) {
				t.Fatalf("%s: %+v, %v", client, first, err)
			}
			stored += int64(len(msgs))
			first.Duplicate = true
			for i, e := range []*queue.Enqueuer{here, there, there} {
				for m := range msgs {
					msgs[m].Due = time.Now().Add(time.Hour)
				}
				if again, err := e.EnqueueAs(t.Context(), request, msgs...); err != nil || again != first {
					t.Errorf("%s, repetition %d: %+v, %v; want %+v", client, i, again, err, first)
				}
			}
		}
		n, _ := start(t, q, queue.NodeConfig{})
		mustAck(t, receive(t, n.Consume(queue.ConsumerOptions{Credits: 100}), int(stored))...)
		wantDone(t, q)
		if s := statsOf(t, q); s.Head != stored {
			t.Errorf("%d messages, want %d", s.Head, stored)
		}
	})
}

// TestEnqueueAs_ManyCallersStoreOnce: callers of two processes repeat the same requests at the same time, also with the same
// unique keys, and now and then stop waiting: each request and each key is stored once, all answers are the same, and one
// caller at most is answered that it has stored a request.
func TestEnqueueAs_ManyCallersStoreOnce(t *testing.T) {
	slow(t)
	t.Parallel()
	const requests, keys = 20, 5
	eachKind(t, queue.Options{}, func(t *testing.T, db pgtest.DB, q *queue.Queue) {
		_, far := elsewhere(t, db.URL, q.Name())
		both := []*queue.Enqueuer{enqueuer(t, q), enqueuer(t, far)}
		var mu sync.Mutex
		at, stored := make(map[string]int64), make(map[int64]int)
		call := func(e *queue.Enqueuer, sequence int64, patience time.Duration) (answered bool) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			text := fmt.Sprint(sequence)
			m := queue.Message{Payload: []byte(text), Priority: int(sequence) % max(q.Options().Priorities, 1)}
			switch {
			case sequence >= requests:
				text = fmt.Sprint("unique ", sequence%keys)
				m = only(text, "x", stream.KeepRequests)
			case sequence%2 > 0:
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
			if before := at[text]; before != 0 && before != got.First {
				t.Errorf("%s was answered %d and %d", text, before, got.First)
			}
			if at[text] = got.First; !got.Duplicate {
				stored[sequence]++
			}
			return true
		}
		var calling sync.WaitGroup
		for caller := range 4 {
			calling.Go(func() {
				random := rand.New(rand.NewPCG(uint64(caller), 3))
				for sequence := range int64(2 * requests) {
					call(both[caller%2], sequence, time.Duration(random.IntN(10))*time.Millisecond)
					for !call(both[(caller+1)%2], sequence, time.Minute) && !t.Failed() {
					}
				}
			})
		}
		calling.Wait()
		for sequence, times := range stored {
			if times > 1 {
				t.Errorf("%d callers were answered that they have stored %d", times, sequence)
			}
		}
		if s := statsOf(t, q); s.Head != requests+keys || len(at) != requests+keys {
			t.Errorf("%d messages, %d answered, want %d", s.Head, len(at), requests+keys)
		}
	})
}

// TestEnqueueAs_Unique: a repetition of a unique message, and of its duplicate, gets the answer of the first call, also by
// another process and after the end of the period. A key is stored again when a period has passed.
func TestEnqueueAs_Unique(t *testing.T) {
	slow(t)
	t.Parallel()
	for _, own := range []bool{false, true} { // whether the streams have tables of their own
		eachKindIn(t, migrated.Open(t), queue.Options{}, func(t *testing.T, db pgtest.DB, q *queue.Queue) {
			if own {
				for _, s := range q.Streams() {
					count(t, db.Pool, `SELECT count(tidewire.own_stream($1)::text)`, s.ID())
				}
			}
			_, far := elsewhere(t, db.URL, q.Name())
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

// TestEnqueueAs_Invalid: a rejected request is not recorded, and can be sent again as it should be.
func TestEnqueueAs_Invalid(t *testing.T) {
	t.Parallel()
	q := setupShared(t, queue.Options{Partitions: 8})
	e := enqueuer(t, q)
	plain, unique := keyed("", "x"), only("a", "x", time.Minute)
	for _, bad := range []struct {
		client   string
		sequence int64
		msgs     []queue.Message
	}{
		{"", 1, []queue.Message{plain}}, {"p", -1, []queue.Message{plain}}, {"unique/1000000/00", 1, []queue.Message{plain}},
		{"p", 1, []queue.Message{unique, plain}}, {"p", -1, []queue.Message{unique}}, {"", 0, []queue.Message{unique}}, {"p", 1, nil},
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
