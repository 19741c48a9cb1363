package pg

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// noticeDeath has the system look whether the other end of an idle connection is there still: a host that is gone
// is noticed after three seconds. The server's process may be as slow as it likes, for the system answers.
//
// TCP_USER_TIMEOUT would do the same where data are under way, but it also ends connections whose server has not read
// for so long, because it waits for a lock in the middle of COPY. There the watch asks the system, with dead.
func noticeDeath(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		// Without it, the connection works as well.
		tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 2})
	}
}

// socket is a connection that the watch may close.
type socket struct {
	net.Conn
	of      *hosts
	address string

	timeline uint32 // of the primary at the other end, or 0; guarded by hosts.mu
	lost     atomic.Pointer[lostError]
}

// register has the watch know of a connection, and begins it.
func (h *hosts) register(conn net.Conn, address string) *socket {
	s := &socket{Conn: conn, of: h, address: address}
	_, tcp := conn.(*net.TCPConn)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sockets[s] = struct{}{}
	if !h.watched && (h.several() || tcp) {
		h.watched = true
		go h.watch()
	}
	return s
}

// Read implements net.Conn.
func (s *socket) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	return n, s.why(err)
}

// Write implements net.Conn.
func (s *socket) Write(p []byte) (int, error) {
	n, err := s.Conn.Write(p)
	return n, s.why(err)
}

func (s *socket) why(err error) error {
	if lost := s.lost.Load(); err != nil && lost != nil {
		return lost
	}
	return err
}

// Close implements net.Conn.
func (s *socket) Close() error {
	s.of.mu.Lock()
	delete(s.of.sockets, s)
	if len(s.of.sockets) == 0 {
		select {
		case s.of.emptied <- struct{}{}:
		default:
		}
	}
	s.of.mu.Unlock()
	return s.Conn.Close()
}

// end closes a connection of which nothing is to be expected any more: what waits on it fails at once.
func (s *socket) end(why string) {
	s.lost.CompareAndSwap(nil, &lostError{why})
	s.Conn.Close()
}

// socketOf returns the socket below a connection, or nil.
func socketOf(conn *pgconn.PgConn) *socket {
	for c := conn.Conn(); c != nil; {
		switch under := c.(type) {
		case *socket:
			return under
		case interface{ NetConn() net.Conn }: // as that of TLS has
			c = under.NetConn()
		default:
			return nil
		}
	}
	return nil
}
