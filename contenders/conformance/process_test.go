package conformance

import (
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

var processCases = []processCase{
	{"rate limit drops", testRateDrops},
	{"heartbeat", testHeartbeat},
	{"who is gone is no member", testGone},
	{"stop with a client that never reads", testDeaf},
}

// testRateDrops: chats over the limit are dropped, only those of that
// connection, and the connection stays open.
func testRateDrops(t *testing.T, c contender) {
	s := c.start(t, "--rate-limit", "0.001", "--rate-burst", "5")
	a, b, listener := member(t, s, "r"), member(t, s, "r"), member(t, s, "r")
	for i := range 8 {
		a.queue(websocket.OpText, fmt.Appendf(nil, `{"type":"chat","room":"r","text":"a%d"}`, i))
	}
	a.flush()
	for i := range 5 {
		listener.hearsText(fmt.Sprint("a", i))
		b.hearsText(fmt.Sprint("a", i))
	}
	for range 20 {
		a.sync() // no chat: not limited
	}
	b.say("r", "b")
	listener.hearsText("b") // and none of a's last
	a.hearsText("b")
	s.stop(t, syscall.SIGTERM)
	s.wantStatistics(t, map[string]float64{"Total messages": 6, "Messages dropped": 3, "Message drop rate": 100 * 3 / 9.0, "Deliveries": 12})
}

// testHeartbeat has one client that answers, and one that does not. A machine that
// is too busy to answer in time gets a second try, with longer times.
func testHeartbeat(t *testing.T, c contender) {
	var err error
	for _, timeout := range []time.Duration{1500 * time.Millisecond, 6 * time.Second} {
		if err = heartbeat(t, c, timeout/8, timeout); err == nil {
			return
		}
	}
	t.Error(err)
}

func heartbeat(t *testing.T, c contender, interval, timeout time.Duration) error {
	t.Helper()
	s := c.start(t, "--ping-interval", fmt.Sprint(interval.Seconds()), "--pong-timeout", fmt.Sprint(timeout.Seconds()))
	began := time.Now()
	silent := dialRaw(t, s) // a client of a library would answer WebSocket's own pings
	cutOff := make(chan time.Duration, 1)
	go func() {
		io.Copy(io.Discard, silent.conn)
		cutOff <- time.Since(began)
	}()
	talker := dial(t, s)
	pings, deadline := 0, time.After(2*timeout)
	for answering := true; answering; {
		select {
		case payload, open := <-talker.inbox:
			if !open {
				return fmt.Errorf("a client that answered the pings was cut off after %v: %w", talker.ended.Sub(talker.began), talker.err)
			}
			m := parse(t, payload)
			var ts int64
			if _, err := fmt.Sscan(string(m.TS), &ts); m.Type != "ping" || err != nil || time.Since(time.UnixMilli(ts)).Abs() > time.Minute {
				return fmt.Errorf("got %q, want a ping with now in milliseconds", payload)
			}
			if err := talker.conn.Queue(websocket.OpText, fmt.Appendf(nil, `{"type":"pong","ts":%d}`, ts)); err == nil {
				talker.conn.Flush() // what is wrong with it, the reader will be told
			}
			pings++
		case <-deadline:
			answering = false
		}
	}
	if most := int(time.Since(talker.began)/interval) + 1; pings < 3 || pings > most {
		return fmt.Errorf("%d pings in %v, want one each %v", pings, time.Since(talker.began), interval)
	}
	select {
	case after := <-cutOff:
		if after < timeout {
			return fmt.Errorf("a silent client was cut off after %v, want %v", after, timeout)
		}
	case <-time.After(patience):
		return fmt.Errorf("a silent client is not cut off within %v", time.Since(began))
	}
	return nil
}

// testGone: a client that disconnected is still counted, and receives nothing
// more. The server may need time to notice that, so the test tries again with
// more clients.
func testGone(t *testing.T, c contender) {
	const n = 5
	leave := map[string]func(*client){
		"abort": func(c *client) { c.conn.Abort() },
		"close": func(c *client) { c.conn.StartClose(websocket.StatusNormal, ""); c.end() },
	}
	var last string
	for _, pause := range []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second} {
		s := c.start(t)
		a, b := member(t, s, "r"), member(t, s, "r")
		for _, how := range []string{"abort", "close"} {
			for range n {
				leave[how](member(t, s, "r"))
			}
			time.Sleep(pause) // pace: longer and longer, for servers that release after some time
		}
		a.say("r", "who is there?")
		b.hearsText("who is there?")
		s.stop(t, syscall.SIGTERM)
		stats := s.statistics(t)
		if stats["Total connections"] != 2+2*n {
			t.Fatalf("%g connections in all, want %d", stats["Total connections"], 2+2*n)
		}
		if stats["Peak connections"] <= 2+n && stats["Deliveries"] == 1 {
			return
		}
		last = fmt.Sprintf("%g connections at a time, want %d; %g deliveries, want 1", stats["Peak connections"], 2+n, stats["Deliveries"])
	}
	t.Error(last)
}

// testDeaf: a client that does not read delays neither the stop nor the other
// clients.
func testDeaf(t *testing.T, c contender) {
	s := c.start(t)
	dialRaw(t, s)
	a := member(t, s, "r")
	if err := s.Cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	a.closedWith(websocket.StatusGoingAway)
	s.ended(t)
	s.wantStatistics(t, map[string]float64{"Total messages": 0, "Total connections": 2, "Peak connections": 2, "Message drop rate": 0})
}
