package websocket

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// pattern returns bytes whose values show their position.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i) ^ byte(i>>8) ^ byte(i>>16)
	}
	return b
}

// assembly reassembles chunks, and fails if one is out of order.
type assembly struct {
	t       testing.TB
	message uint32
	seq     uint32
	data    []byte
}

// add returns the message when its last chunk has arrived.
func (a *assembly) add(p []byte) (op Opcode, whole []byte, done bool) {
	a.t.Helper()
	if len(p) < ChunkHeader || p[0] != 1 || p[2]|p[3] != 0 || p[1] > ChunkLast|ChunkText {
		a.t.Fatalf("chunk header % x", p[:min(len(p), ChunkHeader)])
	}
	message, seq := binary.BigEndian.Uint32(p[4:]), binary.BigEndian.Uint32(p[8:])
	if message != a.message || seq != a.seq {
		a.t.Fatalf("chunk %d of message %d, want %d of %d", seq, message, a.seq, a.message)
	}
	a.data = append(a.data, p[ChunkHeader:]...)
	a.seq++
	if p[1]&ChunkLast == 0 {
		return 0, nil, false
	}
	whole, op = a.data, OpBinary
	if p[1]&ChunkText != 0 {
		op = OpText
	}
	a.message, a.seq, a.data = a.message+1, 0, nil
	return op, whole, true
}

// goRead reads in a goroutine until the connection ends, so that pongs are
// handled.
func goRead(c *Conn) (wait func()) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, err := c.Read(); err == nil; _, err = c.Read() {
		}
	})
	return wg.Wait
}

func TestWriteBulk_ArrivesWhole(t *testing.T) {
	t.Parallel()
	sizes := []int{0, 1, 100, 4096, 4097, 1 << 20}
	for name, chunked := range map[string]bool{"chunks": true, "fragments": false} {
		for kind, ends := range map[string]func(testing.TB) (*Conn, *Conn){
			"socket": func(t testing.TB) (*Conn, *Conn) { return pair(t, Config{BulkChunk: 4096}, Config{}) },
			"pipe":   pipePair,
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				server, client := ends(t)
				if chunked {
					server.SetChunked()
				}
				wait := goRead(server)
				var wg sync.WaitGroup
				wg.Go(func() {
					for _, size := range sizes {
						if err := server.WriteBulk(t.Context(), OpBinary, pattern(size)); err != nil {
							t.Errorf("%d bytes: %v", size, err)
						}
					}
					server.Close(StatusNormal, "")
				})
				a := assembly{t: t}
				for next := 0; next < len(sizes); {
					msgs, err := client.Read()
					if err != nil {
						t.Fatalf("at message %d: %v", next, err)
					}
					for _, m := range msgs {
						op, whole, done := m.Op, m.Payload, true
						if chunked {
							op, whole, done = a.add(m.Payload)
						}
						if !done {
							continue
						}
						if op != OpBinary || !bytes.Equal(whole, pattern(sizes[next])) {
							t.Errorf("message %d is another", next)
						}
						next++
					}
				}
				client.Close(StatusNormal, "")
				wg.Wait()
				wait()
				if s := server.Lanes(); s.BulkBytes != 1<<20+1+100+4096+4097 {
					t.Errorf("stats %+v", s)
				}
			})
		}
	}
}

// stalled starts a bulk message of ten chunks to a peer that does not read, so
// that it waits for credit after the first.
func stalled(t *testing.T, chunked bool) (server, client *Conn, done <-chan error) {
	t.Helper()
	const chunk = 16 << 10
	server, client = pair(t, Config{BulkChunk: chunk, BulkCredit: chunk}, Config{MaxMessage: 1 << 20})
	if chunked {
		server.SetChunked()
	}
	result := make(chan error, 1)
	go func() { result <- server.WriteBulk(context.Background(), OpText, bytes.Repeat([]byte("x"), 10*chunk)) }()
	for server.Lanes().BulkChunks == 0 {
		time.Sleep(time.Millisecond)
	}
	return server, client, result
}

