package websocket

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/testkit"
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
	testkit.Eventually(t, "the first chunk is sent", func() bool { return server.Lanes().BulkChunks > 0 })
	return server, client, result
}

// TestWriteBulk_AnswerOvertakes: an answer overtakes chunks that are not sent
// yet.
func TestWriteBulk_AnswerOvertakes(t *testing.T) {
	t.Parallel()
	server, client, done := stalled(t, true)
	wait := goRead(server)
	send(t, server, OpText, "answer")
	offer(t, server, AppendFrame(AppendFrame(nil, OpText, []byte("live 1")), OpText, []byte("live 2")))
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
	testkit.Eventually(t, "the server has read the ping", func() bool {
		server.mu.Lock()
		defer server.mu.Unlock()
		return server.pong != nil
	})
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

// TestWriteBulk_WriteTimeout: a peer whose socket takes nothing more is reset, so that the kernel does not keep what is left for it.
func TestWriteBulk_WriteTimeout(t *testing.T) {
	t.Parallel()
	server, socket := rawPair(t, Config{BulkCredit: 1 << 30, WriteTimeout: 100 * time.Millisecond})
	var err error
	for err == nil {
		err = server.WriteBulk(t.Context(), OpBinary, make([]byte, 8<<20))
	}
	if !errors.Is(err, ErrWriteTimeout) {
		t.Error(err)
	}
	socket.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, socket); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the peer reads %v", err)
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

// TestWriteBulk_AnswersAreNoProgress: a peer that is sent answers and acknowledges no bulk data reads too slowly, however
// many answers its socket takes.
func TestWriteBulk_AnswersAreNoProgress(t *testing.T) {
	t.Parallel()
	const chunk = 1 << 10
	server, socket := rawPair(t, Config{BulkChunk: chunk, BulkCredit: chunk, WriteTimeout: 100 * time.Millisecond, CloseTimeout: 100 * time.Millisecond})
	wait := goRead(server)
	var working sync.WaitGroup
	working.Go(func() { // a peer that reads, sends pongs of its own, answers no pings, and is sent an answer for all that it reads
		for buf := make([]byte, 1<<10); ; {
			if _, err := socket.Read(buf); err != nil {
				return
			}
			socket.Write(frame(true, OpPong, "of nothing"))
			server.Queue(OpText, []byte("answer"))
			server.Flush()
		}
	})
	var err error
	for err == nil {
		err = server.WriteBulk(t.Context(), OpText, make([]byte, chunk))
	}
	if !errors.Is(err, ErrSlowReader) {
		t.Errorf("%v, want ErrSlowReader", err)
	}
	server.Abort()
	working.Wait()
	wait()
}
