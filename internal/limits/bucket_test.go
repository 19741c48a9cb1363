package limits

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// meters returns meters of n connections of one user.
func meters(r *Registry, n int) (all []*Meter) {
	for range n {
		c := r.New()
		c.Handshake(Client{User: "ann"}, false)
		all = append(all, c.Meter())
	}
	return all
}

// TestBucket_ClockOfAnotherRead: a connection that handles the messages of one read for long passes the time of that read. The seconds since then do
// not fill the bucket of its user again.
func TestBucket_ClockOfAnotherRead(t *testing.T) {
	t.Parallel()
	r := New(Config{RequestRate: 10}) // 40 a second for a user, 80 at once
	start := time.Unix(1000, 0)
	r.now = func() time.Time { return start }
	all := meters(r, 20)
	got, now := 0, start
	const seconds = 10
	for i := range seconds * 100 {
		now = now.Add(10 * time.Millisecond)
		if i%100 == 0 {
			if _, ok := all[0].Take(start, 0); ok {
				got++
			}
		}
		for _, m := range all[1:] {
			if _, ok := m.Take(now, 0); ok {
				got++
			}
		}
	}
	if most := 80 + 40*seconds; got > most || got < most-40 {
		t.Errorf("a user has sent %d requests in %d s, want %d", got, seconds, most)
	}
}

// TestBucket_RefusalsAtOnce: however many requests of a user are refused at the same time, the user gets its whole rate, and is never told to wait
// longer than one request takes.
func TestBucket_RefusalsAtOnce(t *testing.T) {
	t.Parallel()
	r := New(Config{RequestRate: 100}) // 400 a second for a user, 800 at once
	now := time.Unix(1000, 0)
	r.now = func() time.Time { return now }
	for second, want := range []int64{800, 400, 400} {
		var got, longest atomic.Int64
		var all sync.WaitGroup
		at := now.Add(time.Duration(second) * time.Second)
		for range 8 {
			all.Go(func() {
				for range 1000 {
					q, _ := r.Begin(Client{User: "ann"})
					wait, ok := q.Take(at, 0)
					if q.End(); ok {
						got.Add(1)
					}
					for long := longest.Load(); int64(wait) > long && !longest.CompareAndSwap(long, int64(wait)); {
						long = longest.Load()
					}
				}
			})
		}
		all.Wait()
		if got.Load() != want || time.Duration(longest.Load()) > time.Second/400+time.Microsecond {
			t.Errorf("after %d s %d requests are allowed, the longest wait is %v; want %d, 2.5ms", second, got.Load(), time.Duration(longest.Load()), want)
		}
	}
}

// TestBucket_Random: with random rates, sizes and clocks, no more is allowed than the rates allow, a message that has waited as long as it was told is
// allowed, and one that is refused takes nothing.
func TestBucket_Random(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		largest := 1 + r.IntN(1<<20)
		b := newBucket(r.ExpFloat64()*100, int64(1+r.IntN(1<<20)), largest)
		start := time.Unix(1000, 0)
		b.take(start, 0, 0)
		now, requests, bytes := start, 0.0, 0.0
		for step := range 1000 {
			n := r.IntN(largest + 1)
			before := [2]float64{b.requests.left, b.bytes.left}
			wait, ok := b.take(now.Add(-time.Duration(r.IntN(2))*time.Second), 1, n)
			switch after := [2]float64{b.requests.left, b.bytes.left}; {
			case !ok && (wait <= 0 || after[0] < before[0] || after[1] < before[1]):
				t.Fatalf("seed %d, step %d: a refusal, with the wait %v, has taken tokens: %v before, %v after", seed, step, wait, before, after)
			case !ok:
				now = maxTime(now, b.last).Add(wait)
				if _, ok = b.take(now, 1, n); !ok {
					t.Fatalf("seed %d, step %d: refused after waiting %v", seed, step, wait)
				}
			}
			requests, bytes = requests+1, bytes+float64(n)
			now = now.Add(time.Duration(r.ExpFloat64() * 1e7))
			passed := now.Sub(start).Seconds()
			if mostRequests, mostBytes := b.requests.size+b.requests.rate*passed, b.bytes.size+b.bytes.rate*passed; requests > mostRequests+1e-3 || bytes > mostBytes+1e-3 {
				t.Fatalf("seed %d, step %d: %v requests and %v bytes in %v s, want at most %v and %v", seed, step, requests, bytes, passed, mostRequests, mostBytes)
			}
		}
	}
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// TestBucket_Extremes: a rate of almost nothing, and one without an end, overflow nothing. What is larger than the bucket takes all of it.
func TestBucket_Extremes(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	slow := newBucket(1e-300, 1, 10)
	if _, ok := slow.take(now, 1, 1<<40); !ok || slow.bytes.left != 0 {
		t.Errorf("the first is allowed: %v; %v bytes are left, want 0", ok, slow.bytes.left)
	}
	if wait, ok := slow.take(now, 1, 0); ok || wait <= 0 || slow.full(now) <= 0 {
		t.Errorf("allowed %v, the wait is %v; it is full in %v", ok, wait, slow.full(now))
	}
	fast := newBucket(1e300, 1<<62, 10)
	if wait, ok := fast.take(now, 1, 1<<40); !ok || fast.full(now) <= 0 {
		t.Errorf("the wait is %v; it is full in %v", wait, fast.full(now))
	}
}
