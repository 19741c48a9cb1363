package natsrelay

import (
	"bytes"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// outboxBytes bounds what waits for a NATS server that takes nothing. More is lost.
const outboxBytes = 64 << 20

var errBehind = errors.New("natsrelay: the NATS server takes too little")

// outbox does in a goroutine of its own, and in order, what may wait for a NATS server on another machine: the client library
// writes to the socket while it holds its lock.
type outbox struct {
	conn *nats.Conn
	wake chan struct{} // one slot: there is something to do

	mu      sync.Mutex
	bytes   int
	waiting []action
}

// action is a message to publish, or something else to do.
type action struct {
	subject string
	message []byte
	do      func()
}

func newOutbox(conn *nats.Conn) *outbox { return &outbox{conn: conn, wake: make(chan struct{}, 1)} }

func (o *outbox) add(a action) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bytes+len(a.message) > outboxBytes {
		return errBehind
	}
	o.bytes += len(a.message)
	o.waiting = append(o.waiting, a)
	select {
	case o.wake <- struct{}{}:
	default:
	}
	return nil
}

func (o *outbox) publish(subject string, message []byte) error {
	return o.add(action{subject: subject, message: bytes.Clone(message)})
}

// listen begins to listen, and ends that, after what has been added before.
func (o *outbox) listen(begin func() (stop func(), err error)) (stop func(), err error) {
	end := func() {} // used only by run
	err = o.add(action{do: func() {
		if stop, err := begin(); err == nil { // else the connection is closed
			end = stop
		}
	}})
	return func() { o.add(action{do: func() { end() }}) }, err
}

// run works until quit.
func (o *outbox) run(quit <-chan struct{}) {
	for {
		select {
		case <-o.wake:
			o.work()
		case <-quit:
			return
		}
	}
}

// work does all that waits.
func (o *outbox) work() {
	o.mu.Lock()
	taken := o.waiting
	o.waiting = nil
	o.mu.Unlock()
	for _, a := range taken {
		if a.do != nil {
			a.do()
			continue
		}
		o.conn.Publish(a.subject, a.message) // what is lost is a hole in the numbers of its sender
		o.mu.Lock()
		o.bytes -= len(a.message)
		o.mu.Unlock()
	}
}

// drain waits until no message waits any more, for a second at most.
func (o *outbox) drain() {
	for range 100 {
		o.mu.Lock()
		empty := o.bytes == 0
		o.mu.Unlock()
		if empty {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
