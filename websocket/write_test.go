package websocket

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/testkit"
)

// TestQueue_slowReader: a peer that reads nothing costs at most MaxUnsent, and
// its connection ends after WriteTimeout.
func TestQueue_slowReader(t *testing.T) {
	t.Parallel()
	server, _ := rawPair(t, Config{MaxUnsent: 1 << 20, WriteTimeout: 200 * time.Millisecond})
	payload := make([]byte, 100_000)
	var err error
	for err == nil {
		if err = server.Queue(OpBinary, payload); err == nil {
			err = server.Flush()
		}
		if n := server.Unsent(); n > 1<<20 {
			t.Fatalf("%d bytes unsent", n)
		}
	}
	if !errors.Is(err, ErrSlowReader) && !errors.Is(err, ErrWriteTimeout) {
		t.Error(err)
	}
	if _, err := server.Read(); !errors.Is(err, ErrWriteTimeout) {
		t.Error(err)
	}
	if err := server.Close(StatusNormal, ""); !errors.Is(err, ErrWriteTimeout) {
		t.Error(err)
	}
}

// TestRead_pingFlood: a peer sends pings without end and reads nothing.
func TestRead_pingFlood(t *testing.T) {
	t.Parallel()
	server, socket := rawPair(t, Config{})
	var wg sync.WaitGroup
	wg.Go(func() { echo(server) })
	pings := bytes.Repeat(frame(true, OpPing, strings.Repeat("p", 125)), 1000)
	if err := socket.SetReadBuffer(32 << 10); err != nil {
		t.Fatal(err)
	}
	for range 60 { // 8 MB, more than the sockets' buffers take as pongs
		if _, err := socket.Write(pings); err != nil {
			t.Fatal(err)
		}
	}
	if n := server.Unsent(); n > maxUnsentPongs+1000 {
		t.Errorf("%d bytes unsent", n)
	}
	if _, err := socket.Write(join(frame(true, OpPing, "the last"), frame(true, OpClose, "\x03\xe8"))); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(socket)
	if err != nil {
		t.Error(err)
	}
	last := join(AppendFrame(nil, OpPong, []byte("the last")), AppendClose(nil, StatusNormal, ""))
	if !bytes.HasSuffix(got, last) {
		t.Errorf("peer got at last %q", got[max(0, len(got)-100):])
	}
	wg.Wait()
}

// TestRead_backpressure: requests of a peer that does not read answers are not
// even read; once it reads, it gets all answers.
func TestRead_backpressure(t *testing.T) {
	t.Parallel()
	server, client := pair(t, Config{MaxUnsent: 1 << 17}, Config{MaxUnsent: 1 << 30})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := echo(server); err != nil {
			wantClose(t, err, StatusNormal, "")
		}
	})
	const n = 1000
	payload := bytes.Repeat([]byte("0123456789"), 1000)
	for range n { // 10 MB
		if err := client.Queue(OpText, payload); err != nil {
			t.Fatal(err)
		}
	}
	for got := 0; got < n; {
		msgs, err := client.Read()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range msgs {
			if got++; !bytes.Equal(m.Payload, payload) {
				t.Fatalf("answer %d is wrong", got)
			}
		}
	}
	if err := client.Close(StatusNormal, ""); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

