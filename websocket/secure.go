package websocket

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
)

const (
	// maxRecord is the most bytes of one TLS record that a Conn writes. Encrypted, it fits into a
	// buffer of 16 KiB, with any cipher suite.
	maxRecord = maxSealed - 128
	// maxSealed is the size of the buffer of an encrypted record that the socket has not taken, in bytes.
	maxSealed = 16 << 10
)

// NewTLSListener returns a listener for http.Server.Serve that accepts TLS connections from l, as tls.NewListener
// does. In addition, Upgrade makes a Conn of them that waits in the runtime and not in package tls: it holds no read
// buffer while it is idle, a flush needs no goroutine, and frames that fit into one record leave in one. A client that
// sends plain HTTP gets an answer that says so.
//
// The listener changes config's NextProtos only if there are none: WebSocket needs HTTP/1.1.
func NewTLSListener(l net.Listener, config *tls.Config) net.Listener {
	return &tlsListener{l, withHTTP1(config)}
}

// withHTTP1 returns a copy of config that offers HTTP/1.1, unless it offers something else. Records are as large as
// possible from the start: a message is useless before its last byte.
func withHTTP1(config *tls.Config) *tls.Config {
	config = config.Clone()
	if len(config.NextProtos) == 0 {
		config.NextProtos = []string{"http/1.1"}
	}
	config.DynamicRecordSizingDisabled = true
	return config
}

type tlsListener struct {
	net.Listener
	config *tls.Config
}

// Accept implements net.Listener. The handshake comes with the first Read.
func (l *tlsListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return tls.Server(newSecureSocket(conn, true), l.config), nil
}

// secureSocket is the socket of a TLS connection. After takeOver, the Read and Write that package tls calls never
// block: Read returns EAGAIN, after which package tls can go on (EAGAIN is a temporary net.Error), and Write keeps
// what the socket does not take. The Conn waits for the socket, and calls flush when there is room.
type secureSocket struct {
	*net.TCPConn
	outer  net.Conn // what the listener has accepted: the socket, or a type that has something to do when it is closed
	raw    syscall.RawConn
	opened bool // the first bytes were examined
	direct bool // takeOver was called

	// Of the reading goroutine, during Conn.tryRead.
	fd    uintptr
	empty bool // the last read took everything that the socket had
	// answered: package tls has written during a read, and the socket may not have taken all of it.
	answered bool

	mu      sync.Mutex
	sealed  *buffer          // records that the socket has not taken, or nil
	onWrite func(fd uintptr) // tryWrite, bound once
	out     []byte           // what it is to write
	n       int
	err     error

	// Of the owner of Conn.writing, during flush.
	onRoom   func(fd uintptr) bool // tryFlush, bound once
	patient  bool
	flushErr error
}

// newSecureSocket returns conn itself if it is no TCP socket, or if the system offers no direct access to it.
func newSecureSocket(conn net.Conn, server bool) net.Conn {
	tcp, ok := conn.(*net.TCPConn)
	if plain, is := conn.(interface{ PlainSocket() *net.TCPConn }); is {
		tcp, ok = plain.PlainSocket(), true
	}
	if !ok {
		return conn
	}
	raw := rawConn(tcp)
	if raw == nil {
		return conn
	}
	s := &secureSocket{TCPConn: tcp, outer: conn, raw: raw, opened: !server}
	s.onWrite, s.onRoom = s.tryWrite, s.tryFlush
	return s
}

// Close implements net.Conn.
func (s *secureSocket) Close() error { return s.outer.Close() }

// NetConn returns what the listener has accepted.
func (s *secureSocket) NetConn() net.Conn { return s.outer }

// Read implements net.Conn for package tls.
func (s *secureSocket) Read(b []byte) (int, error) {
	switch {
	case s.direct:
		return s.readDirect(b)
	case s.opened:
		return s.TCPConn.Read(b)
	}
	n, err := s.TCPConn.Read(b)
	if s.opened = n > 0; s.opened && looksLikeHTTP(b[:n]) {
		s.explainTLS()
		return 0, errPlainHTTP
	}
	return n, err
}

// readDirect reads once, without waiting. A read that did not fill b has emptied the socket, so the next one needs no
// system call.
func (s *secureSocket) readDirect(b []byte) (int, error) {
	if s.empty {
		return 0, syscall.EAGAIN
	}
	n, err := sysRead(s.fd, b)
	if err == nil && n == 0 {
		return 0, io.EOF
	}
	s.empty = n < len(b)
	return n, err
}

