package bench

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/url"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tidewire/tidewire/websocket"
)

// rawSocket is a non-blocking socket outside of the Go runtime's poller, with TLS or without.
type rawSocket struct {
	fd   int
	over *rawTLS // nil without TLS
}

// dialRaw makes the WebSocket handshake and removes the socket from the Go
// runtime's poller. config is for wss URLs; nil trusts what the system trusts.
func dialRaw(ctx context.Context, rawURL string, config *tls.Config) (s rawSocket, leftover []byte, err error) {
	return dialRawBy(ctx, rawURL, config, websocket.ClientHandshake)
}

// dialRawBy is dialRaw with a handshake of its own.
func dialRawBy(ctx context.Context, rawURL string, config *tls.Config, handshake func(net.Conn, *url.URL) ([]byte, error)) (s rawSocket, leftover []byte, err error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return s, nil, err
	}
	var d net.Dialer
	tcp, err := d.DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return s, nil, err
	}
	defer tcp.Close()
	tcp.SetDeadline(time.Now().Add(30 * time.Second))
	conn := tcp
	if u.Scheme == "wss" {
		s.over = newRawTLS(tcp, u.Hostname(), config)
		conn = s.over.conn
	}
	if leftover, err = handshake(conn, u); err != nil {
		return s, nil, err
	}
	file, err := tcp.(*net.TCPConn).File()
	if err != nil {
		return s, nil, err
	}
	defer file.Close()
	if s.fd, err = unix.Dup(int(file.Fd())); err != nil {
		return s, nil, err
	}
	if s.over != nil {
		s.over.takeOver(s.fd)
	}
	unix.CloseOnExec(s.fd)
	return s, leftover, unix.SetNonblock(s.fd, true)
}

// read reads once. With TLS it reads records until b is full: call it again while buffered reports true, because the
// poller knows nothing of those.
func (s rawSocket) read(b []byte) (int, error) {
	if s.over == nil {
		return unix.Read(s.fd, b)
	}
	return s.over.read(b)
}

func (s rawSocket) buffered() bool { return s.over != nil && s.over.full }

// write writes once. What it did not take has to be offered again, unchanged.
func (s rawSocket) write(b []byte) (int, error) {
	if s.over == nil {
		return unix.Write(s.fd, b)
	}
	return s.over.write(b)
}

func (s rawSocket) close() { unix.Close(s.fd) }

// rawTLS is TLS on a non-blocking socket. It is the net.Conn below package tls, whose reads may end with EAGAIN, which
// package tls takes as a temporary error.
type rawTLS struct {
	net.Conn // during the handshake
	conn     *tls.Conn
	fd       int // 0 during the handshake
	out      []byte
	accepted int  // bytes of the caller that are in out
	full     bool // the last read may have left records
}

func newRawTLS(tcp net.Conn, host string, config *tls.Config) *rawTLS {
	if config == nil {
		config = &tls.Config{}
	}
	config = config.Clone()
	config.ServerName = cmp.Or(config.ServerName, host)
	config.DynamicRecordSizingDisabled = true
	t := &rawTLS{Conn: tcp}
	t.conn = tls.Client(t, config)
	return t
}

func (t *rawTLS) takeOver(fd int) { t.fd = fd }

// Read implements net.Conn for package tls.
func (t *rawTLS) Read(b []byte) (int, error) {
	if t.fd == 0 {
		return t.Conn.Read(b)
	}
	n, err := unix.Read(t.fd, b)
	if err == nil && n == 0 {
		err = unix.ECONNRESET
	}
	return max(n, 0), err
}

// Write implements net.Conn for package tls.
func (t *rawTLS) Write(b []byte) (int, error) {
	if t.fd == 0 {
		return t.Conn.Write(b)
	}
	t.out = append(t.out, b...)
	return len(b), nil
}

func (t *rawTLS) read(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var k int
		k, err = t.conn.Read(b[n:])
		n += k
	}
	if t.full = err == nil; n > 0 {
		err = nil
	}
	return n, err
}

// write encrypts b and reports it as written when the socket has taken all of it.
func (t *rawTLS) write(b []byte) (int, error) {
	if t.accepted == 0 {
		n, err := t.conn.Write(b)
		if err != nil {
			return 0, err
		}
		t.accepted = n
	}
	n, err := unix.Write(t.fd, t.out)
	if n > 0 {
		t.out = t.out[:copy(t.out, t.out[n:])]
	}
	if err != nil || len(t.out) > 0 {
		return 0, err
	}
	accepted := t.accepted
	t.accepted = 0
	return accepted, nil
}
