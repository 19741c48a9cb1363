package limits

import (
	"testing"
	"time"
)

// TestMeter_EndsWhoDoesNotPause: three seconds of messages over the rate are too long. A pause as long as it was told begins anew.
func TestMeter_EndsWhoDoesNotPause(t *testing.T) {
	t.Parallel()
	send := func(every time.Duration, obeys bool) (ended bool) {
		r := New(Config{RequestRate: 10})
		c := r.New()
		c.Handshake(Client{User: "ann"}, false)
		m, now := c.Meter(), time.Unix(1000, 0)
		for end := now.Add(30 * time.Second); now.Before(end) && !ended; {
			pause := every
			if wait, ok := m.Take(now, 1); !ok {
				ended = m.Refused(now, 1, wait)
				if obeys {
					pause = wait
				}
			}
			now = now.Add(pause)
		}
		return ended
	}
	for _, c := range []struct {
		every       time.Duration
		obeys, want bool
	}{{time.Millisecond, false, true}, {30 * time.Millisecond, false, true}, {time.Millisecond, true, false}, {101 * time.Millisecond, false, false}} {
		if got := send(c.every, c.obeys); got != c.want {
			t.Errorf("a message each %v, obeys %v: ended is %v", c.every, c.obeys, got)
		}
	}
}

// TestMeter_WaitsWhileItSettles: a client that publishes only when it was told, and meanwhile acks and answers Pings, is not ended, whatever the rate.
// If it publishes sooner it is, also when it acks.
func TestMeter_WaitsWhileItSettles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate  float64
		obeys bool
	}{{0.1, true}, {2, true}, {50, true}, {0.1, false}, {2, false}, {50, false}} {
		r := New(Config{RequestRate: c.rate, ByteRate: 8 << 20, MaxMessage: 1 << 20})
		conn := r.New()
		conn.Handshake(Client{User: "ann"}, false)
		m, start, ended := conn.Meter(), time.Unix(1000, 0), false
		now, next := start, start // when the client publishes next
		for i := 0; i < 10_000 && !ended; i++ {
			if !now.Before(next) {
				if wait, ok := m.Take(now, 100); !ok {
					ended = m.Refused(now, 1, wait)
					if next = now.Add(wait); !c.obeys {
						next = now.Add(wait / 8)
					}
				}
			}
			m.Owe(now, 0, 50) // an ack
			if i%500 == 0 {   // each five seconds
				ended = ended || m.Control(now, 0)
			}
			now = now.Add(10 * time.Millisecond)
		}
		if ended == c.obeys {
			t.Errorf("rate %v, obeys %v: ended is %v, after %v", c.rate, c.obeys, ended, now.Sub(start))
		}
	}
}

// TestMeter_EndsFloodsOfControls: Pings and Pongs over the rate end the connection after three seconds, and those of a client that sends one now and
// then do not, also if none of them is within the rate.
func TestMeter_EndsFloodsOfControls(t *testing.T) {
	t.Parallel()
	for every, want := range map[time.Duration]bool{time.Millisecond: true, 900 * time.Millisecond: true, controlPause: false, 20 * time.Second: false} {
		r := New(Config{RequestRate: 0.0001})
		m, now, ended := r.New().Meter(), time.Unix(1000, 0), false
		m.Take(now, 0) // no other one for hours
		for end := now.Add(time.Minute); now.Before(end); now = now.Add(every) {
			ended = ended || m.Control(now, 10)
		}
		if ended != want || m.Waits() {
			t.Errorf("one each %v: ended is %v; the client was told to wait: %v", every, ended, m.Waits())
		}
	}
	var m *Meter
	if m.Control(time.Time{}, 1) || m.Waits() {
		t.Error("no meter has a limit")
	}
}

// TestMeter_RefusalsTakeNothing: a message that one of the four buckets refuses takes nothing from the others.
func TestMeter_RefusalsTakeNothing(t *testing.T) {
	t.Parallel()
	r := New(Config{RequestRate: 10, ByteRate: 1000, MaxMessage: 1000})
	all := meters(r, 2*UserShare)
	m, now := all[0], time.Unix(1000, 0)
	left := func() [4]float64 {
		m.wait(now, 0, 0) // fills them
		return [4]float64{m.own.requests.left, m.own.bytes.left, m.user.requests.left, m.user.bytes.left}
	}
	refused := func(what string, n int) {
		before := left()
		if wait, ok := m.Take(now, n); ok || wait <= 0 {
			t.Errorf("%s: allowed is %v, the wait is %v", what, ok, wait)
		}
		if after := left(); after != before {
			t.Errorf("%s: %v are left, want %v", what, after, before)
		}
	}
	m.Take(now, 1000)
	m.Take(now, 1000)
	refused("bytes of the connection", 1)
	if wait, ok := m.Fits(now, 1); ok || wait <= 0 {
		t.Errorf("it fits: %v, the wait is %v", ok, wait)
	}
	for range 18 {
		m.Take(now, 0)
	}
	refused("requests of the connection", 0)
	now = now.Add(time.Second)
	for _, other := range all[1:] {
		other.Take(now, 1000)
		other.Take(now, 1000)
	}
	refused("bytes of the user", 1000)
	for _, other := range all[1:] {
		for range 20 {
			other.Take(now, 0)
		}
	}
	refused("requests of the user", 0)
}

