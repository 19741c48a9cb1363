package tidewire

import (
	"encoding/json"
	"time"
)

// sending is a publish or an enqueue.
type sending struct {
	kind     string // publish or enqueue
	name     string // of the stream or queue
	key      string // of all its messages, if these share a request
	several  bool   // messages in place of one payload
	good     bool   // the server has no reason to refuse it alone
	messages []outgoing
	delay    time.Duration
	priority int
	unique   string
	period   time.Duration
}

// outgoing is a message to be stored.
type outgoing struct {
	key     string
	headers json.RawMessage
	payload []byte
}

func (m *outgoing) size() int { return len(m.payload) + len(m.key) + len(m.headers) }

// writeRequest writes a request of the program or of the library.
func (c *Client) writeRequest(w *writer, r *request) {
	if r.encode != nil {
		w.begin(r.kind, r.id)
		r.encode(w, r)
		w.end()
		return
	}
	s := r.send
	w.begin(s.kind, r.id)
	if s.kind == "enqueue" {
		w.text("queue", s.name)
	} else {
		w.text("stream", s.name)
	}
	c.writeSequence(w, r)
	if s.delay > 0 {
		w.number("delay_ms", s.delay.Milliseconds())
	}
	if s.priority > 0 {
		w.number("priority", int64(s.priority))
	}
	if s.unique != "" {
		w.text("unique_key", s.unique)
		w.number("unique_ms", s.period.Milliseconds())
	}
	if s.several {
		s.writeAll(w)
	} else {
		s.messages[0].write(w)
	}
	w.end()
}

// writeSequence writes what makes a request repeatable.
func (c *Client) writeSequence(w *writer, r *request) {
	if r.sequence >= 0 {
		w.text("client", c.name)
		w.number("sequence", r.sequence)
	}
}

func (s *sending) writeAll(w *writer) {
	w.array("messages", len(s.messages))
	for i := range s.messages {
		if w.cbor {
			w.buf = append(w.buf, cborMap)
			s.messages[i].write(w)
			w.buf = append(w.buf, cborBreak)
			continue
		}
		if i > 0 {
			w.comma()
		}
		at := len(w.buf)
		s.messages[i].write(w)
		w.buf[at] = '{' // in place of the comma before the first field
		w.buf = append(w.buf, '}')
	}
	w.endArray()
}

func (m *outgoing) write(w *writer) {
	if m.key != "" {
		w.text("key", m.key)
	}
	if len(m.headers) > 0 {
		w.json("headers", m.headers)
	}
	w.payload(m.payload)
}
