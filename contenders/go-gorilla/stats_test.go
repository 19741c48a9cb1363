package main

import (
	"strings"
	"testing"
	"time"
)

func TestBucket(t *testing.T) {
	t.Parallel()
	now := time.Now()
	b := newBucket(10, 3, now)
	for i, step := range []struct {
		after time.Duration
		want  bool
	}{
		{0, true}, {0, true}, {0, true}, {0, false}, // the burst
		{99 * time.Millisecond, false}, {2 * time.Millisecond, true}, {0, false}, // a token each 100 ms
		{time.Hour, true}, {0, true}, {0, true}, {0, false}, // never more than the burst
	} {
		now = now.Add(step.after)
		if got := b.take(now); got != step.want {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	var s stats
	s.opened()
	s.opened()
	s.closed()
	s.opened()
	s.messages.Add(3)
	s.dropped.Add(1)
	s.ignored.Add(7)
	s.deliveries.Add(6)
	s.missed.Add(2)
	var out strings.Builder
	if err := s.write(&out, 1500*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	want := `--- Statistics ---
Total messages: 3
Total connections: 3
Peak connections: 2
Messages dropped: 1
Message drop rate: 25.00%
Throughput: 2.00 messages/sec
Processing time: 1.5s
Average latency: 500ms
Deliveries: 6
Messages missed: 2
Messages ignored: 7
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	new(stats).write(&out, time.Second)
	if !strings.Contains(out.String(), "Message drop rate: 0.00%\nThroughput: 0.00 messages/sec\n") {
		t.Errorf("of nothing:\n%s", out.String())
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	c, err := parseFlags([]string{"--ping-interval", "0.2", "9000", "1.5"})
	if err != nil || c.port != 9000 || c.duration != 1500*time.Millisecond || c.pingInterval != 200*time.Millisecond || c.rateLimit != 10 {
		t.Errorf("%+v, %v", c, err)
	}
	for _, args := range [][]string{{"x"}, {"1", "x"}, {"1", "2", "3"}, {"--rate-limit", "0"}, {"--rate-burst", "0.5"}, {"--duration", "-1"}} {
		if c, err := parseFlags(args); err == nil {
			t.Errorf("%v is taken as %+v", args, c)
		}
	}
}
