package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/wire"
	"github.com/tidewire/tidewire/websocket"
)

// WireMessage is a message of a server on /ws: the answer to a request, or a
// message that the server pushes.
type WireMessage struct{ wire.Answer }

// Err returns the error if the message is one, or nil.
func (m *WireMessage) Err() error {
	if m.Type != "error" {
		return nil
	}
	return fmt.Errorf("server: %s: %s", m.Code, m.Message)
}

// Wire is a client of /ws for the load generator. It can have any number of
// requests in flight, and sorts pushed messages by subscription and queue. Safe
// for concurrent use.
type Wire struct {
	conn     *websocket.Conn
	encoding wire.Encoding
	decoder  wire.Decoder  // used by the reading goroutine
	unsent   chan struct{} // one slot: something is queued

	mu      sync.Mutex // guards the fields below
	id      int64
	waiting map[int64]func(WireMessage, error)
	inboxes map[string]*Inbox
	err     error
	ended   chan struct{}
}

// DialWire connects to a server's /ws. Request uses JSON there.
func DialWire(ctx context.Context, url string) (*Wire, error) {
	return dialWire(ctx, url, wire.JSON, websocket.Config{})
}

// WireConfig says how a client and a server of Tidewire talk.
type WireConfig struct {
	Encoding wire.Encoding
	// Compress makes the client offer compression, which the server has to accept.
	Compress bool
}

// DialWireAs is DialWire with a WireConfig.
func DialWireAs(ctx context.Context, url string, as WireConfig) (*Wire, error) {
	cfg := websocket.Config{}
	if as.Encoding == wire.CBOR {
		cfg.Subprotocols = []string{"tidewire.v1.cbor"}
	}
	if as.Compress {
		cfg.Compression = new(websocket.Compression)
	}
	w, err := dialWire(ctx, url, as.Encoding, cfg)
	if err != nil {
		return nil, err
	}
	if w.conn.AllowCompression(); as.Compress && !w.conn.TakesCompressed() {
		w.Abort()
		return nil, errors.New("the server does not accept compression (permessage-deflate)")
	}
	return w, nil
}

// Received returns the number of bytes that the server has sent after the handshake.
func (w *Wire) Received() int64 { return w.conn.Received() }

func dialWire(ctx context.Context, url string, e wire.Encoding, cfg websocket.Config) (*Wire, error) {
	conn, err := websocket.Dial(ctx, url, cfg)
	if err != nil {
		return nil, err
	}
	w := &Wire{
		conn: conn, encoding: e, decoder: wire.Decoder{Limits: wire.Limits{Depth: 100, Values: 1 << 20}}, unsent: make(chan struct{}, 1),
		waiting: make(map[int64]func(WireMessage, error)), inboxes: make(map[string]*Inbox), ended: make(chan struct{}),
	}
	go w.read()
	go w.flush()
	return w, nil
}

// Send sends a request with these fields (JSON without braces), and returns.
// done is called with the answer, or with the error that ended the connection,
// by the reading goroutine: it must be brief.
func (w *Wire) Send(fields []byte, done func(WireMessage, error)) {
	id, alone := w.expect(done)
	if id == 0 {
		return
	}
	request := make([]byte, 0, len(fields)+32)
	request = append(append(request, '{'), fields...)
	w.write(websocket.OpText, append(strconv.AppendInt(append(request, `,"id":`...), id, 10), '}'), alone)
}

// writers are for Request.
var writers = sync.Pool{New: func() any { return new(wire.Writer) }}

// Request is Send in the encoding of the connection. fields writes the fields.
func (w *Wire) Request(fields func(*wire.Writer), done func(WireMessage, error)) {
	if id, alone := w.expect(done); id != 0 {
		w.encode(fields, id, alone)
	}
}

// Notify is Tell in the encoding of the connection. It leaves with the next request, or soon.
func (w *Wire) Notify(fields func(*wire.Writer)) { w.encode(fields, 0, false) }

// encode sends a message, with an ID that is not 0.
func (w *Wire) encode(fields func(*wire.Writer), id int64, now bool) {
	out := writers.Get().(*wire.Writer)
	defer writers.Put(out)
	out.Buf, out.Encoding = out.Buf[:0], w.encoding
	out.Open()
	fields(out)
	if id != 0 {
		out.Name("id")
		out.Int(id)
	}
	out.Close()
	w.write(w.op(), out.Buf, now)
}

// expect returns the ID of the next request, and whether no other one waits for an answer; or 0 if the connection has ended.
func (w *Wire) expect(done func(WireMessage, error)) (id int64, alone bool) {
	w.mu.Lock()
	if w.err != nil {
		defer w.mu.Unlock()
		done(WireMessage{}, w.err)
		return 0, false
	}
	defer w.mu.Unlock()
	w.id++
	w.waiting[w.id] = done
	return w.id, len(w.waiting) == 1
}

func (w *Wire) op() websocket.Opcode {
	if w.encoding == wire.CBOR {
		return websocket.OpBinary
	}
	return websocket.OpText
}

// Tell sends a message with these fields (JSON without braces). It has no
// answer.
func (w *Wire) Tell(fields []byte) {
	w.write(websocket.OpText, append(append(append(make([]byte, 0, len(fields)+2), '{'), fields...), '}'), true)
}

