package pgtest

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tidewire/tidewire/internal/embedpg"
)

// FreezeServer makes a server hang until thaw is called or the test ends.
func FreezeServer(t testing.TB, server *embedpg.Server) (thaw func()) {
	t.Helper()
	if err := server.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	thaw = sync.OnceFunc(func() {
		if err := server.Thaw(context.Background()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(thaw)
	return thaw
}

// Proxy forwards bytes between clients and a server's socket, until Swallow.
type Proxy struct {
	Port     int // on 127.0.0.1, or on its Machine
	swallows atomic.Bool
}

// StartProxy starts a proxy that ends with the test.
func StartProxy(t testing.TB, network, address string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveProxy(t, l, network, address)
}

func serveProxy(t testing.TB, l net.Listener, network, address string) *Proxy {
	p := &Proxy{Port: l.Addr().(*net.TCPAddr).Port}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { l.Close(); stop(); running.Wait() })
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial(network, address)
			if err != nil {
				client.Close()
				continue
			}
			context.AfterFunc(ctx, func() { client.Close(); server.Close() })
			running.Go(func() { p.pass(client, server) })
			running.Go(func() { p.pass(server, client) })
		}
	})
	return p
}

// Swallow makes the proxy drop all bytes from now on, in both directions, while the connections stay open.
func (p *Proxy) Swallow() { p.swallows.Store(true) }

func (p *Proxy) pass(from, to net.Conn) {
	defer func() {
		if !p.swallows.Load() {
			to.Close()
		}
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if p.swallows.Load() {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil && err != io.ErrShortWrite {
			return
		}
	}
}
