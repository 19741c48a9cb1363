package websocket

import (
	"testing"
	"time"
)

// chunkUnderWay owns the socket like the writer of a chunk. The function that
// it returns ends that.
func chunkUnderWay(c *Conn) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bulkState()
	c.writing, c.bulking, c.wanted = true, true, false
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.release()
	}
}

// offerLive queues a message on the live lane that cannot be sent yet.
func offerLive(t *testing.T, c *Conn, n int) {
	t.Helper()
	if taken, err := c.WriteShared(laneFrame("live", n, 100)); taken == 0 || err != nil {
		t.Fatalf("live: %d, %v", taken, err)
	}
}

// answer queues an answer that has to wait.
func answer(t *testing.T, c *Conn, n int) {
	t.Helper()
	if err := c.Queue(OpBinary, laneMessage("control", n, 100)); err != nil {
		t.Fatal(err)
	}
	c.Flush()
}

// TestRelease_AnswerAfterOthers: an answer that was flushed during a chunk is
// sent after it without another Flush, also if other messages precede it.
func TestRelease_AnswerAfterOthers(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(t *testing.T, c *Conn){
		"live that is overdue": func(t *testing.T, c *Conn) {
			offerLive(t, c, 0)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.liveSince.Time = time.Now().Add(-2 * maxTurn)
		},
		"what gave way": func(_ *testing.T, c *Conn) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.parked = outgoing{buffer: getBuffer(1024)}
			c.parked.b = append(c.parked.b[:0], laneFrame("live", 0, 100)...)
			c.unsent += len(c.parked.b)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, client := pair(t, Config{}, Config{})
			end := chunkUnderWay(server)
			before(t, server)
			answer(t, server, 0)
			end()
			r := &lanesReader{t: t, conn: client, next: map[string]int{}}
			r.until(func() bool { return r.next["live"] == 1 && r.next["control"] == 1 })
		})
	}
}

// TestRelease_CloseAfterLive: messages that the live lane took before
// StartClose are not sent after the Close frame, where nobody reads them.
func TestRelease_CloseAfterLive(t *testing.T) {
	t.Parallel()
	server, client := pair(t, Config{}, Config{})
	end := chunkUnderWay(server)
	offerLive(t, server, 0)
	answer(t, server, 0)
	server.StartClose(StatusGoingAway, "")
	end()
	client.SetReadDeadline(time.Now().Add(patience))
	got, err := readAll(client)
	if len(got) != 2 {
		t.Errorf("%d messages came before the Close frame, want 2", len(got))
	}
	wantClose(t, err, StatusGoingAway, "")
}

// TestGiveUp_PongLeaves: an answer to a ping that was to be sent with a chunk
// is sent without it.
func TestGiveUp_PongLeaves(t *testing.T) {
	t.Parallel()
	pongs := make(chan string, 1)
	server, client := pair(t, Config{}, Config{OnPong: func(p []byte) { pongs <- string(p) }})
	server.mu.Lock()
	server.bulkState().waiting = true
	server.writing = true
	server.pong = append([]byte{byte(OpPong)}, "kept back"...)
	server.bulk.handed = true // as drain leaves it after a long head
	server.giveUp()
	server.mu.Unlock()
	wait := goRead(client)
	select {
	case got := <-pongs:
		if got != "kept back" {
			t.Errorf("got the pong %q", got)
		}
	case <-time.After(patience):
		t.Error("the ping is not answered")
	}
	server.Abort()
	wait()
}

// TestSetUnread: while nobody reads, no pong can arrive, and chunks are sent
// without waiting for one.
func TestSetUnread(t *testing.T) {
	t.Parallel()
	server, client := pair(t, Config{BulkCredit: 4 << 10, BulkChunk: 4 << 10}, Config{})
	sent := make(chan error, 1)
	go func() {
		sent <- server.WriteBulkFrames(t.Context(), append(laneFrame("past", 0, 4<<10), laneFrame("past", 1, 4<<10)...))
	}()
	r := &lanesReader{t: t, conn: client, next: map[string]int{}}
	r.until(func() bool { return r.next["past"] == 1 })
	if err := server.Queue(OpBinary, laneMessage("control", 0, 10)); err != nil {
		t.Fatal(err)
	}
	server.Flush()
	r.until(func() bool { return r.next["control"] == 1 }) // the second chunk waits for credit
	server.SetUnread(true)
	r.until(func() bool { return r.next["past"] == 2 })
	if err := <-sent; err != nil {
		t.Error(err)
	}
}
