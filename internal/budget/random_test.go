package budget

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// consistent checks what must hold at any time.
func consistent(t *testing.T, b *Budget) {
	t.Helper()
	s := b.Stats()
	b.mu.Lock()
	members := make(map[*group]int)
	for _, h := range b.holders {
		members[h.group]++
	}
	for name, g := range b.groups {
		if g.name != name || g.members == 0 || g.members != members[g] || g.total.Load() < 0 {
			t.Errorf("group %s: %d members, %d holders, %d bytes", name, g.members, members[g], g.total.Load())
		}
	}
	b.mu.Unlock()
	if s.Held < 0 || s.Excess != 0 || b.evicting.Load() < 0 {
		t.Errorf("%+v, evicting %d", s, b.evicting.Load())
	}
	for k, n := range s.ByKind {
		if n < 0 {
			t.Errorf("%v: %d bytes", Kind(k), n)
		}
	}
}

// empty checks a budget without holders.
func empty(t *testing.T, b *Budget) {
	t.Helper()
	consistent(t, b)
	s := b.Stats()
	if s.Held != 0 || s.Holders != 0 || s.Waiting != 0 || s.ByKind != [Kinds]int64{} || b.evicting.Load() != 0 || b.pressed.Load() || len(b.groups) != 0 {
		t.Errorf("left: %+v, evicting %d, pressed %v", s, b.evicting.Load(), b.pressed.Load())
	}
}

// Many goroutines, real time: no wake-up is lost, and all bytes come back.
func TestBudget_concurrent(t *testing.T) {
	const limit = 64 << 10
	b := New(limit)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for range 25 {
				hold(t, ctx, b)
				consistent(t, b)
				if held := b.Stats().Held; held > limit {
					t.Errorf("%d bytes reserved of %d", held, limit)
				}
			}
		})
	}
	clients.Wait()
	empty(t, b)
	t.Logf("%d waits, %d evictions", b.Stats().Waits, b.Stats().Evictions)
}

// hold is a connection's life: two goroutines reserve and release.
func hold(t *testing.T, ctx context.Context, b *Budget) {
	h := b.Open(nil)
	defer h.Close()
	h.Join([]string{"", "ann", "bob"}[rand.IntN(3)])
	var both sync.WaitGroup
	for _, k := range []Kind{Page, CatchUp} {
		both.Go(func() {
			for range 20 {
				n := 1 + rand.Int64N(16<<10)
				switch err := h.Reserve(ctx, k, n); {
				case errors.Is(err, ErrEvicted):
					return
				case err != nil:
					t.Errorf("Reserve: %v: a wake-up was lost", err)
					return
				}
				if rand.IntN(4) == 0 {
					runtime.Gosched() // others wait meanwhile
				}
				h.Release(k, n)
			}
		})
	}
	both.Wait()
}

// FuzzBudget runs a program of takes, reserves, releases, closes and pauses in
// virtual time. For all programs, all sums stay right, a Reserve never exceeds the limit,
// and everything ends.
func FuzzBudget(f *testing.F) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		program := make([]byte, 600)
		for i := range program {
			program[i] = byte(r.Uint32())
		}
		f.Add(program)
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		synctest.Test(t, func(t *testing.T) { run(t, program) })
	})
}

func run(t *testing.T, program []byte) {
	const limit = 4 << 20
	b := New(limit)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var clients []*client
	taken := int64(0)
	for ; len(program) >= 3; program = program[3:] {
		op, who, n := program[0]%7, int(program[1]), int64(program[2])*8<<10
		if op == 5 || len(clients) == 0 {
			clients = append(clients, open(b, time.Duration(n)))
			continue
		}
		c := clients[who%len(clients)]
		k := Kind(who % Kinds)
		switch op {
		case 0:
			taken += n
			c.Take(k, n)
		case 1:
			if k == Output { // the program releases that one
				continue
			}
			wg.Go(func() {
				if c.Reserve(ctx, k, n) == nil {
					time.Sleep(time.Duration(n) * time.Microsecond) // synctest: only a bubble runs it
					c.Release(k, n)
				}
			})
		case 2:
			c.mu.Lock()
			held := c.held[k]
			c.mu.Unlock()
			if k == Output {
				c.Release(k, held)
			}
		case 3:
			c.Close()
		case 4:
			time.Sleep(time.Duration(n) * time.Microsecond) // synctest: only a bubble runs it
		case 6:
			c.Join([]string{"", "ann", "bob", "carol"}[n>>13%4])
		}
		synctest.Wait()
		consistent(t, b)
		if held := b.Stats().Held; held > limit+taken {
			t.Fatalf("%d bytes held, %d of them taken; the limit is %d", held, taken, limit)
		}
	}
	// Without further pressure everybody is answered: served or evicted.
	time.Sleep(time.Minute) // synctest: only a bubble runs it
	if s := b.Stats(); s.Waiting != 0 {
		t.Errorf("still waiting after a minute: %+v", s)
	}
	cancel()
	wg.Wait()
	for _, c := range clients {
		c.Close()
	}
	time.Sleep(time.Minute) // synctest: only a bubble runs it
	empty(t, b)
}