// TestWriteBulk_AnswerOvertakes: an answer overtakes chunks that are not sent
// yet.
func TestWriteBulk_AnswerOvertakes(t *testing.T) {
	t.Parallel()
	server, client, done := stalled(t, true)
	wait := goRead(server)
	send(t, server, OpText, "answer")
	shared := AppendFrame(AppendFrame(nil, OpText, []byte("live 1")), OpText, []byte("live 2"))
	for n := 0; n < len(shared); { // it takes nothing while something else is being written
		taken, err := server.WriteShared(shared[n:])
		if err != nil {
			t.Fatal(err)
		}
		n += taken
	}
	a := assembly{t: t}
	var order []string
	for {
		msgs, err := client.Read()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range msgs {
			if m.Op == OpText {
				order = append(order, string(m.Payload))
				continue
			}
			if _, whole, last := a.add(m.Payload); last {
				if len(whole) != 160<<10 || fmt.Sprint(order) != "[chunk answer live 1 live 2 chunk chunk chunk chunk chunk chunk chunk chunk]" {
					t.Errorf("%d bytes, order %q", len(whole), order)
				}
				if err := <-done; err != nil {
					t.Error(err)
				}
				client.Abort()
				wait()
				return
			}
			order = append(order, "chunk")
		}
	}
}

