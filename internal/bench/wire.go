package bench

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// WireMessage is a message of a server on /ws: the answer to a request, or a
// message that the server pushes.
type WireMessage struct {
	Type     string
	ID       uint64
	Code     string
	Message  string
	Position int64
	Count    int
	Delivery string
	Attempt  int // of a delivery, from 1 on
	// Last is the last position that was not lost, in a history_lost error.
	Last int64
	// Positions are those of an append. Counts and Condition are the results of a
	// project request.
	Positions, Counts []int64
	Condition         json.RawMessage
	// Subscription and Queue say which subscription or queue a pushed message
	// belongs to.
	Subscription, Queue string
	Payload             []byte
}

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
	conn *websocket.Conn

	mu      sync.Mutex // guards the fields below
	id      uint64
	waiting map[uint64]func(WireMessage, error)
	inboxes map[string]*Inbox
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
		inboxes: make(map[string]*Inbox), ended: make(chan struct{}),
	}
	go w.read()
	return w, nil
}

// Send sends a request with these fields (JSON without braces), and returns.
// done is called with the answer, or with the error that ended the connection,
// by the reading goroutine: it must be brief.
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

// Tell sends a message with these fields (JSON without braces). It has no
// answer.
func (w *Wire) Tell(fields []byte) {
	w.write(append(append(append(make([]byte, 0, len(fields)+2), '{'), fields...), '}'))
}

func (w *Wire) write(message []byte) {
	if w.conn.Queue(websocket.OpText, message) != nil || w.conn.Flush() != nil {
		w.conn.Abort() // the reader reports the error
	}
}

// Ask sends a request and waits for the answer. An error answer is returned as
// an error.
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

// take handles one received message.
func (w *Wire) take(text []byte) error {
	m, err := parseWire(text)
	if err != nil {
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

// AppendWirePayload appends the JSON field of a payload.
func AppendWirePayload(dst, payload []byte) []byte {
	dst = append(dst, `"payload_base64":"`...)
	return append(base64.StdEncoding.AppendEncode(dst, payload), '"')
}
