package limits

import (
	"context"
	"errors"
	"net"
)

// Listener counts the sockets of l. It closes those that are too many at once, and accepts the next ones. TLS comes on top of it, so that sockets count which
// do not finish the handshake.
func (r *Registry) Listener(l net.Listener) net.Listener { return &listener{l, r} }

type listener struct {
	net.Listener
	registry *Registry
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer := parseAddr(conn.RemoteAddr().String())
		counted, why := l.registry.accept(peer, func() { reset(conn) })
		if why != None {
			reset(conn)
			l.registry.log.Warn(peer, "a connection was closed at once: there are too many", "limit", why)
			continue
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			return &socket{TCPConn: tcp, counted: counted}, nil
		}
		return &wrapped{Conn: conn, counted: counted}, nil
	}
}

// reset closes a socket, so that the system keeps nothing of it.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	conn.Close()
}

// socket is a counted TCP socket: until it is closed, whoever closes it.
type socket struct {
	*net.TCPConn
	counted *Conn
}

// Close implements net.Conn.
func (s *socket) Close() error {
	s.counted.Close()
	return s.TCPConn.Close()
}

// PlainSocket lets package websocket use the socket itself.
func (s *socket) PlainSocket() *net.TCPConn { return s.TCPConn }

func (s *socket) conn() *Conn { return s.counted }

// wrapped is a counted connection of another type, such as TLS.
type wrapped struct {
	net.Conn
	counted *Conn
}

// Close implements net.Conn.
func (w *wrapped) Close() error {
	w.counted.Close()
	return w.Conn.Close()
}

// CloseWrite shuts down the sending side.
func (w *wrapped) CloseWrite() error {
	if half, ok := w.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

func (w *wrapped) conn() *Conn { return w.counted }

type contextKey struct{}

// ConnContext is for http.Server: requests find the Conn of their socket in their context.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	for c != nil {
		if counted, ok := c.(interface{ conn() *Conn }); ok {
			return context.WithValue(ctx, contextKey{}, counted.conn())
		}
		secure, ok := c.(interface{ NetConn() net.Conn }) // TLS on a counted socket
		if !ok {
			break
		}
		c = secure.NetConn()
	}
	return ctx
}

// FromContext returns the Conn of a request's socket, or nil.
func FromContext(ctx context.Context) *Conn {
	c, _ := ctx.Value(contextKey{}).(*Conn)
	return c
}
