package websocket

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/testkit"
)

// ledger is a Memory that keeps the sums.
type ledger struct {
	t                *testing.T
	assembly, output atomic.Int64
	calls            atomic.Int64
}

func (l *ledger) add(sum *atomic.Int64, delta int) {
	l.calls.Add(1)
	if n := sum.Add(int64(delta)); n < 0 || delta == 0 {
		l.t.Errorf("told %d, which makes %d", delta, n)
	}
}
func (l *ledger) Assembly(delta int) { l.add(&l.assembly, delta) }
func (l *ledger) Output(delta int)   { l.add(&l.output, delta) }

func TestMemory_assembly(t *testing.T) {
	t.Parallel()
	l := &ledger{t: t}
	server, socket := rawPair(t, Config{Memory: l})
	var wg sync.WaitGroup
	wg.Go(func() { echo(server) })
	const size = 600 << 10
	message := frame(true, OpBinary, strings.Repeat("x", size))
	if _, err := socket.Write(message[:size]); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the part is counted", func() bool { return l.assembly.Load() >= size })
	if n := l.assembly.Load(); n > 4*size {
		t.Errorf("%d bytes for a message of which %d have arrived", n, size)
	}
	if _, err := socket.Write(message[size:]); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, socket, size); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "nothing is counted any more", func() bool { return l.assembly.Load() == 0 })
	if _, err := socket.Write(message[:size]); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the next part is counted", func() bool { return l.assembly.Load() >= size })
	socket.Close()
	wg.Wait()
	if a, o := l.assembly.Load(), l.output.Load(); a != 0 || o != 0 {
		t.Errorf("at the end %d and %d", a, o)
	}
}

func TestMemory_output(t *testing.T) {
	t.Parallel()
	l := &ledger{t: t}
	server, socket := rawPair(t, Config{Memory: l, MaxUnsent: 64 << 20})
	const size = 32 << 20
	if err := server.Queue(OpBinary, make([]byte, freeOutput/2+1)); err != nil { // its buffer has the next power of two
		t.Fatal(err)
	}
	if n := l.output.Load(); n != 0 {
		t.Errorf("%d bytes are reported for a message of %d", n, freeOutput/2+1)
	}
	if err := server.Queue(OpBinary, make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := server.Flush(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "what the peer does not take is counted", func() bool { return l.output.Load() >= size })
	small := make([]byte, 100)
	for range 1000 {
		if err := server.Queue(OpBinary, small); err != nil {
			t.Fatal(err)
		}
	}
	if n := l.output.Load(); n < size+1000*100 {
		t.Errorf("%d bytes counted, with 1,000 answers more", n)
	}
	if err := server.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, socket, size+1000*102+freeOutput/2+1); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "nothing is counted any more", func() bool { return l.output.Load() == 0 })
	if err := server.Queue(OpBinary, make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := server.Flush(); err != nil {
		t.Fatal(err)
	}
	server.Abort()
	if n := l.output.Load(); n != 0 {
		t.Errorf("%d bytes after Abort", n)
	}
}

// TestEvict_assembly: Read releases the buffer of an incomplete message before
// the peer does anything.
func TestEvict_assembly(t *testing.T) {
	t.Parallel()
	l := &ledger{t: t}
	server, socket := rawPair(t, Config{Memory: l, CloseTimeout: time.Hour})
	if _, err := socket.Write(frame(true, OpBinary, strings.Repeat("x", 600<<10))[:500<<10]); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := readAll(server)
		ended <- err
	}()
	testkit.Eventually(t, "the part is counted", func() bool { return l.assembly.Load() >= 500<<10 })
	evicted := make(chan error, 1)
	go func() { evicted <- server.Evict(StatusTryAgainLater, "short of memory") }()
	testkit.Eventually(t, "nothing is counted", func() bool { return l.assembly.Load() == 0 })
	wantEvicted(t, socket)
	if err := <-evicted; err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Errorf("Read: %v", err)
	}
}

// TestEvict_whileHandled: messages that Read has returned are in use, and are
// counted, until the next Read. It does not wait for the peer.
func TestEvict_whileHandled(t *testing.T) {
	t.Parallel()
	for name, compression := range map[string]*Compression{"plain": nil, "compressed": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &ledger{t: t}
			server, client := pair(t, Config{Memory: l, CloseTimeout: time.Hour, Compression: compression}, Config{Compression: compression})
			want := strings.Repeat("x", 600<<10)
			send(t, client, OpText, want)
			msgs, err := server.Read()
			if err != nil || len(msgs) != 1 {
				t.Fatal(len(msgs), err)
			}
			evicted := make(chan error, 1)
			go func() { evicted <- server.Evict(StatusTryAgainLater, "short of memory") }()
			_, err = client.Read()
			wantClose(t, err, StatusTryAgainLater, "short of memory")
			if n := l.assembly.Load(); n < 600<<10 {
				t.Errorf("%d bytes counted, with a message of %d in use", n, len(want))
			}
			if string(msgs[0].Payload) != want {
				t.Error("a payload in use was changed")
			}
			if _, err := server.Read(); !errors.Is(err, ErrClosed) {
				t.Errorf("Read: %v", err)
			}
			if n := l.assembly.Load(); n != 0 {
				t.Errorf("%d bytes counted after Read", n)
			}
			select {
			case err := <-evicted:
				t.Errorf("Read waited for the peer: %v", err)
			default:
			}
			client.Abort()
			<-evicted
		})
	}
}

func wantEvicted(t *testing.T, socket socketOf) {
	t.Helper()
	got, err := io.ReadAll(socket)
	if want := AppendClose(nil, StatusTryAgainLater, "short of memory"); !bytes.Equal(got, want) {
		t.Errorf("peer got %q, %v", got, err)
	}
	socket.Close()
}

// TestEvict: queued messages are dropped at once, Read ends soon, and a peer
// that reads receives the reason.
func TestEvict(t *testing.T) {
	t.Parallel()
	for name, queued := range map[string]int{"idle": 0, "slow": 3 << 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &ledger{t: t}
			server, socket := rawPair(t, Config{Memory: l, MaxUnsent: 64 << 20, CloseTimeout: time.Hour})
			for range 10 {
				if err := server.Queue(OpBinary, make([]byte, queued)); err != nil {
					t.Fatal(err)
				}
				server.Flush()
			}
			ended := make(chan error, 1)
			go func() {
				_, err := readAll(server)
				ended <- err
			}()
			evicted := make(chan error, 1)
			go func() { evicted <- server.Evict(StatusTryAgainLater, "short of memory") }()
			testkit.Eventually(t, "the queue is dropped", func() bool { return l.output.Load() < 32<<20 })
			if queued > 0 { // a peer that does not read
				if err := <-evicted; err != nil {
					t.Error(err)
				}
				if err := <-ended; err == nil {
					t.Error("Read goes on")
				}
			} else {
				want := AppendClose(nil, StatusTryAgainLater, "short of memory")
				got := make([]byte, len(want)+20)
				n, err := io.ReadAtLeast(socket, got, len(want)+20)
				if !bytes.HasSuffix(got[:n], want) {
					t.Errorf("peer got %x, %v", got[:n], err)
				}
				if err := <-ended; err == nil {
					t.Error("Read goes on")
				}
				<-evicted
			}
			if a, o := l.assembly.Load(), l.output.Load(); a != 0 || o != 0 {
				t.Errorf("at the end %d and %d", a, o)
			}
			if err := server.Evict(StatusTryAgainLater, ""); !errors.Is(err, ErrClosed) {
				t.Errorf("again: %v", err)
			}
		})
	}
}