// Write implements net.Conn for package tls.
func (s *secureSocket) Write(b []byte) (int, error) {
	if !s.direct {
		return s.TCPConn.Write(b)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	if s.sealed == nil {
		s.out, s.n, s.err = b, 0, nil
		// Not raw.Write: the goroutine that waits for room holds its lock.
		err := s.raw.Control(s.onWrite)
		s.out = nil
		if err = errors.Join(err, s.err); err != nil {
			return s.n, err
		}
		n = s.n
	}
	s.keep(b[n:])
	return len(b), nil
}

func (s *secureSocket) tryWrite(fd uintptr) {
	if s.n, s.err = sysWrite(fd, s.out); s.err != nil && again(s.err) {
		s.err = nil
	}
}

// keep copies what the socket has not taken. s.mu is held.
func (s *secureSocket) keep(rest []byte) {
	if len(rest) == 0 {
		return
	}
	old := s.sealed
	if old == nil {
		s.sealed = getBuffer(max(len(rest), maxSealed))
		s.sealed.b = s.sealed.b[:0]
	} else if have := len(old.b); have+len(rest) > cap(old.b) {
		s.sealed = getBuffer(have + len(rest))
		s.sealed.b = append(s.sealed.b[:0], old.b...)
		old.put()
	}
	s.sealed.b = append(s.sealed.b, rest...)
}

// takeOver ends the blocking of Read and Write. Nobody else may use the connection at that time.
func (s *secureSocket) takeOver() { s.direct = true }

// waiting is how many encrypted bytes the socket has not taken.
func (s *secureSocket) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sealed == nil {
		return 0
	}
	return len(s.sealed.b)
}

// flush writes the encrypted bytes once; if patient, it first waits for room. Only the owner of Conn.writing calls it.
func (s *secureSocket) flush(patient bool) error {
	s.patient, s.flushErr = patient, nil
	if err := s.raw.Write(s.onRoom); err != nil {
		return err
	}
	return s.flushErr
}

// tryFlush writes once. If there is no room and the caller is patient, it lets the runtime wait for some.
func (s *secureSocket) tryFlush(fd uintptr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sealed == nil {
		return true
	}
	n, err := sysWrite(fd, s.sealed.b)
	switch {
	case err != nil && again(err):
		return !s.patient
	case err != nil:
		s.flushErr = err
	case n == len(s.sealed.b):
		s.sealed.put()
		s.sealed = nil
	default:
		s.sealed.b = s.sealed.b[:copy(s.sealed.b, s.sealed.b[n:])]
	}
	return true
}

// looksLikeHTTP reports whether the first bytes of a connection are those of an HTTP request.
func looksLikeHTTP(b []byte) bool {
	for _, method := range []string{"GET /", "HEAD ", "POST ", "PUT /", "DELET", "OPTIO", "PATCH"} {
		if len(b) >= len(method) && string(b[:len(method)]) == method {
			return true
		}
	}
	return false
}

var errPlainHTTP = errors.New("client sent plain HTTP")

// explainTLS answers a client that sent plain HTTP. It reads the rest of the request, until the deadline of the
// handshake at the latest: the system would reset a connection with unread bytes, and the answer with it.
func (s *secureSocket) explainTLS() {
	const answer = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n" +
		"this port speaks TLS: begin the address with https:// or wss://\n"
	if _, err := io.WriteString(s.TCPConn, answer); err == nil && s.TCPConn.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(s.TCPConn, 64<<10)) // it ends the connection either way
	}
}

// sendSecure encrypts parts and writes them, in records of up to maxRecord bytes, until the socket takes no more. It
// first writes the bytes that are encrypted already; if patient, after waiting for room. n is the number of bytes of
// parts that are encrypted: they cannot be withdrawn, and countSealed counts those that the socket has not taken.
func (c *Conn) sendSecure(parts [][]byte, patient bool) (n int, err error) {
	s := c.secure
	if s.waiting() > 0 {
		if err := s.flush(patient); err != nil {
			return 0, err
		}
	}
	g := gather{}
	copy(g.parts[:], parts)
	for err == nil && s.waiting() == 0 {
		record := g.next()
		if len(record) == 0 {
			break
		}
		var k int
		k, err = c.conn.Write(record)
		n += k
	}
	if g.copied != nil {
		g.copied.put()
	}
	return n, err
}

// gather cuts parts into records, so that a short header or trailer is in one record with its payload.
type gather struct {
	parts  [3][]byte
	copied *buffer // the record, if it has bytes of several parts
}

// next returns up to maxRecord bytes, which are valid until the next call; nothing at the end.
func (g *gather) next() []byte {
	first, others := -1, false
	for i, p := range g.parts {
		if len(p) > 0 && first >= 0 {
			others = true
		}
		if len(p) > 0 && first < 0 {
			first = i
		}
	}
	if first < 0 {
		return nil
	}
	if p := g.parts[first]; !others || len(p) >= maxRecord {
		n := min(len(p), maxRecord)
		g.parts[first] = p[n:]
		return p[:n]
	}
	if g.copied == nil {
		g.copied = getBuffer(maxRecord)
	}
	n := 0
	for i := range g.parts {
		k := copy(g.copied.b[n:maxRecord], g.parts[i])
		g.parts[i] = g.parts[i][k:]
		n += k
	}
	return g.copied.b[:n]
}
