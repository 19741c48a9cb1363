package pg

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// enableKeepAlive turns on TCP keep-alive, which detects after three seconds that the host at the other end of an idle
// connection is gone. A slow server process does not matter, because its kernel answers.
//
// TCP_USER_TIMEOUT would detect the same for unacknowledged data. But it would also end connections whose server does
// not read for that long, because it waits for a lock in the middle of COPY. For such connections the watch calls dead.
func enableKeepAlive(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		// The error is ignored: the connection works without keep-alive.
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

// register adds a connection to those that the watch looks after, and starts the watch.
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

// end closes a connection that will not answer any more. Pending reads and writes fail at once, with why.
func (s *socket) end(why string) {
	s.lost.CompareAndSwap(nil, &lostError{why})
	s.Conn.Close()
}

// socketOf returns the socket below a connection, or nil.
func socketOf(conn *pgconn.PgConn) *socket { return under[*socket](conn) }

// under returns the connection of that type below one, or its zero value.
func under[T net.Conn](conn *pgconn.PgConn) (none T) {
	for c := conn.Conn(); c != nil; {
		if found, ok := c.(T); ok {
			return found
		}
		above, ok := c.(interface{ NetConn() net.Conn }) // as that of TLS has
		if !ok {
			return none
		}
		c = above.NetConn()
	}
	return none
}
