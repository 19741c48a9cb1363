package limits

import (
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
			if _, ok := all[0].Request(start); ok {
				got++
			}
		}
		for _, m := range all[1:] {
			if _, ok := m.Request(now); ok {
				got++
			}
		}
	}
	if most := 80 + 40*seconds; got > most || got < most-40 {
		t.Errorf("a user has sent %d requests in %d s, want %d", got, seconds, most)
	}
}

// TestBucket_RefusalsTakeNothing: however often a user is refused, it gets its rate, and is told no longer wait than for one request. After the wait the
// request is allowed.
func TestBucket_RefusalsTakeNothing(t *testing.T) {
	t.Parallel()
	b := newBucket(100, 0, 0)
	now := time.Unix(1000, 0)
	for range 200 {
		b.take(now, 1, 0)
	}
	for range 1000 {
		var wait time.Duration
		for range 50 {
			var ok bool
			if wait, ok = b.take(now, 1, 0); ok || wait > 10*time.Millisecond+2 {
				t.Fatalf("allowed is %v, wait %v, want a wait of 10ms at most", ok, wait)
			}
		}
		now = now.Add(wait)
		if wait, ok := b.take(now, 1, 0); !ok {
			t.Fatalf("after its wait a request has to wait %v more", wait)
		}
	}
}

// TestBucket_BothOrNone: a message that lacks the tokens of one rate takes none of the other, and what is larger than the bucket takes all of it.
func TestBucket_BothOrNone(t *testing.T) {
	t.Parallel()
	b := newBucket(10, 100, 1000)
	now := time.Unix(1000, 0)
	if _, ok := b.take(now, 1, 5000); !ok {
		t.Fatal("a message that is larger than the bucket is refused by a full one")
	}
	for range 100 {
		if _, ok := b.take(now, 1, 1); ok {
			t.Fatal("allowed without a byte left")
		}
	}
	for range 19 {
		if _, ok := b.take(now, 1, 0); !ok {
			t.Fatal("the refusals have taken requests")
		}
	}
	if _, ok := b.take(now, 1, 0); ok {
		t.Error("more requests than the bucket holds")
	}
}

// TestMeter_ObedientClient: a client that waits as long as it is told is not ended, though it acks and answers Pings meanwhile.
func TestMeter_ObedientClient(t *testing.T) {
	t.Parallel()
	r := New(Config{RequestRate: 2, ByteRate: 8 << 20, MaxMessage: 1 << 20})
	now := time.Unix(1000, 0)
	r.now = func() time.Time { return now }
	m := meters(r, 1)[0]
	next := now // when the client may publish again
	for range 3000 {
		now = now.Add(10 * time.Millisecond)
		m.Bytes(now, 50) // an ack
		if now.Sub(next) < 0 {
			continue
		}
		m.Bytes(now, 50)
		wait, ok := m.Request(now)
		if ok {
			continue
		}
		if m.Refused(now, wait) {
			t.Fatalf("ended after %v", now.Sub(time.Unix(1000, 0)))
		}
		next = now.Add(wait)
	}
}
