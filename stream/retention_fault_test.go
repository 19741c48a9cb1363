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

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

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

// follow reads past the position until, by subscriptions or, if
// direct, by Read; with pauses if slow.
func (f *survivor) follow(t *testing.T, h *stream.Hub, s *stream.Stream, until *atomic.Int64, direct, slow bool) {
	after := f.start
	for until.Load() == 0 || after < until.Load() {
		sub, err := h.Subscribe(t.Context(), s, stream.After(after))
		if err != nil {
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
			if slow {
				time.Sleep(30 * time.Millisecond)
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
		t.Errorf("from %d on: saw %d messages, want %d; told of %v", f.start, len(f.seen), len(want), f.gaps)
	}
	for _, g := range f.gaps {
		if _, found := slices.BinarySearch(stored, g.oldest-1); !found || g.oldest <= g.after+1 {
			t.Errorf("at %d told that %d is the oldest kept: nothing was stored before it", g.after, g.oldest)
		}
	}
}

// keepUnderLoad lets nodes append by all methods, with two RetentionWorkers that keep half
// a megabyte, and survivors on both nodes that begin at any time. It runs until meanwhile
// has returned and some survivor got a TooOldError.
func keepUnderLoad(t *testing.T, nodes []*pgxpool.Pool, s *stream.Stream, seed uint64, meanwhile func()) {
	alter(t, nodes[0], s, stream.Retention{MaxBytes: 512 << 10})
	var over atomic.Bool
	var until, highest, told atomic.Int64
	var mu sync.Mutex // guards stored
	var stored []int64
	var appending, following sync.WaitGroup
	var all []*survivor
	for n, pool := range nodes {
		keep(t, pool)
		h, _ := runHub(t, pool, stream.HubConfig{Poll: 20 * time.Millisecond, TailBytes: 64 << 10, PageMessages: 50})
		for c := range 3 {
			a := run(t, pool, s, stream.AppenderConfig{
				Hub: h, Writer: stream.WriterConfig{Method: stream.Method(c)},
			})
			appending.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(n*10+c)))
				for !over.Load() {
					msgs := make([]stream.Message, 1+random.IntN(40))
					for i := range msgs {
						msgs[i].Payload = make([]byte, random.IntN(1000))
					}
					first, err := firstOf(a.Append(t.Context(), msgs...))
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					for i := range msgs {
						stored = append(stored, first+int64(i))
					}
					mu.Unlock()
					highest.Store(first)
				}
			})
		}
		for i := range 6 {
			f := &survivor{told: &told}
			all = append(all, f)
			following.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(1000+n*100+i)))
				time.Sleep(time.Duration(random.IntN(500)) * time.Millisecond)
				if i%3 > 0 {
					f.start = random.Int64N(highest.Load() + 1)
				}
				f.follow(t, h, s, &until, i%2 == 0, i > 3)
			})
		}
	}
	meanwhile()
	for deadline := time.Now().Add(time.Minute); told.Load() == 0 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	over.Store(true)
	appending.Wait()
	slices.Sort(stored)
	until.Store(stored[len(stored)-1])
	following.Wait()
	for _, f := range all {
		f.check(t, stored)
	}
	if info := inspect(t, s); told.Load() == 0 || info.Oldest == 1 {
		t.Errorf("%+v, %d were told: nothing was tested", info, told.Load())
	}
}

func TestRetentionWorker_EveryReaderSeesAllOrIsTold(t *testing.T) {
	t.Parallel()
	for seed := range pgtest.Seeds() {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			db, s := ensure(t)
			keepUnderLoad(t, pools(t, db.URL, 2), s, seed, func() { time.Sleep(3 * time.Second) })
		})
	}
}

func TestRetentionWorker_PostgreSQLKilledUnderLoad(t *testing.T) {
	t.Parallel()
	for seed := range pgtest.Seeds() {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			server := pgtest.Start(t)
			nodes := pools(t, server.URL(), 2)
			s := ensureOn(t, nodes[0], "killed")
			random := rand.New(rand.NewPCG(seed, 6))
			keepUnderLoad(t, nodes, s, seed, func() {
				for range 3 {
					time.Sleep(time.Duration(300+random.IntN(500)) * time.Millisecond)
					pgtest.Crash(t, server)
				}
				time.Sleep(300 * time.Millisecond)
			})
		})
	}
}
