package multinode

import (
	"io"
	"net"
	"sync"
)

// forwarder accepts TCP connections on loopback and forwards them to a Unix socket: the private PostgreSQL has no TCP port, and nodes
// with a network of their own reach it through a fault.Proxy, which needs one. While it is open, each user of this machine can use this
// PostgreSQL, which has only the data of the run.
type forwarder struct {
	listener net.Listener
	socket   string
	running  sync.WaitGroup

	mu    sync.Mutex        // guards the field below
	conns map[net.Conn]bool // nil: closed
}

func forward(socket string) (*forwarder, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &forwarder{listener: listener, socket: socket, conns: make(map[net.Conn]bool)}
	f.running.Go(f.accept)
	return f, nil
}

func (f *forwarder) addr() string { return f.listener.Addr().String() }

// close ends all connections, and returns when no goroutine is left.
func (f *forwarder) close() error {
	err := f.listener.Close()
	f.mu.Lock()
	for c := range f.conns {
		c.Close()
	}
	f.conns = nil
	f.mu.Unlock()
	f.running.Wait()
	return err
}

func (f *forwarder) accept() {
	for {
		client, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.running.Go(func() { f.join(client) })
	}
}

// join passes bytes both ways until one side ends.
func (f *forwarder) join(client net.Conn) {
	server, err := net.Dial("unix", f.socket)
	if err != nil {
		client.Close()
		return
	}
	if !f.keep(client, server) {
		return
	}
	var ways sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		ways.Go(func() {
			io.Copy(way[0], way[1])
			client.Close()
			server.Close()
		})
	}
	ways.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, client)
	delete(f.conns, server)
}

// keep remembers connections for close. After close it ends them, and reports false.
func (f *forwarder) keep(conns ...net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range conns {
		if f.conns == nil {
			c.Close()
			continue
		}
		f.conns[c] = true
	}
	return f.conns != nil
}
