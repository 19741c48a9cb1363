package websocket

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/testkit"
)

func TestGrant(t *testing.T) {
	t.Parallel()
	const chunk = 16 << 10
	server, client := pair(t, Config{BulkChunk: chunk}, Config{OnPong: func([]byte) {}})
	server.SetChunked()
	if err := server.Grant(2 * chunk); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int64{0, -1, 1<<30 + 1, 1 << 62, 1<<30 - chunk} {
		if err := server.Grant(n); !errors.Is(err, ErrCredit) {
			t.Errorf("granted %d: %v", n, err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- server.WriteBulk(t.Context(), OpText, make([]byte, 5*chunk)) }()
	a := assembly{t: t}
	for chunks := 0; chunks < 5; {
		msgs, err := client.Read()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range msgs {
			a.add(m.Payload)
			chunks++
		}
		if s := server.Lanes(); s.BulkChunks > int64(chunks)+2 {
			t.Errorf("%d chunks read, %d sent", chunks, s.BulkChunks)
		}
		for range msgs {
			if err := server.Grant(chunk); err != nil {
				t.Error(err)
			}
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestGrant_duringAMessage: credit that is granted while a message is being sent in
// fragments counts from the next message on. A client sees nothing of such a message
// before its end, and cannot know how much credit it still needs.
func TestGrant_duringAMessage(t *testing.T) {
	t.Parallel()
	const chunk = 16 << 10
	server, client := pair(t, Config{BulkChunk: chunk, BulkCredit: 2 * chunk}, Config{})
	first := make(chan error, 1)
	go func() { first <- server.WriteBulk(t.Context(), OpBinary, make([]byte, 10*chunk)) }()
	testkit.Eventually(t, "the message waits for credit", func() bool { return server.Lanes().Outstanding == 2*chunk })
	for range 2 {
		if err := server.Grant(chunk); err != nil {
			t.Fatal(err)
		}
	}
	if err := server.Grant(1<<30 - chunk); !errors.Is(err, ErrCredit) {
		t.Errorf("granted too much: %v", err)
	}
	defer goRead(server)()
	defer client.Abort()
	if msgs, err := client.Read(); err != nil || len(msgs) != 1 || len(msgs[0].Payload) != 10*chunk {
		t.Fatalf("got %d messages, %v", len(msgs), err)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
	second := make(chan error, 1)
	go func() { second <- server.WriteBulk(t.Context(), OpBinary, make([]byte, 3*chunk)) }()
	testkit.Eventually(t, "what was granted is used", func() bool { return server.Lanes().BulkChunks == 12 })
	if err := server.Grant(chunk); err != nil {
		t.Fatal(err)
	}
	if msgs, err := client.Read(); err != nil || len(msgs) != 1 || len(msgs[0].Payload) != 3*chunk {
		t.Fatalf("got %d messages, %v", len(msgs), err)
	}
	if err := <-second; err != nil {
		t.Error(err)
	}
}

// TestCredit_Pongs: only pongs of pings that were sent count, each once.
func TestCredit_Pongs(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c := newCredit(Config{})
	pong := func(offset int64) []byte {
		return binary.BigEndian.AppendUint64([]byte{creditMark}, uint64(offset))
	}
	const n = unaskedBytes
	for range 3 {
		c.appendPing(nil, n, now)
	}
	for _, step := range []struct {
		payload []byte
		ours    bool
		acked   int64
	}{
		{[]byte("heartbeat"), false, 0}, {[]byte("b"), false, 0}, {nil, false, 0},
		{pong(n / 2), true, 0}, {pong(3*n + 1), true, 0}, {pong(-1), true, 0}, {pong(2 * n), true, 2 * n},
		{pong(n), true, 2 * n}, {pong(2 * n), true, 2 * n}, {pong(3 * n), true, 3 * n}, {pong(3 * n), true, 3 * n},
	} {
		if ours := c.pong(step.payload, now.Add(time.Millisecond)); ours != step.ours || c.acked != step.acked {
			t.Errorf("pong %q: ours %v, acknowledged %d; want %v, %d", step.payload, ours, c.acked, step.ours, step.acked)
		}
	}
}

// TestCredit_SmallChunks: small chunks share a ping, whose pong acknowledges all of them. While no ping is on its way,
// every chunk may be sent: no pong would come.
func TestCredit_SmallChunks(t *testing.T) {
	t.Parallel()
	for fixed, between := range map[int]int64{0: unaskedBytes, 4000: 1000} {
		c := newCredit(Config{BulkCredit: fixed})
		pings := 0
		for range 10_000 {
			if !c.allows(maxWindow) {
				t.Fatalf("window %d: a chunk waits, and no ping is on its way", fixed)
			}
			frame := c.appendPing(nil, 100, time.Now())
			if unasked := c.sent - c.asked; unasked >= between {
				t.Fatalf("window %d: %d bytes without a ping", fixed, unasked)
			}
			if len(frame) == 0 {
				continue
			}
			if c.allows(maxWindow) {
				t.Fatalf("window %d: a large chunk does not wait for a pong", fixed)
			}
			pings++
			c.pong(frame[2:], time.Now())
			if c.outstanding() != 0 {
				t.Fatalf("window %d: %d bytes are not acknowledged", fixed, c.outstanding())
			}
		}
		if most := 10_000 * 100 / between; int64(pings) > most || int64(pings) < most/2 {
			t.Errorf("window %d: %d pings, want about %d", fixed, pings, most)
		}
	}
}

// TestCredit_Adapts: prompt pongs widen the window, late ones narrow it, within
// its bounds.
func TestCredit_Adapts(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c := newCredit(Config{})
	run := func(rtt time.Duration, n int) {
		for range n {
			frame := c.appendPing(nil, 64<<10, now)
			now = now.Add(rtt)
			c.pong(frame[2:], now)
		}
	}
	run(100*time.Microsecond, 3000)
	if c.window != maxWindow {
		t.Errorf("window is %d with prompt pongs", c.window)
	}
	run(10*time.Millisecond, 100)
	if c.window != minWindow {
		t.Errorf("window is %d with late pongs", c.window)
	}
	run(140*time.Microsecond, 10)
	if c.window <= minWindow || c.window > 20*minWindow {
		t.Errorf("window is %d with prompt pongs again", c.window)
	}
	now = now.Add(baseAge)
	run(50*time.Millisecond, 100) // another network path: slow, but steady
	if c.window <= 10*minWindow {
		t.Errorf("window is %d on a slow path", c.window)
	}
}
