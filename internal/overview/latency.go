package overview

import (
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	// Buckets are as wide as an eighth of the power of two in which they are: a value is wrong by 6 % at most.
	stepBits = 3
	steps    = 1 << stepBits
	// maxBits bounds what is measured: 2^27 µs are two minutes.
	maxBits = 27
	buckets = (maxBits - stepBits + 1) * steps
	// perSecond is about how many requests are measured in a second.
	perSecond = 1000
)

// Latency measures how long requests take. Safe for concurrent use.
type Latency struct {
	begun   atomic.Uint64
	stride  atomic.Uint64 // each so many requests one is measured; 0 is each
	buckets [buckets]atomic.Uint64

	last uint64 // begun at the last read
}

// Begin is called when a request has come. Its result goes to End, and is zero if the request is not measured.
func (l *Latency) Begin() time.Time {
	n := l.begun.Add(1)
	if stride := l.stride.Load(); stride > 1 && n%stride != 0 {
		return time.Time{}
	}
	return time.Now()
}

// End is called when the request has succeeded.
func (l *Latency) End(began time.Time) {
	if began.IsZero() {
		return
	}
	l.buckets[bucket(time.Since(began).Microseconds())].Add(1)
}

// bucket returns the bucket of a number of microseconds.
func bucket(us int64) int {
	n := uint64(min(max(us, 0), 1<<maxBits-1))
	if n < steps {
		return int(n)
	}
	power := bits.Len64(n) - 1 - stepBits
	return (power+1)*steps + int(n>>power) - steps
}

// middle returns the microseconds in the middle of a bucket, at least 1.
func middle(i int) int64 {
	if i < steps {
		return max(int64(i), 1)
	}
	power := i/steps - 1
	return int64(steps+i%steps)<<power + int64(1)<<power/2
}

// read returns two quantiles in microseconds since the last read, 0 if nothing was measured. Only one goroutine may call it.
func (l *Latency) read(seconds float64, low, high float64) (atLow, atHigh int64) {
	begun := l.begun.Load()
	l.stride.Store(uint64(float64(begun-l.last)/seconds) / perSecond)
	l.last = begun
	var counts [buckets]uint64
	total := uint64(0)
	for i := range l.buckets {
		counts[i] = l.buckets[i].Swap(0)
		total += counts[i]
	}
	if total == 0 {
		return 0, 0
	}
	return quantile(&counts, total, low), quantile(&counts, total, high)
}

func quantile(counts *[buckets]uint64, total uint64, q float64) int64 {
	rank := min(uint64(q*float64(total)), total-1)
	for i, n := range counts {
		if rank < n {
			return middle(i)
		}
		rank -= n
	}
	return middle(buckets - 1)
}
