package fault

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/testkit"
)

func TestProxyPassesHalfCloses(t *testing.T) {
	f := newFixture(t)
	client, target := f.pair()
	send(t, client, "request")
	ok(t, client.CloseWrite())
	receive(t, target, "request")
	isEnd(t, target)
	pass(t, target, client, "answer")
	ok(t, target.CloseWrite())
	isEnd(t, client)
}

func TestProxyPassesResets(t *testing.T) {
	f := newFixture(t)
	client, target := f.pair()
	closeConn(client, true)
	isReset(t, target)
	client, target = f.pair()
	closeConn(target, true)
	isReset(t, client)
	client, target = f.pair() // and after a half-close, as soon as the receiver is written to
	ok(t, target.CloseWrite())
	isEnd(t, client)
	closeConn(target, true)
	testkit.Eventually(t, "a write fails", func() bool {
		_, err := io.WriteString(client, "x")
		return err != nil
	})
}

// TestProxyDelays: with a delay of an hour nothing arrives, and all is taken: more than the kernel's buffers hold.
func TestProxyDelays(t *testing.T) {
	f := newFixture(t)
	client, target := f.pair()
	f.Delay(time.Hour)
	_, err := client.Write(make([]byte, 32<<20))
	ok(t, err)
	send(t, target, "answer")
	f.awaitQueued(FromTarget, len("answer"))
	f.Delay(0)
	send(t, client, "not before the rest")
	send(t, target, "nor this")
	f.awaitQueued(FromTarget, len("answer"+"nor this"))
	f.Reset()
	isReset(t, client)
	isReset(t, target)
	f.pair()
}

func TestProxyStalls(t *testing.T) {
	f := newFixture(t)
	client, target := f.pair()
	f.Stall()
	send(t, client, "request")
	send(t, target, "answer")
	ok(t, client.CloseWrite())
	f.Resume()
	receive(t, target, "request")
	receive(t, client, "answer")
	isEnd(t, target)

	client, target = f.pair()
	f.Stall()
	send(t, client, "request")
	send(t, target, "answer")
	f.Reset()
	isReset(t, client)
	isReset(t, target)
}

func TestProxyStallsOneWay(t *testing.T) {
	for _, d := range []Direction{ToTarget, FromTarget} {
		f := newFixture(t)
		client, target := f.pair()
		from, to := client, target
		if d == FromTarget {
			from, to = target, client
		}
		f.StallOneWay(d)
		send(t, from, "stalled")
		pass(t, to, from, "the other way")
		f.Resume()
		receive(t, to, "stalled")
		f.StallOneWay(d)
		send(t, from, "stalled")
		pass(t, to, from, "the other way")
		f.Reset()
		isReset(t, to)
		isReset(t, from)
	}
}

// TestProxyStopsSender: a sender blocks if the proxy is stalled or the receiver does not read. The deadline only ends a write that never does.
func TestProxyStopsSender(t *testing.T) {
	for _, stall := range []bool{true, false} {
		f := newFixture(t)
		client, _ := f.pair()
		if stall {
			f.Stall()
		}
		ok(t, client.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
		if _, err := client.Write(make([]byte, 64<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		for _, l := range f.current() {
			f.mu.Lock()
			queued := l.pipes[ToTarget].queued
			f.mu.Unlock()
			if queued > maxOverdue+chunkSize {
				t.Errorf("%d bytes are queued", queued)
			}
		}
	}
}

func TestProxyRefuses(t *testing.T) {
	f := newFixture(t)
	client, target := f.pair()
	f.Refuse(true)
	for range 3 {
		f.dialInVain()
	}
	pass(t, client, target, "still there")
	f.Refuse(false)
	f.pair()
}

// TestProxyConcurrently: all methods at a time, while clients come and go.
func TestProxyConcurrently(t *testing.T) {
	f := newFixture(t)
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case conn := <-f.accepted:
				running.Go(func() { defer conn.Close(); io.Copy(conn, conn) })
			case <-stop:
				return
			}
		}
	})
	attempts := make(chan int)
	var clients, changes sync.WaitGroup
	for i := range 4 {
		clients.Go(func() {
			for range 25 {
				attempts <- i
				conn, err := net.Dial("tcp", f.Addr())
				if err != nil {
					continue
				}
				conn.SetDeadline(time.Now().Add(patience))
				conn.Write(make([]byte, 1000*i))
				conn.(*net.TCPConn).CloseWrite()
				io.Copy(io.Discard, conn)
				conn.Close()
			}
		})
	}
	for _, change := range []func(){
		func() { f.Delay(time.Millisecond); f.Delay(0) },
		func() { f.Stall(); f.Resume() },
		func() { f.StallOneWay(FromTarget); f.Resume() },
		func() { f.Refuse(true); f.Refuse(false) },
		f.Reset,
	} {
		changes.Go(func() {
			for range attempts {
				change()
			}
		})
	}
	clients.Wait()
	close(attempts)
	changes.Wait()
	client := f.dial()
	pass(t, client, client, "echo")
	close(stop)
	f.Reset()
	running.Wait()
}
