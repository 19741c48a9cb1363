package websocket

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// lanesReader reads slowly, and checks that each lane's messages are whole and
// in order. A message is "<lane> <number> " and a pattern.
type lanesReader struct {
	t     *testing.T
	conn  *Conn
	pause time.Duration
	next  map[string]int
	order []string // the lanes of messages as they came
}

func (r *lanesReader) until(done func() bool) {
	r.t.Helper()
	r.conn.SetReadDeadline(time.Now().Add(patience))
	for !done() {
		messages, err := r.conn.Read()
		if err != nil {
			r.t.Fatalf("after %v: %v", r.next, err)
		}
		for _, m := range messages {
			var lane string
			var n int
			if _, err := fmt.Sscanf(string(m.Payload[:min(len(m.Payload), 30)]), "%s %d", &lane, &n); err != nil || n != r.next[lane] {
				r.t.Fatalf("got %.30q, have %v", m.Payload, r.next)
			}
			if head := len(fmt.Sprint(lane, n)) + 2; !bytes.Equal(m.Payload[head:], pattern(len(m.Payload)-head)) {
				r.t.Fatalf("%s %d is damaged", lane, n)
			}
			r.next[lane]++
			r.order = append(r.order, lane)
		}
		time.Sleep(r.pause)
	}
}

func laneMessage(lane string, n, size int) []byte {
	return append(fmt.Appendf(nil, "%s %d ", lane, n), pattern(size)...)
}

func laneFrame(lane string, n, size int) []byte {
	return AppendFrame(nil, OpBinary, laneMessage(lane, n, size))
}

// TestTurns_ControlGivesWay: a head of 16 MiB of answers takes this peer a
// quarter of a second, and the other lanes do not wait for its end.
func TestTurns_ControlGivesWay(t *testing.T) {
	t.Parallel()
	const answers, size = 4096, 4 << 10
	server, client := pair(t, Config{MaxUnsent: 64 << 20}, Config{})
	for n := range answers {
		if err := server.Queue(OpBinary, laneMessage("control", n, size)); err != nil {
			t.Fatal(err)
		}
	}
	server.Flush()
	wait := goRead(server) // which would have flushed the first of them alone
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := server.WriteBulk(t.Context(), OpBinary, laneMessage("bulk", 0, 100)); err != nil {
			t.Error(err)
		}
	})
	wg.Go(func() {
		for {
			n, err := server.WriteShared(laneFrame("live", 0, 100))
			if err != nil {
				t.Error(err)
			}
			if n > 0 || err != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
	r := &lanesReader{t: t, conn: client, pause: time.Millisecond, next: map[string]int{}}
	r.until(func() bool { return r.next["bulk"] == 1 && r.next["live"] == 1 })
	if r.next["control"] == answers {
		t.Error("the other lanes came after all answers")
	}
	r.pause = 0
	r.until(func() bool { return r.next["control"] == answers })
	wg.Wait()
	if s := server.Lanes(); s.LiveWaits == 0 || s.LiveWait < maxTurn || s.ControlWaits == 0 || s.ControlWait < maxTurn || s.BulkWait < maxTurn {
		t.Errorf("the lanes waited: %+v", s)
	}
	client.Abort()
	wait()
}

// TestTurns_Mixed: all lanes are busy and the peer reads slowly, so that lanes
// interrupt each other in the middle of their queues.
func TestTurns_Mixed(t *testing.T) {
	t.Parallel()
	const each = 300
	server, client := pair(t, Config{MaxUnsent: 8 << 20}, Config{})
	wait := goRead(server)
	size := func() int { return rand.IntN(1 << (6 + rand.IntN(12))) }
	var wg sync.WaitGroup
	sender := func(lane string, send func(n int) (sent bool, err error)) {
		wg.Go(func() {
			for n := 0; n < each; {
				sent, err := send(n)
				if err != nil {
					t.Errorf("%s: %v", lane, err)
					return
				}
				if sent {
					n++
				} else {
					time.Sleep(100 * time.Microsecond)
				}
			}
		})
	}
	sender("control", func(n int) (bool, error) {
		err := server.Queue(OpBinary, laneMessage("control", n, size()))
		if n%5 == 0 || err == ErrSlowReader {
			server.Flush()
		}
		if err == ErrSlowReader {
			return false, nil
		}
		return true, err
	})
	sender("live", func(n int) (bool, error) {
		sent, err := server.WriteShared(laneFrame("live", n, size()))
		return sent > 0, err
	})
	sender("bulk", func(n int) (bool, error) {
		return true, server.WriteBulk(t.Context(), OpBinary, laneMessage("bulk", n, 2*size()))
	})
	var past []byte
	for n := range each {
		past = append(past, laneFrame("past", n, size())...)
	}
	wg.Go(func() {
		if err := server.WriteBulkFrames(t.Context(), past); err != nil {
			t.Error(err)
		}
	})
	r := &lanesReader{t: t, conn: client, pause: time.Millisecond, next: map[string]int{}}
	r.until(func() bool { return len(r.order) == 4*each })
	wg.Wait()
	server.Flush()
	client.Abort()
	wait()
}