// TestRead_deadlineWhileThePeerDoesNotListen: a peer that sends requests and
// never reads answers does not delay a stop.
func TestRead_deadlineWhileThePeerDoesNotListen(t *testing.T) {
	t.Parallel()
	server, client := pair(t, Config{MaxUnsent: 1 << 17}, Config{MaxUnsent: 1 << 30})
	ended := make(chan error, 1)
	go func() {
		for {
			messages, err := server.Read()
			for _, m := range messages {
				server.Queue(m.Op, m.Payload)
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	payload := bytes.Repeat([]byte("0123456789"), 1000)
	for server.Unsent() <= 1<<16 {
		if err := client.Queue(OpText, payload); err != nil {
			t.Fatal(err)
		}
		client.Flush()
	}
	server.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	select {
	case err := <-ended:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(patience):
		t.Error("still waits")
	}
}

// TestQueue_concurrent: frames of many goroutines arrive whole, and those of each goroutine in order, also when they begin to be compressed.
func TestQueue_concurrent(t *testing.T) {
	t.Parallel()
	for name, z := range map[string]*Compression{"plain": nil, "compressed": {Threshold: 100}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, client := pair(t, Config{MaxUnsent: 1 << 30, Compression: z}, Config{Compression: z})
			const writers, each = 8, 500
			wait := goRead(server)
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					for i := range each {
						if i == each/2 {
							server.AllowCompression()
						}
						if err := server.Queue(OpText, fmt.Appendf(nil, "%d %d %s", w, i, strings.Repeat("x", i))); err != nil {
							t.Error(err)
						}
						if i%10 == 0 || i == each-1 {
							server.Flush()
						}
					}
				})
			}
			var next [writers]int
			for got := 0; got < writers*each; {
				msgs, err := client.Read()
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range msgs {
					var w, i int
					var rest string
					if fmt.Sscan(string(m.Payload), &w, &i, &rest); i != next[w] || len(rest) != i {
						t.Fatalf("writer %d: message %d of %d bytes, want %d", w, i, len(rest), next[w])
					}
					next[w]++
					got++
				}
			}
			wg.Wait()
			client.Abort()
			wait()
		})
	}
}

func TestQueue_refuses(t *testing.T) {
	t.Parallel()
	server, _ := pipePair(t)
	for _, test := range []struct {
		op      Opcode
		payload int
	}{{OpClose, 0}, {OpContinuation, 0}, {3, 0}, {OpPing, 126}, {OpPong, 126}, {17, 0}} {
		if err := server.Queue(test.op, make([]byte, test.payload)); err == nil {
			t.Errorf("queued %v of %d bytes", test.op, test.payload)
		}
	}
}

// TestWriteShared offers one buffer to a peer that stops reading for a while.
func TestWriteShared(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func(t testing.TB) (*Conn, *Conn){
		"socket": func(t testing.TB) (*Conn, *Conn) { return pair(t, Config{}, Config{}) },
		"pipe":   pipePair,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, client := ends(t)
			if _, err := client.WriteShared(nil); err == nil {
				t.Error("a client shared")
			}
			var shared []byte
			const n = 2000
			for i := range n {
				shared = AppendFrame(shared, OpBinary, bytes.Repeat([]byte{byte(i)}, i))
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				for range 20 { // own messages come before what is left
					n, err := server.WriteShared(shared)
					if err = errors.Join(err, server.Queue(OpText, []byte("own"))); err != nil {
						t.Error(err)
					}
					shared = shared[n:]
				}
				offer(t, server, shared)
				server.Close(StatusNormal, "")
			})
			next := 0
			for {
				msgs, err := client.Read()
				if err != nil {
					wantClose(t, err, StatusNormal, "")
					break
				}
				for _, m := range msgs {
					if m.Op == OpText {
						continue
					}
					if len(m.Payload) != next || next > 0 && m.Payload[next-1] != byte(next) {
						t.Fatalf("frame %d has %d bytes", next, len(m.Payload))
					}
					next++
				}
			}
			if next != n {
				t.Errorf("%d frames of %d", next, n)
			}
			client.Close(StatusNormal, "")
			wg.Wait()
		})
	}
}

// TestBacklog: bytes that only the kernel holds are counted.
func TestBacklog(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		t.Skip("the system does not tell")
	}
	server, client := pair(t, Config{}, Config{})
	frame := AppendFrame(nil, OpBinary, make([]byte, 64<<10))
	taken := 0
	for server.Unsent() == 0 { // until the kernels on both sides are full
		n, err := server.WriteShared(frame)
		if err != nil {
			t.Fatal(err)
		}
		taken += n
	}
	if b := server.Backlog(); b <= server.Unsent() || b > taken {
		t.Errorf("backlog is %d, with %d of %d bytes unsent", b, server.Unsent(), taken)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			if _, err := client.Read(); err != nil {
				client.Close(StatusNormal, "")
				return
			}
		}
	})
	testkit.Eventually(t, "a peer that reads leaves no backlog", func() bool { return server.Backlog() == 0 })
	server.Close(StatusNormal, "")
	wg.Wait()
	if b := server.Backlog(); b != 0 {
		t.Errorf("a closed connection has a backlog of %d", b)
	}
}
