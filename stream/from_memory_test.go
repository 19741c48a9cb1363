package stream_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/stream"
)

// TestHub_ReadsNothingAtTheEnd: a subscription at the end gets the process's own commits
// from memory, without a read.
func TestHub_ReadsNothingAtTheEnd(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	pool, reads := countingPool(t, db.URL, "AS candidate")
	h, _ := runHub(t, pool, stream.HubConfig{Poll: never, NoListen: true})
	a := run(t, db.Pool, s, stream.AppenderConfig{Hub: h})
	sub := subscribe(t, h, s, stream.After(0))
	// A read during which a commit happens is followed by another one, until no commit
	// happens.
	for n := range 3 {
		mustAppend(t, a, messages("first")...)
		for sub.Position() < int64(n+1) {
			next(t, sub)
		}
	}
	before := reads.count.Load()
	for n := range 50 {
		mustAppend(t, a, stream.Message{Key: "k", Payload: fmt.Append(nil, n)})
		if page := next(t, sub); len(page) != 1 || string(page[0].Payload) != fmt.Sprint(n) || page[0].Key != "k" {
			t.Fatalf("message %d: %+v", n, page)
		}
	}
	if n := reads.count.Load() - before; n > 10 {
		t.Errorf("%d reads for 50 commits, want none, or those of a read that met a commit", n)
	}
}

// sameMessages compares messages, headers by their meaning.
func sameMessages(t *testing.T, what string, got, want []stream.Message) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d messages, want %d", what, len(got), len(want))
		return
	}
	for i := range got {
		g, w := got[i], want[i]
		var gh, wh any
		json.Unmarshal(g.Headers, &gh)
		json.Unmarshal(w.Headers, &wh)
		if g.Position != w.Position || g.Key != w.Key || string(g.Payload) != string(w.Payload) || !g.Time.Equal(w.Time) ||
			!reflect.DeepEqual(gh, wh) || (g.Payload == nil) != (w.Payload == nil) {
			t.Fatalf("%s: message %d is %+v, and in PostgreSQL %+v", what, i, g, w)
		}
	}
}

// TestHub_FromMemoryIsWhatIsStored: two nodes append batches of all kinds to three
// streams, and follow them. Subscriptions return the stored messages, from memory or
// not.
func TestHub_FromMemoryIsWhatIsStored(t *testing.T) {
	t.Parallel()
	db := setup(t)
	const streams, calls = 3, 60
	var all []*stream.Stream
	for n := range streams {
		all = append(all, ensureOn(t, db.Pool, fmt.Sprint(n)))
	}
	var subs []*stream.Subscription
	var appending sync.WaitGroup
	for node, pool := range append(pools(t, db.URL, 1), db.Pool) {
		h, _ := runHub(t, pool, stream.HubConfig{Announce: true})
		for i, s := range all {
			subs = append(subs, subscribe(t, h, s, stream.After(0)))
			appending.Go(func() { appendAll(t, pool, s, h, calls, uint64(10*node+i)) })
		}
	}
	got := make([][]stream.Message, len(subs))
	last := make([]atomic.Int64, streams)
	var following sync.WaitGroup
	for i, sub := range subs {
		following.Go(func() {
			for end := &last[i%streams]; end.Load() == 0 || sub.Position() < end.Load(); {
				got[i] = append(got[i], next(t, sub)...)
			}
		})
	}
	appending.Wait()
	for i, s := range all { // the last message, after which all know where the end is
		head, err := s.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		last[i].Store(head + 1)
		if first := mustAppend(t, run(t, db.Pool, s, stream.AppenderConfig{}), messages("last")...); first != head+1 {
			t.Fatalf("the last message is at %d, after %d", first, head)
		}
	}
	following.Wait()
	for i := range subs {
		sameMessages(t, fmt.Sprint("subscription ", i), got[i], everything(t, all[i%streams]))
	}
}

// appendAll appends calls of several sizes, with and without keys and headers.
func appendAll(t *testing.T, pool *pgxpool.Pool, s *stream.Stream, h *stream.Hub, calls int, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 3))
	a := run(t, pool, s, stream.AppenderConfig{Hub: h})
	var waiting sync.WaitGroup
	for n := range calls {
		msgs := make([]stream.Message, 1+random.IntN(3))
		if random.IntN(20) == 0 {
			msgs = make([]stream.Message, 300)
		}
		for i := range msgs {
			msgs[i].Payload = fmt.Append(nil, seed, " ", n, " ", i)
			if random.IntN(2) == 0 {
				msgs[i].Key = fmt.Sprint("key-", n)
			}
			if random.IntN(20) == 0 {
				msgs[i].Headers = json.RawMessage(`{"b":  1, "a": [2]}`)
			}
			if random.IntN(20) == 0 {
				msgs[i].Payload = nil
			}
		}
		waiting.Add(1)
		if err := a.Submit(t.Context(), msgs, func(_ stream.Appended, err error) {
			if err != nil {
				t.Error(err)
			}
			waiting.Done()
		}); err != nil {
			t.Error(err)
			waiting.Done()
		}
		if random.IntN(2) == 0 {
			waiting.Wait()
		}
	}
	waiting.Wait()
}
