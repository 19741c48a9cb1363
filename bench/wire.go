package bench

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// WireMessage is what a server says on /ws: the answer to a request, or what it
// sends by itself.
type WireMessage struct {
	Type     string
	ID       uint64
	Code     string
	Message  string
	Position int64
	Count    int
	Delivery string
	Payload  []byte
}

// Err is the error that the message is, or nil.
func (m *WireMessage) Err() error {
	if m.Type != "error" {
		return nil
	}
	return fmt.Errorf("server: %s: %s", m.Code, m.Message)
}

// Wire is a client of /ws for the generator: any number of requests at a time,
// and what the server sends by itself. Safe for concurrent use, but for Next.
type Wire struct {
	conn *websocket.Conn

	mu      sync.Mutex // guards the fields below
	id      uint64
	waiting map[uint64]func(WireMessage, error)
	pushed  []WireMessage
	more    chan struct{} // one slot: pushed is not empty, or the connection is gone
	err     error
	ended   chan struct{}
}

// DialWire connects to a server's /ws.
func DialWire(ctx context.Context, url string) (*Wire, error) {
	conn, err := websocket.Dial(ctx, url, websocket.Config{})
	if err != nil {
		return nil, err
	}
	w := &Wire{
		conn: conn, waiting: make(map[uint64]func(WireMessage, error)),
		more: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	go w.read()
	return w, nil
}

// Send sends the request whose fields, without braces, are given, and returns.
// done is called with the answer, or with the error that ended the connection,
// by the goroutine that reads: it must be brief.
func (w *Wire) Send(fields []byte, done func(WireMessage, error)) {
	w.mu.Lock()
	if w.err != nil {
		defer w.mu.Unlock()
		done(WireMessage{}, w.err)
		return
	}
	w.id++
	w.waiting[w.id] = done
	id := w.id
	w.mu.Unlock()
	request := make([]byte, 0, len(fields)+32)
	request = append(append(request, '{'), fields...)
	w.write(append(strconv.AppendUint(append(request, `,"id":`...), id, 10), '}'))
}

// Tell sends the message whose fields, without braces, are given; there is no
// answer.
func (w *Wire) Tell(fields []byte) {
	w.write(append(append(append(make([]byte, 0, len(fields)+2), '{'), fields...), '}'))
}

func (w *Wire) write(message []byte) {
	if w.conn.Queue(websocket.OpText, message) != nil || w.conn.Flush() != nil {
		w.conn.Abort() // read tells why
	}
}

// Ask is Send that waits for the answer; an error of the server is an error.
func (w *Wire) Ask(fields []byte) (WireMessage, error) {
	answered := make(chan struct{})
	var answer WireMessage
	var failed error
	w.Send(fields, func(m WireMessage, err error) {
		answer, failed = m, errors.Join(err, m.Err())
		close(answered)
	})
	<-answered
	return answer, failed
}

// Next waits for messages that the server sent by itself and returns all that
// have arrived. The memory of the slice is used again by the next call.
func (w *Wire) Next(ctx context.Context, memory []WireMessage) ([]WireMessage, error) {
	for {
		w.mu.Lock()
		got, err := w.pushed, w.err
		if len(got) > 0 {
			w.pushed = memory[:0]
			w.mu.Unlock()
			return got, nil
		}
		w.mu.Unlock()
		if err != nil {
			return nil, err
		}
		select {
		case <-w.more:
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

func (w *Wire) read() {
	defer close(w.ended)
	for {
		w.conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
		msgs, err := w.conn.Read()
		for i := range msgs {
			if parseErr := w.take(msgs[i].Payload); parseErr != nil {
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

// take passes on one message.
func (w *Wire) take(text []byte) error {
	m, err := parseWire(text)
	if err != nil {
		return err
	}
	w.mu.Lock()
	done := w.waiting[m.ID]
	delete(w.waiting, m.ID)
	if done == nil {
		w.pushed = append(w.pushed, m)
	}
	w.mu.Unlock()
	if done != nil {
		done(m, nil)
		return nil
	}
	w.wake()
	return nil
}

func parseWire(text []byte) (WireMessage, error) {
	var in struct {
		WireMessage
		Payload string
		Base64  []byte `json:"payload_base64"`
	}
	if err := json.Unmarshal(text, &in); err != nil {
		return WireMessage{}, fmt.Errorf("server sent %q: %w", text[:min(len(text), 200)], err)
	}
	in.WireMessage.Payload = in.Base64
	if in.Base64 == nil {
		in.WireMessage.Payload = []byte(in.Payload)
	}
	return in.WireMessage, nil
}

// fail answers everything that waits.
func (w *Wire) fail(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errors.New("the server said nothing for two minutes")
	}
	w.mu.Lock()
	w.err = err
	waiting := w.waiting
	w.waiting = nil
	w.mu.Unlock()
	for _, done := range waiting {
		done(WireMessage{}, err)
	}
	w.wake()
}

func (w *Wire) wake() {
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// AppendWirePayload appends a message's field with these bytes.
func AppendWirePayload(dst, payload []byte) []byte {
	dst = append(dst, `"payload_base64":"`...)
	return append(base64.StdEncoding.AppendEncode(dst, payload), '"')
}
