package fault

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidewire/tidewire/internal/testkit"
)

// fixture is a proxy with a target whose connections the test holds.
type fixture struct {
	*Proxy
	t        *testing.T
	accepted chan *net.TCPConn
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	p, err := NewProxy(listener.Addr().String())
	ok(t, err)
	f := &fixture{Proxy: p, t: t, accepted: make(chan *net.TCPConn, 100)}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			f.accepted <- conn.(*net.TCPConn)
		}
	})
	t.Cleanup(func() {
		ok(t, p.Close())
		listener.Close()
		accepting.Wait()
		goleak.VerifyNone(t, leaks)
		for len(f.accepted) > 0 {
			(<-f.accepted).Close()
		}
	})
	return f
}

// dial connects to the proxy.
func (f *fixture) dial() *net.TCPConn {
	f.t.Helper()
	conn, err := net.Dial("tcp", f.Addr())
	ok(f.t, err)
	return f.watch(conn.(*net.TCPConn))
}

// awaitQueued waits until the only connection has that many bytes queued: a delay applies when the proxy reads.
func (f *fixture) awaitQueued(d Direction, bytes int) {
	f.t.Helper()
	testkit.Eventually(f.t, "the proxy has read all", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		queued := 0
		for l := range f.links {
			queued += l.pipes[d].queued
		}
		return queued == bytes
	})
}

// dialInVain fails the test unless a new connection is reset. The RST may come before the dial returns.
func (f *fixture) dialInVain() {
	f.t.Helper()
	conn, err := net.Dial("tcp", f.Addr())
	if err == nil {
		isReset(f.t, f.watch(conn.(*net.TCPConn)))
	} else if !errors.Is(err, syscall.ECONNRESET) {
		f.t.Fatal(err)
	}
}

// target returns the target's end of the next connection.
func (f *fixture) target() *net.TCPConn {
	f.t.Helper()
	select {
	case conn := <-f.accepted:
		return f.watch(conn)
	case <-time.After(patience):
		f.t.Fatal("the target gets no connection")
		return nil
	}
}

func (f *fixture) watch(conn *net.TCPConn) *net.TCPConn {
	f.t.Helper()
	ok(f.t, conn.SetDeadline(time.Now().Add(patience)))
	f.t.Cleanup(func() { conn.Close() })
	return conn
}

// pair returns both ends of a connection that is open.
func (f *fixture) pair() (client, target *net.TCPConn) {
	f.t.Helper()
	client = f.dial()
	target = f.target()
	pass(f.t, client, target, "there")
	pass(f.t, target, client, "back")
	return client, target
}

func pass(t *testing.T, from, to net.Conn, text string) {
	t.Helper()
	send(t, from, text)
	receive(t, to, text)
}

func send(t *testing.T, to net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(to, text)
	ok(t, err)
}

func receive(t *testing.T, from net.Conn, text string) {
	t.Helper()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(from, got); err != nil || string(got) != text {
		t.Fatalf("%q, %v; want %q", got, err, text)
	}
}

// isReset fails the test unless the connection ends by RST, and no byte before it.
func isReset(t *testing.T, conn net.Conn) {
	t.Helper()
	if n, err := conn.Read(make([]byte, 100)); n > 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("%d bytes, %v", n, err)
	}
}

func isEnd(t *testing.T, conn net.Conn) {
	t.Helper()
	if n, err := conn.Read(make([]byte, 100)); n > 0 || err != io.EOF {
		t.Fatalf("%d bytes, %v", n, err)
	}
}
