package main

import (
	"bytes"
	"testing"
	"time"
)

func TestLimiter(t *testing.T) {
	t.Parallel()
	l := limiter{perSecond: 2, burst: 2}
	start := time.Now()
	for _, c := range []struct {
		at   float64 // seconds
		want bool
	}{{0, true}, {0, true}, {0, false}, {0.4, false}, {0.6, true}, {0.7, false}, {1.1, true}, {100, true}, {100, true}, {100, false}} {
		if got := l.allow(start.Add(duration(c.at))); got != c.want {
			t.Errorf("after %gs: %v, want %v", c.at, got, c.want)
		}
	}
}

func TestFigures(t *testing.T) {
	t.Parallel()
	f := figures{}
	for range 3 {
		f.connect()
		f.connect()
		f.disconnect()
		f.disconnect()
	}
	f.messages.Store(1000)
	f.dropped.Store(3000)
	f.deliveries.Store(99_000)
	var b bytes.Buffer
	if err := f.print(&b, 2*time.Second); err != nil {
		t.Fatal(err)
	}
	const want = "--- Statistics ---\nTotal messages: 1000\nTotal connections: 6\nPeak connections: 2\nMessages dropped: 3000\n" +
		"Message drop rate: 75.00%\nThroughput: 500.00 messages/sec\nProcessing time: 2s\nAverage latency: 2ms\n" +
		"Deliveries: 99000\nMessages missed: 0\nMessages ignored: 0\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	s, err := readSettings([]string{"--rate-burst", "20", "0", "2.5"})
	if err != nil || s.Port != "0" || s.Duration != 2.5 || s.RateBurst != 20 || s.PongTimeout != 60 {
		t.Errorf("%+v, %v", s, err)
	}
	for _, args := range [][]string{{"port"}, {"70000"}, {"1", "later"}, {"1", "2", "3"}, {"--rate-burst", "0"}, {"--pong-timeout", "NaN"}} {
		if s, err := readSettings(args); err == nil {
			t.Errorf("%v is taken as %+v", args, s)
		}
	}
}
