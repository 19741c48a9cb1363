package stream_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
)

// kept is a stream whose messages retention drops while others are stored and followed.
type kept struct {
	s         *stream.Stream
	until     atomic.Int64 // where followers end
	mu        sync.Mutex   // guards stored
	stored    []int64
	followers []*survivor
}

// appendUntil appends a few messages now and then, so that the stream does not need its own tables.
// If the stream may be dropped, it ends when that happens.
func (k *kept) appendUntil(t *testing.T, a *stream.Appender, over *atomic.Bool, random *rand.Rand, dropped bool) {
	for !over.Load() {
		msgs := make([]stream.Message, 1+random.IntN(4))
		for i := range msgs {
			msgs[i].Payload = make([]byte, random.IntN(300))
		}
		first, err := firstOf(a.Append(t.Context(), msgs...))
		if dropped && errors.Is(err, stream.ErrNotFound) {
			return
		}
		if err != nil {
			t.Error(err)
			return
		}
		k.mu.Lock()
		for i := range msgs {
			k.stored = append(k.stored, first+int64(i))
		}
		k.mu.Unlock()
		time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond)
	}
}

// check wants every stored message to be kept or dropped by retention, and the followers' results to be true.
func (k *kept) check(t *testing.T) {
	t.Helper()
	info := inspect(t, k.s)
	msgs, err := k.s.Read(t.Context(), info.Oldest-1, 1_000_000)
	if err != nil {
		t.Error(err)
	}
	var got, want []int64
	for _, m := range msgs {
		got = append(got, m.Position)
	}
	for _, p := range k.stored {
		if p >= info.Oldest {
			want = append(want, p)
		}
	}
	if !slices.Equal(got, want) || info.Head != k.stored[len(k.stored)-1] {
		t.Errorf("%s: %d messages from %d to %d are kept, of %d", k.s.Name(), len(got), info.Oldest, info.Head, len(want))
	}
	for _, f := range k.followers {
		f.check(t, k.stored)
	}
}

// TestRetentionWorker_SharedStreamsUnderLoad: two RetentionWorkers drop messages of streams to which two nodes append, which are
// followed, moved and dropped.
func TestRetentionWorker_SharedStreamsUnderLoad(t *testing.T) {
	t.Parallel()
	for seed := range pgtest.Seeds() {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			sharedUnderLoad(t, seed)
		})
	}
}

func sharedUnderLoad(t *testing.T, seed uint64) {
	const streams = 6 // the first one moves, and the last one is dropped
	db := setup(t)
	nodes := pools(t, db.URL, 2)
	var over atomic.Bool
	var told atomic.Int64
	var appending, following sync.WaitGroup
	all := make([]*kept, streams)
	hubs := make([]*stream.Hub, len(nodes))
	for n, pool := range nodes {
		keep(t, pool)
		hubs[n], _ = runHub(t, pool, stream.HubConfig{Poll: 20 * time.Millisecond, TailBytes: 8 << 10, PageMessages: 20})
	}
	for i := range streams {
		k := &kept{}
		all[i] = k
		for n, pool := range nodes {
			k.s = ensureOn(t, pool, fmt.Sprint("s", i))
			a := run(t, pool, k.s, stream.AppenderConfig{Hub: hubs[n]})
			random := rand.New(rand.NewPCG(seed, uint64(10*i+n)))
			appending.Go(func() { k.appendUntil(t, a, &over, random, i == streams-1) })
			if i < streams-1 {
				f := &survivor{told: &told}
				k.followers = append(k.followers, f)
				s := k.s
				following.Go(func() { f.follow(t, hubs[n], s, &k.until, (i+n)%2 == 0, i%3 == 0) })
			}
		}
		alter(t, db.Pool, k.s, stream.Retention{MaxBytes: 4 << 10, MaxAge: time.Duration(i%2) * 200 * time.Millisecond})
	}
	random := rand.New(rand.NewPCG(seed, 99))
	pause := func() { time.Sleep(time.Duration(500+random.IntN(500)) * time.Millisecond) }
	pause()
	for _, k := range all[:streams-1] {
		testkit.Eventually(t, k.s.Name()+" to lose messages", func() bool { return inspect(t, k.s).Oldest > 1 })
	}
	moveStream(t, db.Pool, all[0].s)
	pause()
	if err := stream.Drop(t.Context(), db.Pool, all[streams-1].s.Name()); err != nil {
		t.Error(err)
	}
	pause()
	for end := time.Now().Add(time.Minute); told.Load() == 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	over.Store(true)
	appending.Wait()
	for _, k := range all[:streams-1] {
		slices.Sort(k.stored)
		k.until.Store(k.stored[len(k.stored)-1])
	}
	following.Wait()
	exec(t, db.Pool, `DELETE FROM tidewire.retention`) // the streams do not change from here on
	waitQuiet(t, db)
	for i, k := range all[:streams-1] {
		k.check(t)
		if info := inspect(t, k.s); info.Oldest == 1 || isShared(t, db, k.s) != (i > 0) {
			t.Errorf("%s: nothing was dropped, or it is not where it should be: %+v", k.s.Name(), info)
		}
	}
	var left int
	if err := db.Pool.QueryRow(context.Background(), `SELECT (SELECT count(*) FROM tidewire.shared_message WHERE stream = ANY ($1)) +
		(SELECT count(*) FROM tidewire.shared_floor WHERE stream = ANY ($1))`, []int32{all[0].s.ID(), all[streams-1].s.ID()}).Scan(&left); err != nil || left > 0 || told.Load() == 0 {
		t.Errorf("%d messages and floors are left of streams that are not there, %v; %d were told", left, err, told.Load())
	}
}
