package pgtest

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tidewire/tidewire/internal/embedpg"
)

// FreezeServer stops a server with all its processes, as a machine does that hangs: its sockets stay open, and
// nobody answers. Thaw has it go on, as the end of the test does.
func FreezeServer(t testing.TB, server *embedpg.Server) (thaw func()) {
	t.Helper()
	postmaster := server.PID()
	if err := syscall.Kill(postmaster, syscall.SIGSTOP); err != nil { // first: it starts no more
		t.Fatal(err)
	}
	pids := append(childrenOf(t, postmaster), postmaster)
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGSTOP) // it may have ended
	}
	thaw = sync.OnceFunc(func() {
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGCONT)
		}
	})
	t.Cleanup(thaw)
	return thaw
}

// childrenOf are the processes that a process has started.
func childrenOf(t testing.TB, parent int) (pids []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		t.Skip("needs /proc")
	}
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		_, after, _ := strings.Cut(string(text), ") ") // the name before may have spaces
		if fields := strings.Fields(after); len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

// Proxy passes bytes on between clients and a server's socket, until it swallows them.
type Proxy struct {
	Port     int // on 127.0.0.1
	swallows atomic.Bool
}

// StartProxy starts a proxy that ends with the test.
func StartProxy(t testing.TB, network, address string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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

// Swallow has all that is sent from now on get lost, in both directions, on connections that stay open.
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