// TestWriteBulk_PlainPeer: a peer without chunks gets pongs between fragments,
// and answers after the last.
func TestWriteBulk_PlainPeer(t *testing.T) {
	t.Parallel()
	server, client, done := stalled(t, false)
	wait := goRead(server)
	var order []string
	client.cfg.OnPong = func(p []byte) { order = append(order, "pong "+string(p)) }
	send(t, server, OpText, "answer")
	send(t, client, OpPing, "1")
	for waiting := true; waiting; { // until the server has read it
		server.mu.Lock()
		waiting = server.pong == nil
		server.mu.Unlock()
	}
	for len(order) < 3 {
		msgs, err := client.Read()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range msgs {
			order = append(order, fmt.Sprintf("%d bytes", len(m.Payload)))
		}
	}
	if fmt.Sprint(order) != "[pong 1 163840 bytes 6 bytes]" {
		t.Errorf("order %q", order)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	client.Abort()
	wait()
}

// TestWriteBulk_CloseWaitsForThePlainMessage: a close waits for the end of a
// message in fragments, and interrupts one in chunks.
func TestWriteBulk_CloseWaitsForThePlainMessage(t *testing.T) {
	t.Parallel()
	for _, chunked := range []bool{false, true} {
		server, client, done := stalled(t, chunked)
		send(t, server, OpText, "answer")
		server.StartClose(StatusGoingAway, "stop")
		wait := goRead(server)
		got, err := readAll(client)
		wantClose(t, err, StatusGoingAway, "stop")
		go client.Close(StatusGoingAway, "")
		if err := <-done; chunked != errors.Is(err, ErrClosed) {
			t.Errorf("chunked %v: %v", chunked, err)
		}
		if want := 2; len(got) != want || got[len(got)-1] != "answer" || !chunked && len(got[0]) != 160<<10 {
			t.Errorf("chunked %v: %d messages", chunked, len(got))
		}
		wait()
		server.Abort()
		client.Abort()
	}
}

// TestWriteBulk_AnswersPileUp: answers pile up in the middle of a message, so
// that nothing is read any more, including pongs. The message still ends.
func TestWriteBulk_AnswersPileUp(t *testing.T) {
	t.Parallel()
	server, client, done := stalled(t, false)
	if err := server.Queue(OpText, make([]byte, 3<<20)); err != nil { // more than half of MaxUnsent
		t.Fatal(err)
	}
	client.dec.max = 4 << 20
	wait := goRead(server)
	for sizes := []int{160 << 10, 3 << 20}; len(sizes) > 0; {
		msgs, err := client.Read()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range msgs {
			if len(m.Payload) != sizes[0] {
				t.Errorf("%d bytes, want %d", len(m.Payload), sizes[0])
			}
			sizes = sizes[1:]
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	client.Abort()
	wait()
}

// TestWriteBulk_NeverRead: a message to a peer that never reads fails after
// WriteTimeout, and few bytes are outstanding meanwhile.
func TestWriteBulk_NeverRead(t *testing.T) {
	t.Parallel()
	for _, chunked := range []bool{false, true} {
		const chunk = 16 << 10
		server, client := pair(t, Config{BulkChunk: chunk, BulkCredit: 4 * chunk, WriteTimeout: 100 * time.Millisecond, CloseTimeout: 100 * time.Millisecond}, Config{})
		if chunked {
			server.SetChunked()
		}
		wait := goRead(server)
		var err error
		for err == nil {
			err = server.WriteBulk(t.Context(), OpText, make([]byte, 10*chunk))
		}
		if s := server.Lanes(); !errors.Is(err, ErrSlowReader) || s.Outstanding != 4*chunk {
			t.Errorf("%v, stats %+v", err, s)
		}
		if err := server.Queue(OpText, []byte("answer")); !chunked && !errors.Is(err, ErrSlowReader) || chunked && err != nil {
			t.Errorf("chunked %v: an answer after half a message: %v", chunked, err)
		}
		go server.Close(StatusPolicyViolation, "reads too slowly")
		for err = nil; err == nil; _, err = client.Read() {
		}
		if closed, ok := errors.AsType[*CloseError](err); !ok || closed.Code != StatusPolicyViolation {
			t.Errorf("the peer was told %v", err)
		}
		client.Abort()
		wait()
	}
}

func TestWriteBulk_ContextEnds(t *testing.T) {
	t.Parallel()
	const chunk = 16 << 10
	server, client := pair(t, Config{BulkChunk: chunk, BulkCredit: chunk}, Config{})
	server.SetChunked()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if err := server.WriteBulk(ctx, OpBinary, make([]byte, 3*chunk)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := server.WriteBulk(ctx, OpBinary, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	send(t, server, OpText, "still here")
	for {
		msgs, err := client.Read()
		if err != nil {
			t.Fatal(err)
		}
		if m := msgs[len(msgs)-1]; m.Op == OpText {
			return
		}
	}
}

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
	until(t, "the message waits for credit", func() bool { return server.Lanes().Outstanding == 2*chunk })
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
	until(t, "what was granted is used", func() bool { return server.Lanes().BulkChunks == 12 })
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

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so after a minute: %s", what)
		}
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

// TestLanes_AllAtOnce uses every lane from several goroutines: each lane's
// messages arrive whole and in order.
func TestLanes_AllAtOnce(t *testing.T) {
	t.Parallel()
	for _, chunked := range []bool{false, true} {
		server, client := pair(t, Config{BulkChunk: 8 << 10}, Config{MaxMessage: 1 << 20})
		if chunked {
			server.SetChunked()
		}
		const each = 200
		wait := goRead(server)
		var wg sync.WaitGroup
		wg.Go(func() {
			for n := range each {
				body := fmt.Appendf(nil, "bulk %06d", n)
				if err := server.WriteBulk(t.Context(), OpText, append(body, make([]byte, rand.IntN(100<<10))...)); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for n := range each {
				server.Queue(OpText, fmt.Appendf(nil, "ctrl %06d", n))
				if n%3 == 0 {
					server.Flush()
					time.Sleep(50 * time.Microsecond)
				}
			}
			server.Flush()
		})
		wg.Go(func() {
			for n := range each {
				frame := AppendFrame(nil, OpText, fmt.Appendf(nil, "live %06d", n))
				for {
					sent, err := server.WriteShared(frame)
					if err != nil {
						t.Error(err)
						return
					}
					if sent > 0 {
						break
					}
					time.Sleep(20 * time.Microsecond)
				}
			}
		})
		next := map[string]int{}
		a := assembly{t: t}
		for total := 0; total < 3*each; {
			msgs, err := client.Read()
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range msgs {
				p := m.Payload
				if chunked && m.Op == OpBinary {
					var done bool
					if _, p, done = a.add(p); !done {
						continue
					}
				}
				lane := string(p[:4])
				if got := string(p[5:11]); got != fmt.Sprintf("%06d", next[lane]) {
					t.Fatalf("%s %s, want %d", lane, got, next[lane])
				}
				next[lane]++
				total++
			}
			if total%7 == 0 {
				client.Queue(OpPing, []byte("are you there"))
			}
		}
		wg.Wait()
		client.Abort()
		wait()
	}
}

// TestWriteBulk_AnswersAreNoProgress: a peer that is sent answers and acknowledges no bulk data reads too slowly, however
// many answers its socket takes.
func TestWriteBulk_AnswersAreNoProgress(t *testing.T) {
	t.Parallel()
	const chunk = 1 << 10
	server, socket := rawPair(t, Config{BulkChunk: chunk, BulkCredit: chunk, WriteTimeout: 100 * time.Millisecond, CloseTimeout: 100 * time.Millisecond})
	wait := goRead(server)
	var working sync.WaitGroup
	ended := make(chan struct{})
	working.Go(func() { io.Copy(io.Discard, socket) }) // a peer that reads and answers no pings
	working.Go(func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(10 * time.Millisecond):
				server.Queue(OpText, []byte("answer"))
				server.Flush()
			}
		}
	})
	var err error
	for err == nil {
		err = server.WriteBulk(t.Context(), OpText, make([]byte, chunk))
	}
	close(ended)
	if !errors.Is(err, ErrSlowReader) {
		t.Errorf("%v, want ErrSlowReader", err)
	}
	server.Abort()
	working.Wait()
	wait()
}
