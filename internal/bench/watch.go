package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tidewire/tidewire/internal/wire"
	"github.com/tidewire/tidewire/websocket"
)

// WatchConfig describes the subscribers of a Watch.
type WatchConfig struct {
	URL      string // of the server's /ws
	Encoding wire.Encoding
	Clients  int
	// Subscribe writes the fields of the request that each client sends. It must not ask for credits.
	Subscribe func(out *wire.Writer)
	// Got is called with the payloads that one read of a client has brought, which are valid during the call.
	Got func(client int, payloads [][]byte)
}

// Watch has many subscribers, which only read, and drives all of them from one goroutine, as RunChat does: a Wire for each
// would take more processor time than the server.
type Watch struct {
	cfg      WatchConfig
	poll     *poller
	decoder  wire.Decoder
	clients  []*watching
	byFD     map[int]*watching
	in       []byte
	payloads [][]byte
	begun    int // clients whose request was answered
	received atomic.Int64
}

// watching is one connection.
type watching struct {
	rawSocket
	client  int
	partial []byte // the part of a frame that has arrived
}

// watchPatience is how long the clients wait for the answers to their requests.
const watchPatience = 30 * time.Second

// NewWatch connects the clients, and returns when all have subscribed.
func NewWatch(ctx context.Context, cfg WatchConfig) (_ *Watch, err error) {
	w := &Watch{cfg: cfg, byFD: make(map[int]*watching), in: make([]byte, chatRead), decoder: wire.Decoder{Limits: wire.Limits{Depth: 100, Values: 1 << 20}}}
	if w.poll, err = newPoller(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	for range cfg.Clients {
		if err := w.connect(ctx); err != nil {
			return nil, fmt.Errorf("connect subscriber: %w", err)
		}
	}
	for deadline := time.Now().Add(watchPatience); w.begun < cfg.Clients; {
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%d of %d subscriptions began within %v", w.begun, cfg.Clients, watchPatience)
		}
		if err := w.wait(); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// connect opens a connection and sends its request.
func (w *Watch) connect(ctx context.Context) error {
	protocol, op := "tidewire.v1", websocket.OpText
	if w.cfg.Encoding == wire.CBOR {
		protocol, op = "tidewire.v1.cbor", websocket.OpBinary
	}
	socket, leftover, err := dialRawBy(ctx, w.cfg.URL, nil, func(conn net.Conn, u *url.URL) ([]byte, error) {
		return websocket.ClientHandshakeFor(conn, u, protocol)
	})
	if err != nil {
		return err
	}
	c := &watching{rawSocket: socket, client: len(w.clients), partial: leftover}
	w.clients, w.byFD[c.fd] = append(w.clients, c), c
	out := wire.Writer{Encoding: w.cfg.Encoding}
	out.Open()
	w.cfg.Subscribe(&out)
	out.Name("id")
	out.Int(1)
	out.Close()
	if err := c.writeAll(websocket.AppendMaskedFrame(nil, op, maskKey(), out.Buf)); err != nil {
		return err
	}
	return w.poll.add(c.fd)
}

// writeAll writes a short message. The kernel has room for it: a subscriber sends nothing else.
func (c *watching) writeAll(b []byte) error {
	n, err := c.write(b)
	if err == nil && n < len(b) {
		err = errors.New("the server reads nothing")
	}
	return err
}

// Run reads until ctx ends, or a connection does.
func (w *Watch) Run(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for ctx.Err() == nil {
		if err := w.wait(); err != nil {
			return err
		}
	}
	return nil
}

// Received is how many bytes the server has sent after the handshakes.
func (w *Watch) Received() int64 { return w.received.Load() }

// Close ends all connections. Call it after Run.
func (w *Watch) Close() {
	for _, c := range w.clients {
		c.close()
	}
	w.poll.close()
}

func (w *Watch) wait() (err error) {
	waited := w.poll.wait(50*time.Millisecond, func(ev event) {
		c := w.byFD[ev.fd]
		if failed := w.receive(c); failed != nil && err == nil {
			err = fmt.Errorf("subscriber %d: %w", c.client, failed)
		}
	})
	return errors.Join(waited, err)
}

// receive reads once and handles the complete frames.
func (w *Watch) receive(c *watching) error {
	have := copy(w.in, c.partial)
	n, err := c.read(w.in[have:])
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return nil
	case err == nil && n == 0:
		return errors.New("closed without a closing handshake")
	case err != nil:
		return err
	}
	w.received.Add(int64(n))
	b := w.in[:have+n]
	w.payloads = w.payloads[:0]
	used := 0
	for {
		h, size, err := websocket.ParseHeader(b[used:])
		if err != nil {
			return err
		}
		end := used + size + int(h.Length)
		if size == 0 || end > len(b) {
			break
		}
		if err := w.frame(c, h, b[used+size:end:end]); err != nil {
			return err
		}
		used = end
	}
	if used == 0 && len(b) == len(w.in) {
		return fmt.Errorf("a frame of more than %d bytes", len(b))
	}
	if len(w.payloads) > 0 {
		w.cfg.Got(c.client, w.payloads)
	}
	c.partial = append(c.partial[:0], b[used:]...)
	return nil
}

func (w *Watch) frame(c *watching, h websocket.Header, payload []byte) error {
	switch h.Op {
	case websocket.OpPing:
		return c.writeAll(websocket.AppendMaskedFrame(nil, websocket.OpPong, maskKey(), payload))
	case websocket.OpClose:
		return fmt.Errorf("closed by the server: %q", payload)
	}
	var m wire.Answer
	if err := w.decoder.DecodeAnswer(payload, w.cfg.Encoding, &m); err != nil {
		return fmt.Errorf("server sent %q: %w", payload[:min(len(payload), 200)], err)
	}
	switch m.Type {
	case "message":
		w.payloads = append(w.payloads, m.Payload)
	case "ok":
		w.begun++
	case "error":
		return (&WireMessage{m}).Err()
	}
	return nil
}