// write sends a message: now, or with others that are sent at the same time.
func (w *Wire) write(op websocket.Opcode, message []byte, now bool) {
	err := w.conn.Queue(op, message)
	switch {
	case err != nil:
	case now:
		err = w.conn.Flush()
	default:
		signal(w.unsent)
	}
	if err != nil {
		w.conn.Abort() // the reader reports the error
	}
}

// flush sends what is queued. Meanwhile other goroutines queue more, which leaves in one write.
func (w *Wire) flush() {
	for {
		select {
		case <-w.unsent:
			if w.conn.Flush() != nil {
				w.conn.Abort()
			}
		case <-w.ended:
			return
		}
	}
}

// Ask sends a request and waits for the answer. An error answer is returned as
// an error.
func (w *Wire) Ask(fields []byte) (WireMessage, error) {
	return await(func(done func(WireMessage, error)) { w.Send(fields, done) })
}

// Await is Ask in the encoding of the connection.
func (w *Wire) Await(fields func(*wire.Writer)) (WireMessage, error) {
	return await(func(done func(WireMessage, error)) { w.Request(fields, done) })
}

func await(send func(done func(WireMessage, error))) (answer WireMessage, failed error) {
	answered := make(chan struct{})
	send(func(m WireMessage, err error) {
		answer, failed = m, errors.Join(err, m.Err())
		close(answered)
	})
	<-answered
	return answer, failed
}

// Inbox holds the messages that the server pushes for one subscription or queue.
// Not safe for concurrent use.
type Inbox struct {
	wire    *Wire
	arrived []WireMessage // guarded by the Wire's lock
	more    chan struct{} // one slot: something has arrived, or the connection is gone
}

// Inbox returns the Inbox of the subscription or queue with that name. Call it
// before the server can push messages for it.
func (w *Wire) Inbox(name string) *Inbox {
	w.mu.Lock()
	defer w.mu.Unlock()
	in := &Inbox{wire: w, more: make(chan struct{}, 1)}
	w.inboxes[name] = in
	return in
}

// Next waits for messages and returns all that have arrived. The next call may use
// the memory of the slice again.
func (in *Inbox) Next(ctx context.Context, memory []WireMessage) ([]WireMessage, error) {
	for {
		in.wire.mu.Lock()
		got, err := in.arrived, in.wire.err
		if len(got) > 0 {
			in.arrived = memory[:0]
			in.wire.mu.Unlock()
			return got, nil
		}
		in.wire.mu.Unlock()
		if err != nil {
			return nil, err
		}
		select {
		case <-in.more:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Close closes the connection.
func (w *Wire) Close() {
	w.conn.StartClose(websocket.StatusNormal, "")
	<-w.ended
}

// Abort ends the connection at once, without a closing handshake.
func (w *Wire) Abort() {
	w.conn.Abort()
	<-w.ended
}

func (w *Wire) read() {
	defer close(w.ended)
	for {
		w.conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
		msgs, err := w.conn.Read()
		whole := size(msgs)
		memory := make([]byte, 0, whole) // what is read may be kept
		for i := range msgs {
			from := len(memory)
			memory = append(memory, msgs[i].Payload...)
			if parseErr := w.take(msgs[i].Op, memory[from:len(memory):len(memory)]); parseErr != nil {
				err = parseErr
				w.conn.Abort()
			}
		}
		if err != nil {
			w.conn.Close(websocket.StatusNormal, "")
			w.fail(err)
			return
		}
	}
}

func size(msgs []websocket.Message) (n int) {
	for i := range msgs {
		n += len(msgs[i].Payload)
	}
	return n
}

// take handles one received message.
func (w *Wire) take(op websocket.Opcode, text []byte) error {
	m, err := w.parse(op, text)
	if err != nil || m.Type == "hello" {
		return err
	}
	w.mu.Lock()
	done := w.waiting[m.ID]
	delete(w.waiting, m.ID)
	in := w.inboxes[cmp.Or(m.Subscription, m.Queue)]
	if done == nil && in != nil {
		in.arrived = append(in.arrived, m)
	}
	w.mu.Unlock()
	switch {
	case done != nil:
		done(m, nil)
	case in != nil:
		signal(in.more)
	default:
		return fmt.Errorf("server sent what nobody asked for: %s", text[:min(len(text), 200)])
	}
	return nil
}

func (w *Wire) parse(op websocket.Opcode, text []byte) (m WireMessage, err error) {
	e := wire.JSON
	if op == websocket.OpBinary {
		e = wire.CBOR
	}
	if wrong := w.decoder.DecodeAnswer(text, e, &m.Answer); wrong != nil {
		return m, fmt.Errorf("server sent %q: %w", text[:min(len(text), 200)], wrong)
	}
	return m, nil
}

// fail answers all waiting requests with the error.
func (w *Wire) fail(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errors.New("the server said nothing for two minutes")
	}
	w.mu.Lock()
	w.err = err
	waiting := w.waiting
	w.waiting = nil
	inboxes := slices.Collect(maps.Values(w.inboxes))
	w.mu.Unlock()
	for _, done := range waiting {
		done(WireMessage{}, err)
	}
	for _, in := range inboxes {
		signal(in.more)
	}
}

// signal sends to a channel with one slot, without blocking.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
