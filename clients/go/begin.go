package tidewire

import "github.com/gorilla/websocket"

// begins are deliveries whose work begins. The server counts an attempt only for these.
type begins struct {
	queues  []string   // each with the deliveries of the same index
	names   [][]string // of deliveries
	written chan struct{}
}

// begin says that the work on a delivery begins, and returns when that is written, together with all that there is to write: a handler that
// ends the process has been counted then. It returns false if the connection has ended before.
func (l *link) begin(queue, delivery string) bool {
	c := l.c
	c.mu.Lock()
	if c.link != l {
		c.unlock()
		return false
	}
	written := l.begins.add(queue, delivery)
	l.signal()
	c.unlock()
	select {
	case <-written:
		return true
	case <-l.over:
	}
	select {
	case <-written: // before the connection has ended
		return true
	default:
		return false
	}
}

// add adds a delivery, and returns a channel that is closed when it is written.
func (b *begins) add(queue, delivery string) chan struct{} {
	if b.written == nil {
		b.written = make(chan struct{})
	}
	for i, of := range b.queues {
		if of == queue && len(b.names[i]) < mostAcks {
			b.names[i] = append(b.names[i], delivery)
			return b.written
		}
	}
	b.queues, b.names = append(b.queues, queue), append(b.names, []string{delivery})
	return b.written
}

// take appends the messages to those that have no answer, and returns the channel to be closed when they are written; nil if there are none.
func (b *begins) take(unasked []control) ([]control, chan struct{}) {
	written := b.written
	for i, queue := range b.queues {
		var w writer
		w.begin("begin", 0)
		w.text("queue", queue)
		w.texts("deliveries", b.names[i])
		w.end()
		unasked = append(unasked, control{websocket.TextMessage, w.buf})
	}
	*b = begins{}
	return unasked, written
}