// TestMeter_Rests: after two seconds' worth of refusals nothing is read for a while, also because of another connection of the user. In that time the client is
// not said to have paused.
func TestMeter_Rests(t *testing.T) {
	t.Parallel()
	r := New(Config{RequestRate: 10})
	meter := func() *Meter {
		c := r.New()
		c.Handshake(Client{User: "ann"}, false)
		return c.Meter()
	}
	start := time.Unix(1000, 0)
	refuse := func(m *Meter, now time.Time, times int) (ended bool) {
		for range times {
			if wait, ok := m.Take(now, 1); !ok {
				ended = m.Refused(now, 1, wait) || ended
			}
		}
		return ended
	}
	one, ended := meter(), false
	refuse(one, start, 2000)
	if rests := one.Rests(); rests.After(start) {
		t.Errorf("it rests for %v after 2000 refusals", rests.Sub(start))
	}
	now := start
	for range 100 {
		ended = refuse(one, now, 1000) || ended
		d := one.Rests().Sub(now)
		one.Rested(d)
		now = now.Add(d)
	}
	if !ended {
		t.Error("a client that never pauses is not ended")
	}
	if d := now.Sub(start); d < 98*time.Second || d > 101*time.Second {
		t.Errorf("100000 refusals more took %v, want about 100 s", d)
	}
	one = meter()
	for range 20 { // two seconds' worth of the user's refusals: no connection has had so many
		m := meter()
		refuse(m, now, 500)
		now = now.Add(time.Microsecond)
	}
	if refuse(one, now, 1); !one.Rests().After(now) {
		t.Error("another connection of the user does not rest")
	}
}

// TestMeter_OneBurst: a client that has sent much at once, and then nothing, is not ended while the server reads it slowly.
func TestMeter_OneBurst(t *testing.T) {
	t.Parallel()
	r := New(Config{RequestRate: 50})
	c := r.New()
	c.Handshake(Client{User: "ann"}, false)
	m, now := c.Meter(), time.Unix(1000, 0)
	for range 7000 {
		if wait, ok := m.Take(now, 1); !ok && m.Refused(now, 1, wait) {
			t.Fatal("it is ended")
		}
		if d := m.Rests().Sub(now); d > 0 {
			m.Rested(d)
			now = now.Add(d)
		}
	}
}

// TestMeter_RefusedBytesHaveARate: whatever a client sends, it is not read faster than its rates of bytes: what is refused, and what settles. A refusal
// after it does not end the rest.
func TestMeter_RefusedBytesHaveARate(t *testing.T) {
	t.Parallel()
	const rate, size, most = 8 << 20, 1 << 20, 60 << 10
	for what, send := range map[string]func(m *Meter, now time.Time) (bytes int){
		"refused": func(m *Meter, now time.Time) int {
			if wait, ok := m.Fits(now, size); !ok {
				m.Refused(now, size, wait)
			} else {
				m.Take(now, size)
			}
			return size
		},
		"settles": func(m *Meter, now time.Time) int {
			m.Settle(now, most)
			m.Refused(now, 10, time.Second)
			return most + 10
		},
	} {
		r := New(Config{RequestRate: 1000, ByteRate: rate, MaxMessage: size})
		conns := make([]*Meter, 10)
		for i := range conns {
			c := r.New()
			c.Handshake(Client{User: "ann"}, false)
			conns[i] = c.Meter()
		}
		start, sent := time.Unix(1000, 0), 0
		const long = 20 * time.Second
		for now := start; now.Sub(start) < long; now = now.Add(100 * time.Microsecond) {
			for _, m := range conns {
				if !now.Before(m.Rests()) {
					sent += send(m, now)
				}
			}
		}
		// Twice the rate of a user, and what its buckets and the last reads hold.
		if bound := 2*UserShare*rate*int(long/time.Second) + 4*UserShare*rate + 20*size; sent > bound {
			t.Errorf("%s: %d MiB in %v, want at most %d", what, sent>>20, long, bound>>20)
		}
	}
}
