package room

import (
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// held returns a room without a flusher, and a held member: published messages
// are its lag.
func held(t *testing.T, cfg Config) (*Room, *Member) {
	t.Helper()
	hub := NewHub(cfg)
	r := still(hub)
	theirs, _ := connect(t)
	return r, hub.Join(theirs, "r", JoinOptions{Hold: true})
}

// TestLag_Age: a member may take nothing for MaxLagAge, and no longer.
func TestLag_Age(t *testing.T) {
	t.Parallel()
	r, m := held(t, Config{MaxLagAge: time.Minute})
	f, start := round{room: r}, time.Now()
	r.publish(nil, websocket.OpText, []byte("said"))
	for _, one := range []struct {
		after time.Duration
		lags  bool
	}{{0, false}, {time.Minute, false}, {time.Minute + 1, true}} {
		f.flush(start.Add(one.after))
		if lags := m.lagging || m.missed > 0; lags != one.lags {
			t.Errorf("after %v without a byte taken it lags: %v", one.after, lags)
		}
	}
	if m.missed != 1 {
		t.Errorf("it missed %d messages, want 1", m.missed)
	}
}

// TestLag_AgeBeginsAnew: the age starts again with the next message after a
// member has taken everything.
func TestLag_AgeBeginsAnew(t *testing.T) {
	t.Parallel()
	r, m := held(t, Config{MaxLagAge: time.Minute})
	f, start := round{room: r}, time.Now()
	r.publish(nil, websocket.OpText, []byte("said"))
	f.flush(start)
	m.held = false
	f.flush(start.Add(30 * time.Second))
	if m.pos != r.log.head {
		t.Fatal("it did not take what was said")
	}
	m.held = true
	r.publish(nil, websocket.OpText, []byte("said"))
	f.flush(start.Add(5 * time.Minute))
	f.flush(start.Add(6 * time.Minute))
	if m.lagging || m.missed > 0 {
		t.Error("it lags by time in which there was nothing for it")
	}
	f.flush(start.Add(6*time.Minute + 1))
	if !m.lagging {
		t.Error("it does not lag")
	}
}

// TestLag_Bytes: MaxLagBytes may wait for a member, and no more.
func TestLag_Bytes(t *testing.T) {
	t.Parallel()
	const frame, most = 100, 10
	r, m := held(t, Config{MaxLagBytes: most * frame, MaxLagAge: time.Hour})
	f, now := round{room: r}, time.Now()
	for range most {
		r.publish(nil, websocket.OpText, []byte(strings.Repeat("x", frame-2))) // after two bytes of header
		f.flush(now)
	}
	if r.log.head != most*frame || m.lagging || m.missed > 0 {
		t.Fatalf("it lags with %d bytes that wait: %v", r.log.head, m.lagging)
	}
	r.publish(nil, websocket.OpText, []byte(strings.Repeat("x", frame-2)))
	f.flush(now)
	if !m.lagging || m.missed != most+1 {
		t.Errorf("with %d bytes that wait it lags: %v, and missed %d messages, want %d", (most+1)*frame, m.lagging, m.missed, most+1)
	}
}
