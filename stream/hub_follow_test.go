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

// follower notes the positions that a subscription delivers.
type follower struct {
	start int64
	seen  []int64
}

// follow reads until the position until has been seen, with pauses if slow.
func (f *follower) follow(t *testing.T, h *stream.Hub, s *stream.Stream, until *atomic.Int64, slow bool) {
	sub, err := h.Subscribe(t.Context(), s, stream.After(f.start))
	if err != nil {
		t.Error(err)
		return
	}
	defer sub.Close()
	for last := until.Load(); last == 0 || sub.Position() < last; last = until.Load() {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // the end may be known only later
		page, err := sub.Next(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && t.Context().Err() == nil {
			continue
		}
		if err != nil {
			t.Error(err)
			return
		}
		for _, m := range page {
			if string(m.Payload[:1]) != "p" {
				t.Errorf("payload %q", m.Payload)
			}
			f.seen = append(f.seen, m.Position)
		}
		if slow {
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// check wants every position after the start once, and in order.
func (f *follower) check(t *testing.T, all []stream.Message) {
	t.Helper()
	var want []int64
	for _, m := range all {
		if m.Position > f.start {
			want = append(want, m.Position)
		}
	}
	if !slices.Equal(f.seen, want) {
		t.Errorf("from %d on: saw %d messages, want %d", f.start, len(f.seen), len(want))
	}
}

// followUnderLoad lets nodes append calls messages each, and followers of every
// node begin anywhere at any time; meanwhile runs concurrently. All followers must
// see all messages.
func followUnderLoad(t *testing.T, nodes []*pgxpool.Pool, s *stream.Stream, cfg stream.HubConfig, calls int, seed uint64, meanwhile func()) {
	var last, highest atomic.Int64
	var appending, following, other sync.WaitGroup
	var all []*follower
	other.Go(meanwhile)
	for n, pool := range nodes {
		h, _ := runHub(t, pool, cfg)
		a := notified(t, pool, s, h)
		for c := range 3 {
			appending.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(n*10+c)))
				for range calls {
					msgs := make([]stream.Message, 1+random.IntN(4))
					for i := range msgs {
						msgs[i].Payload = append([]byte("p"), make([]byte, random.IntN(200))...)
					}
					first, err := firstOf(a.Append(t.Context(), msgs...))
					if err != nil {
						t.Error(err)
						return
					}
					highest.Store(first)
				}
			})
		}
		for i := range 12 {
			f := &follower{}
			all = append(all, f)
			following.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(1000+n*100+i)))
				time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
				if i%3 > 0 {
					f.start = random.Int64N(highest.Load() + 1)
				}
				f.follow(t, h, s, &last, i%4 == 0)
			})
		}
	}
	appending.Wait()
	other.Wait()
	stored := everything(t, s)
	last.Store(stored[len(stored)-1].Position)
	following.Wait()
	for _, f := range all {
		f.check(t, stored)
	}
}

func TestHub_EverySubscriptionSeesAllOnceInOrder(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]stream.HubConfig{
		"default":     {Announce: true},
		"small tail":  {Announce: true, TailBytes: 8 << 10, PageMessages: 20, PageBytes: 2 << 10},
		"only polled": {NoListen: true, Poll: 20 * time.Millisecond, PageMessages: 7},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, s := ensure(t)
			followUnderLoad(t, pools(t, db.URL, 2), s, cfg, 150, 1, func() {})
		})
	}
}

// TestHub_PostgreSQLKilledUnderLoad: no follower gets an error, and none misses a
// message.
func TestHub_PostgreSQLKilledUnderLoad(t *testing.T) {
	t.Parallel()
	for seed := range pgtest.Seeds() {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			server := pgtest.Start(t)
			nodes := pools(t, server.URL(), 2)
			s := ensureOn(t, nodes[0], "killed")
			random := rand.New(rand.NewPCG(seed, 5))
			cfg := stream.HubConfig{Announce: true, TailBytes: 16 << 10, PageBytes: 4 << 10}
			followUnderLoad(t, nodes, s, cfg, 400, seed, func() {
				for range 2 {
					time.Sleep(time.Duration(100+random.IntN(300)) * time.Millisecond)
					pgtest.Crash(t, server)
				}
			})
		})
	}
}
