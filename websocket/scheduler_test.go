package websocket

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/testkit"
)

// lanesReader reads slowly, and checks that each lane's messages are whole and
// in order. A message is "<lane> <number> " and a text.
type lanesReader struct {
	t      *testing.T
	conn   *Conn
	chunks *assembly // of a connection with chunks
	pause  time.Duration
	next   map[string]int
	order  []string // the lanes of messages as they came
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
			payload := m.Payload
			if r.chunks != nil && m.Op == OpBinary {
				var whole bool
				if _, payload, whole = r.chunks.add(payload); !whole {
					continue
				}
			}
			var lane string
			var n int
			if _, err := fmt.Sscanf(string(payload[:min(len(payload), 30)]), "%s %d", &lane, &n); err != nil || n != r.next[lane] {
				r.t.Fatalf("got %.30q, have %v", payload, r.next)
			}
			if want := laneMessage(lane, n, len(payload)-len(laneMessage(lane, n, 0))); !bytes.Equal(payload, want) {
				r.t.Fatalf("%s %d is damaged", lane, n)
			}
			r.next[lane]++
			r.order = append(r.order, lane)
		}
		if r.pause > 0 {
			time.Sleep(r.pause) // pace: of a peer that reads slowly
		}
	}
}

func laneMessage(lane string, n, size int) []byte {
	message := fmt.Appendf(nil, "%s %d ", lane, n)
	for i := range size {
		message = append(message, 'a'+byte(i^i>>8^i>>16)&15)
	}
	return message
}

func laneFrame(lane string, n, size int) []byte {
	return AppendFrame(nil, OpText, laneMessage(lane, n, size))
}

// offer offers frames to the live lane until it has taken all.
func offer(t testing.TB, c *Conn, frames []byte) {
	for len(frames) > 0 {
		testkit.Eventually(t, "the live lane takes a frame", func() bool {
			n, err := c.WriteShared(frames)
			if err != nil {
				t.Error(err)
				n = len(frames)
			}
			_, count := frameEnd(frames, n)
			c.CountShared(count)
			frames = frames[n:]
			return n > 0
		})
	}
}

// TestTurns_ControlGivesWay: a head of 16 MiB of answers takes this peer a
// quarter of a second, and the other lanes do not wait for its end.
func TestTurns_ControlGivesWay(t *testing.T) {
	t.Parallel()
	const answers, size = 4096, 4 << 10
	server, client := pair(t, Config{MaxUnsent: 64 << 20}, Config{})
	for n := range answers {
		if err := server.Queue(OpText, laneMessage("control", n, size)); err != nil {
			t.Fatal(err)
		}
	}
	server.Flush()
	wait := goRead(server) // which would have flushed the first of them alone
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := server.WriteBulk(t.Context(), OpText, laneMessage("bulk", 0, 100)); err != nil {
			t.Error(err)
		}
	})
	wg.Go(func() { offer(t, server, laneFrame("live", 0, 100)) })
	r := &lanesReader{t: t, conn: client, pause: time.Millisecond, next: map[string]int{}}
	r.until(func() bool { return r.next["bulk"] == 1 && r.next["live"] == 1 })
	if r.next["control"] == answers {
		t.Error("the other lanes came after all answers")
	}
	r.pause = 0
	r.until(func() bool { return r.next["control"] == answers })
	wg.Wait()
	if s := server.Lanes(); s.LiveWaits == 0 || s.LiveWait == 0 || s.BulkWait == 0 {
		t.Errorf("the lanes waited: %+v", s)
	}
	client.Abort()
	wait()
}

// TestTurns_Mixed: all lanes are busy and the peer reads slowly, so that lanes
// interrupt each other in the middle of their queues. All is counted, and in the end
// no memory is in use.
func TestTurns_Mixed(t *testing.T) {
	t.Parallel()
	for _, chunked := range []bool{false, true} {
		t.Run(fmt.Sprintf("chunked %v", chunked), func(t *testing.T) {
			t.Parallel()
			const each = 200
			l := &ledger{t: t}
			server, client := pair(t, Config{MaxUnsent: 64 << 20, BulkChunk: 8 << 10, Memory: l}, Config{})
			r := &lanesReader{t: t, conn: client, pause: time.Millisecond, next: map[string]int{}}
			if chunked {
				server.SetChunked()
				r.chunks = &assembly{t: t}
			}
			wait := goRead(server)
			size := func() int { return rand.IntN(1 << (6 + rand.IntN(12))) }
			var wg sync.WaitGroup
			wg.Go(func() {
				for n := range each {
					if err := server.Queue(OpText, laneMessage("control", n, size())); err != nil {
						t.Error(err)
					}
					if n%5 == 0 {
						server.Flush()
					}
				}
				server.Flush()
			})
			wg.Go(func() {
				for n := range each {
					offer(t, server, laneFrame("live", n, size()))
				}
			})
			wg.Go(func() {
				for n := range each {
					if err := server.WriteBulk(t.Context(), OpText, laneMessage("bulk", n, 2*size())); err != nil {
						t.Error(err)
					}
				}
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
			wg.Go(func() {
				for range each {
					client.Queue(OpPing, []byte("no message"))
					client.Queue(OpText, []byte("in"))
					client.Flush()
				}
			})
			r.until(func() bool { return len(r.order) == 4*each })
			wg.Wait()
			testkit.Eventually(t, "all messages have arrived, and nothing is held", func() bool {
				return server.Traffic().MessagesIn == each && l.output.Load() == 0
			})
			if waits := server.Lanes(); waits.ControlWaits == 0 || waits.ControlWait == 0 {
				t.Errorf("control messages have waited for no other lane: %+v", waits)
			}
			s, c := server.Traffic(), client.Traffic()
			if s.MessagesOut != 4*each || !chunked && c.MessagesIn != 4*each || c.MessagesOut != each || s.BytesOut < c.BytesIn || c.BytesOut < s.BytesIn {
				t.Errorf("server %+v\nclient %+v", s, c)
			}
			client.Abort()
			wait()
			if n := l.assembly.Load(); n != 0 {
				t.Errorf("%d bytes of incomplete messages at the end", n)
			}
		})
	}
}
