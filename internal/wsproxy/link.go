package wsproxy

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

const (
	bufferSize = 64 << 10
	// maxFrame bounds the memory for a frame.
	maxFrame = 64 << 20
	// lingering is how long a connection that ends is read.
	lingering = time.Second
)

// link is one connection of a client with its connection to the server.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	ctx            context.Context
	end            context.CancelFunc

	mu       sync.Mutex
	requests map[any]string // the types of requests that have no answer yet, by id
}

func newLink(p *Proxy, client, server net.Conn) *link {
	l := &link{proxy: p, client: client, server: server, requests: make(map[any]string)}
	l.ctx, l.end = context.WithCancel(context.Background())
	return l
}

// cut ends both connections at once.
func (l *link) cut() {
	l.end()
	reset(l.client)
	reset(l.server)
}

// finish ends both connections after everything that was written. What still comes is read and dropped for a moment: closing a
// connection with unread bytes would make TCP discard what its peer has not read yet.
func (l *link) finish() {
	l.end()
	for _, conn := range []net.Conn{l.client, l.server} {
		halfClose(conn)
		conn.SetReadDeadline(time.Now().Add(lingering))
	}
}

// run forwards until one of the connections ends.
func (l *link) run() {
	defer l.end()
	fromClient, fromServer := bufio.NewReaderSize(l.client, bufferSize), bufio.NewReaderSize(l.server, bufferSize)
	if !l.handshake(fromClient, fromServer) {
		l.both(
			func() { io.Copy(l.server, fromClient); halfClose(l.server) },
			func() { io.Copy(l.client, fromServer); halfClose(l.client) })
		return
	}
	l.both(
		func() { l.forward(toServer, fromClient, l.server); l.finish(); io.Copy(io.Discard, fromClient) },
		func() { l.forward(toClient, fromServer, l.client); l.finish(); io.Copy(io.Discard, fromServer) })
}

// both runs one function for each direction.
func (l *link) both(toServer, toClient func()) {
	var running sync.WaitGroup
	running.Go(toServer)
	running.Go(toClient)
	running.Wait()
}

func halfClose(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.CloseWrite()
	}
}

// handshake forwards the first request and its answer, and reports whether they have made a WebSocket.
func (l *link) handshake(fromClient, fromServer *bufio.Reader) bool {
	request, err := http.ReadRequest(bufio.NewReader(&tee{from: fromClient, to: l.server}))
	if err != nil || request.Header.Get("Upgrade") == "" {
		return false
	}
	answer, err := http.ReadResponse(bufio.NewReader(&tee{from: fromServer, to: l.client}), request)
	return err == nil && answer.StatusCode == http.StatusSwitchingProtocols
}

// tee forwards what is read from it, line by line: so nothing after the header is read.
type tee struct {
	from *bufio.Reader
	to   net.Conn
	line []byte // what is left of a line
}

func (t *tee) Read(b []byte) (int, error) {
	if len(t.line) == 0 {
		line, err := t.from.ReadBytes('\n')
		if err != nil {
			return 0, err
		}
		if _, err := t.to.Write(line); err != nil {
			return 0, err
		}
		t.line = line
	}
	n := copy(b, t.line)
	t.line = t.line[n:]
	return n, nil
}

// forward forwards frames, under the rules, until the connection ends.
func (l *link) forward(to string, from *bufio.Reader, dst net.Conn) {
	for {
		frame, h, header, err := readFrame(from)
		if err != nil {
			return
		}
		pass, on := l.apply(to, h, frame[header:])
		if pass && l.ctx.Err() == nil {
			if _, err := dst.Write(frame); err != nil {
				return
			}
		}
		if !on {
			return
		}
	}
}

// apply does what the rules say about a frame. It reports whether the frame is forwarded, and whether the connection goes on.
func (l *link) apply(to string, h websocket.Header, payload []byte) (pass, on bool) {
	if h.Op != websocket.OpText && h.Op != websocket.OpBinary {
		return true, true
	}
	rule, released := l.proxy.decide(to, l.look(to, h, payload))
	if rule == nil {
		return true, true
	}
	switch rule.Do {
	case CutBefore:
		l.cut()
		return false, false
	case CutAfter:
		return true, false
	case Drop:
		return false, true
	case Delay:
		on = sleep(l.ctx, rule.delay())
		return on, on
	}
	select { // Stall
	case <-released:
		return true, true
	case <-l.ctx.Done():
		return false, false
	}
}

// look reads what rules look at, and keeps the types of requests.
func (l *link) look(to string, h websocket.Header, payload []byte) message {
	if h.Masked {
		payload = bytes.Clone(payload)
		websocket.Mask(payload, h.Key, 0)
	}
	m := read(h.Op, payload)
	if m.id == nil {
		return m
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if to == toServer {
		l.requests[m.id] = m.kind
	} else {
		m.answers = l.requests[m.id]
		delete(l.requests, m.id)
	}
	return m
}

// readFrame reads a frame, and returns its bytes, its header, and how long that is.
func readFrame(from *bufio.Reader) (frame []byte, h websocket.Header, header int, err error) {
	for known := 2; header == 0; known++ {
		frame, err = from.Peek(known)
		if err != nil {
			return nil, h, 0, err
		}
		if h, header, err = websocket.ParseHeader(frame); err != nil {
			return nil, h, 0, err
		}
	}
	if h.Length > maxFrame {
		return nil, h, 0, websocket.ErrLength
	}
	frame = make([]byte, header+int(h.Length))
	_, err = io.ReadFull(from, frame)
	return frame, h, header, err
}
