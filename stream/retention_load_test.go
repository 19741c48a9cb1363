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

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
)

// kept is a stream whose messages retention drops while others are stored and followed.
type kept struct {
	s         *stream.Stream
	gone      atomic.Bool  // it was dropped
	until     atomic.Int64 // where followers end
	mu        sync.Mutex   // guards stored
	stored    []int64
	followers []*survivor
}

// append stores some messages, and reports whether it may go on.
func (k *kept) append(t *testing.T, a *stream.Appender, random *rand.Rand, most, size int) bool {
	msgs := make([]stream.Message, 1+random.IntN(most))
	for i := range msgs {
		msgs[i].Payload = make([]byte, random.IntN(size))
	}
	first, err := firstOf(a.Append(t.Context(), msgs...))
	if err != nil {
		if !k.gone.Load() || !errors.Is(err, stream.ErrNotFound) {
			t.Error(err)
		}
		return k.gone.Load()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range msgs {
		k.stored = append(k.stored, first+int64(i))
	}
	return true
}

// check wants every stored message to be kept or dropped by retention, and the followers' results to be true.
func (k *kept) check(t *testing.T) {
	t.Helper()
	info := inspect(t, k.s)
	msgs, err := k.s.Read(t.Context(), info.Oldest-1, 1_000_000)
	if err != nil {
		t.Error(err)
	}
	var got []int64
	for _, m := range msgs {
		got = append(got, m.Position)
	}
	at, _ := slices.BinarySearch(k.stored, info.Oldest)
	if !slices.Equal(got, k.stored[at:]) || info.Oldest == 1 {
		t.Errorf("%s: %d messages from %d on are kept, of %d", k.s.Name(), len(got), info.Oldest, len(k.stored)-at)
	}
	for _, f := range k.followers {
		f.check(t, k.stored)
	}
}

// keepUnderLoad lets nodes append to four streams, of which the first is much larger than the others, with a RetentionWorker on each
// node. Each stream but the last has survivors. It runs until meanwhile has returned, and all have lost messages.
func keepUnderLoad(t *testing.T, nodes []*pgxpool.Pool, seed uint64, meanwhile func(all []*kept)) {
	var over atomic.Bool
	var told atomic.Int64
	var appending, following sync.WaitGroup
	var all []*kept
	for i := range 4 {
		k := &kept{s: ensureOn(t, nodes[0], fmt.Sprint("kept ", i))}
		r := stream.Retention{MaxBytes: 4 << 10, MaxAge: time.Duration(i%2) * 200 * time.Millisecond}
		if i == 0 {
			r = stream.Retention{MaxBytes: 128 << 10}
		}
		alter(t, nodes[0], k.s, r)
		all = append(all, k)
	}
	for n, pool := range nodes {
		keep(t, pool)
		h, _ := runHub(t, pool, stream.HubConfig{Poll: 20 * time.Millisecond, TailBytes: 64 << 10, PageMessages: 50})
		for c := range 2 {
			var appenders []*stream.Appender
			for i, k := range all {
				cfg := stream.AppenderConfig{Hub: h}
				if i == 0 {
					cfg.Writer.Method = stream.Method(2 * c)
				}
				appenders = append(appenders, run(t, pool, lookUp(t, pool, k.s.Name()), cfg))
			}
			random := rand.New(rand.NewPCG(seed, uint64(10*n+c)))
			appending.Go(func() {
				for ok := true; ok && !over.Load(); {
					ok = all[0].append(t, appenders[0], random, 40, 1000)
					if i := 1 + random.IntN(30); i < len(all) {
						ok = ok && all[i].append(t, appenders[i], random, 4, 300)
					}
				}
			})
		}
		for i, k := range all[:3] {
			f := &survivor{told: &told}
			k.followers = append(k.followers, f)
			s := lookUp(t, pool, k.s.Name())
			following.Go(func() { f.follow(t, h, s, &k.until, (i+n)%2 == 0, i == n) })
		}
	}
	meanwhile(all)
	testkit.Eventually(t, "retention drops messages of all", func() bool {
		return told.Load() > 0 && !slices.ContainsFunc(all[:3], func(k *kept) bool { return inspect(t, k.s).Oldest == 1 })
	})
	over.Store(true)
	appending.Wait()
	for _, k := range all[:3] {
		slices.Sort(k.stored)
		k.until.Store(k.stored[len(k.stored)-1])
	}
	following.Wait()
	exec(t, nodes[0], `DELETE FROM tidewire.retention`) // the streams do not change from here on
	waitQuiet(t, pgtest.DB{Pool: nodes[0]})
	for _, k := range all[:3] {
		k.check(t)
	}
}

// TestRetentionWorker_UnderLoad: every reader sees all messages, or a report of those that are dropped, also of a stream that moves.
func TestRetentionWorker_UnderLoad(t *testing.T) {
	t.Parallel()
	notShort(t)
	forSeeds(t, func(t *testing.T, seed uint64) {
		db := setup(t)
		keepUnderLoad(t, pools(t, db.URL, 2), seed, func(all []*kept) {
			for _, k := range all {
				waitInfo(t, k.s, "messages are dropped", func(i stream.Info) bool { return i.Oldest > 1 })
			}
			moveStream(t, db.Pool, all[1].s)
			all[3].gone.Store(true)
			if err := stream.Drop(t.Context(), db.Pool, all[3].s.Name()); err != nil {
				t.Error(err)
			}
			at := inspect(t, all[1].s).Head
			waitInfo(t, all[1].s, "it goes on", func(i stream.Info) bool { return i.Oldest > at })
		})
	})
}

// gap is a TooOldError of a survivor: it was at position after, and the kept
// messages begin with oldest.
type gap struct{ after, oldest int64 }

// survivor follows a stream whose oldest messages are dropped meanwhile, and
// continues where the TooOldError says.
type survivor struct {
	start int64
	told  *atomic.Int64 // gaps of all survivors
	seen  []int64
	gaps  []gap
}

// follow reads past the position until, by subscriptions or, if direct, by Read. A slow one lets others append before it goes on.
func (f *survivor) follow(t *testing.T, h *stream.Hub, s *stream.Stream, until *atomic.Int64, direct, slow bool) {
	after := f.start
	for until.Load() == 0 || after < until.Load() {
		sub, err := h.Subscribe(t.Context(), s, stream.After(after))
		if err != nil {
			if pg.Retryable(err) {
				continue
			}
			t.Error(err)
			return
		}
		for err == nil && (until.Load() == 0 || after < until.Load()) {
			var page []stream.Message
			if page, err = f.page(t, sub, s, after, direct); len(page) > 0 {
				after = page[len(page)-1].Position
			}
			for _, m := range page {
				f.seen = append(f.seen, m.Position)
			}
			for n := 0; slow && n < 20 && until.Load() == 0; n++ {
				s.Head(t.Context())
			}
		}
		sub.Close()
		var tooOld *stream.TooOldError
		if errors.As(err, &tooOld) {
			f.gaps = append(f.gaps, gap{after, tooOld.Oldest})
			f.told.Add(1)
			after = tooOld.Oldest - 1
		} else if err != nil {
			t.Error(err)
			return
		}
	}
}

// page ignores errors of a killed PostgreSQL.
func (f *survivor) page(t *testing.T, sub *stream.Subscription, s *stream.Stream, after int64, direct bool) (page []stream.Message, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // the end may be known only later
	defer cancel()
	if direct {
		page, err = s.Read(ctx, after, 100)
	} else {
		page, err = sub.Next(ctx)
	}
	if err != nil && !errors.Is(err, stream.ErrTooOld) && t.Context().Err() == nil && (direct || ctx.Err() != nil) {
		if ctx.Err() == nil {
			pg.Backoff(ctx, 3)
		}
		return nil, nil
	}
	return page, err
}

// check wants every stored position to be either seen, once and in order, or
// reported as dropped, and the reports to be true: the oldest kept position follows
// the last dropped one.
func (f *survivor) check(t *testing.T, stored []int64) {
	t.Helper()
	var want []int64
	for _, p := range stored {
		gone := slices.ContainsFunc(f.gaps, func(g gap) bool { return g.after < p && p < g.oldest })
		if p > f.start && !gone {
			want = append(want, p)
		}
	}
	if !slices.Equal(f.seen, want) {
		t.Errorf("from %d on: saw %d messages, want %d; gaps %v", f.start, len(f.seen), len(want), f.gaps)
	}
	for _, g := range f.gaps {
		if _, found := slices.BinarySearch(stored, g.oldest-1); !found || g.oldest <= g.after+1 {
			t.Errorf("at %d told that %d is the oldest kept: nothing was stored before it", g.after, g.oldest)
		}
	}
}
