package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/limits"
	"github.com/tidewire/tidewire/websocket"
)

// Tests that wait for clocks run in a bubble of synctest: there the clock goes on when all goroutines wait. Its servers have a network in
// memory, because sockets are outside of a bubble. All helpers work in both worlds.

// inBubble runs a test in a bubble.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Parallel()
	synctest.Test(t, test)
}

// opener returns a function that opens a gate at which a server waits. The test defers it: a server that still waits when the test fails would end all tests
// of the package, with a report of a deadlock in the bubble.
func opener(gate chan struct{}) func() { return sync.OnceFunc(func() { close(gate) }) }

// bubbled reports whether the caller is in a bubble, whose clock begins in the year 2000.
func bubbled() bool { return time.Now().Year() < 2020 }

// pipes are the servers of bubbles, by their addresses, in which they are numbered.
var (
	pipes      sync.Map
	pipeNumber atomic.Int64
)

// pipeListener is the network of a server in a bubble.
type pipeListener struct {
	addr   string
	conns  chan net.Conn
	closed chan struct{}
	http   *http.Client
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { return nil }
func (l *pipeListener) Addr() net.Addr { return pipeAddr(l.addr) }

type pipeAddr string

func (pipeAddr) Network() string  { return "pipe" }
func (a pipeAddr) String() string { return string(a) }

func (l *pipeListener) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- pipeSocket{server, l.addr}:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// pipeSocket is a connection that has addresses.
type pipeSocket struct {
	net.Conn
	addr string
}

func (s pipeSocket) RemoteAddr() net.Addr { return pipeAddr("127.0.0.1:1") }
func (s pipeSocket) LocalAddr() net.Addr  { return pipeAddr(s.addr) }

// serveInBubble is expose in a bubble.
func serveInBubble(t *testing.T, server *gateway.Server, registry *limits.Registry) string {
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	l.addr = fmt.Sprintf("127.0.0.9:%d", pipeNumber.Add(1))
	l.http = &http.Client{Transport: recordingTransport{&http.Transport{DialContext: l.dial, DisableKeepAlives: true}}}
	pipes.Store(l.addr, l)
	front, listener := &http.Server{Handler: server}, net.Listener(l)
	if registry != nil {
		front.ConnContext, listener = limits.ConnContext, registry.Listener(l)
	}
	var running sync.WaitGroup
	running.Go(func() { front.Serve(listener) })
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		close(l.closed)
		front.Close()
		running.Wait()
		pipes.Delete(l.addr)
	})
	return l.addr
}

// httpOf is the client for a server.
func httpOf(addr string) *http.Client {
	if l, is := pipes.Load(addr); is {
		return l.(*pipeListener).http
	}
	return http.DefaultClient
}

// dialSocket connects, in both worlds.
func dialSocket(ctx context.Context, rawURL string, cfg websocket.Config) (socket, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	l, is := pipes.Load(u.Host)
	if !is {
		return websocket.Dial(ctx, rawURL, cfg)
	}
	conn, err := l.(*pipeListener).dial(ctx, "", "")
	if err != nil {
		return nil, err
	}
	r := &http.Request{Method: http.MethodGet, URL: u, Host: "127.0.0.1", Header: cfg.Header.Clone()}
	if r.Header == nil {
		r.Header = http.Header{}
	}
	for name, value := range map[string]string{"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="} {
		r.Header.Set(name, value)
	}
	if err := r.Write(conn); err != nil {
		return nil, err
	}
	in := bufio.NewReader(conn)
	answer, err := http.ReadResponse(in, r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusSwitchingProtocols {
		text, _ := io.ReadAll(answer.Body)
		conn.Close()
		return nil, &websocket.HandshakeError{Status: answer.StatusCode, Reason: string(text)}
	}
	c := &pipeConn{conn: conn, in: in, out: make(chan []byte, 1000), ended: make(chan struct{})}
	go c.write()
	return c, nil
}

// pipeConn is a client of a server in a bubble.
type pipeConn struct {
	conn   net.Conn
	in     *bufio.Reader
	mu     sync.Mutex
	queued []byte // guarded by mu: a reader answers Pings while another goroutine sends
	out    chan []byte
	ended  chan struct{}
	end    sync.Once
	mute   bool // answers no Pings
}

// write sends what is flushed, also while the server does not read.
func (c *pipeConn) write() {
	for {
		select {
		case b := <-c.out:
			c.conn.Write(b)
		case <-c.ended:
			return
		}
	}
}

func (c *pipeConn) Queue(op websocket.Opcode, payload []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queued = websocket.AppendMaskedFrame(c.queued, op, [4]byte{1, 2, 3, 4}, payload)
	return nil
}

func (c *pipeConn) Flush() error {
	c.mu.Lock()
	b := c.queued
	c.queued = nil
	c.mu.Unlock()
	select {
	case <-c.ended:
		return net.ErrClosed
	case c.out <- b:
		return nil
	}
}

// Read reads one message, and answers Pings.
func (c *pipeConn) Read() ([]websocket.Message, error) {
	var message websocket.Message
	for {
		h, payload, err := c.frame()
		switch {
		case err != nil:
			return nil, err
		case h.Op == websocket.OpPing && !c.mute:
			c.Queue(websocket.OpPong, payload)
			c.Flush()
		case h.Op == websocket.OpClose:
			closed := &websocket.CloseError{Code: websocket.StatusNone}
			if len(payload) > 1 {
				closed.Code, closed.Reason = websocket.StatusCode(payload[0])<<8|websocket.StatusCode(payload[1]), string(payload[2:])
			}
			return nil, closed
		case h.Op <= websocket.OpBinary: // a part of a message
			if h.Op != websocket.OpContinuation {
				message.Op = h.Op
			}
			if message.Payload = append(message.Payload, payload...); h.Fin {
				return []websocket.Message{message}, nil
			}
		}
	}
}

func (c *pipeConn) frame() (websocket.Header, []byte, error) {
	for head := []byte(nil); ; {
		h, n, err := websocket.ParseHeader(head)
		if err != nil {
			return h, nil, err
		}
		if n > 0 {
			payload := make([]byte, h.Length)
			_, err := io.ReadFull(c.in, payload)
			return h, payload, err
		}
		one, err := c.in.ReadByte()
		if err != nil {
			return h, nil, err
		}
		head = append(head, one)
	}
}

func (c *pipeConn) SetReadDeadline(t time.Time) error { return c.conn.SetReadDeadline(t) }

func (c *pipeConn) StartClose(code websocket.StatusCode, reason string) {
	c.Queue(websocket.OpClose, append([]byte{byte(code >> 8), byte(code)}, reason...))
	c.Flush()
}

func (c *pipeConn) Close(code websocket.StatusCode, reason string) error {
	c.StartClose(code, reason)
	for {
		if _, err := c.Read(); err != nil {
			c.Abort()
			return nil
		}
	}
}

func (c *pipeConn) Abort() {
	c.end.Do(func() { close(c.ended); c.conn.Close() })
}
