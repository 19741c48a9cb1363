package queue

import (
	"sync"

	"github.com/tidewire/tidewire/stream"
)

// plainMessages are messages as the stream stores them, while an Enqueuer hands them to
// an Appender, which keeps none of the slice. Calls take turns with a few of them
// (object pool): the allocations of a small enqueue would be most of its cost.
type plainMessages struct{ messages []stream.Message }

var plainPool = sync.Pool{New: func() any { return new(plainMessages) }}

// lendPlain returns n zero messages.
func lendPlain(n int) *plainMessages {
	p := plainPool.Get().(*plainMessages)
	if cap(p.messages) < n {
		p.messages = make([]stream.Message, n)
	}
	p.messages = p.messages[:n]
	return p
}

// giveBack ends the use of p. The messages are forgotten, because their payloads may be large.
func (p *plainMessages) giveBack() {
	clear(p.messages)
	plainPool.Put(p)
}

// call is one Submit that an Appender has accepted.
type call struct {
	enqueuer *Enqueuer
	to       int
	tell     func(Enqueued, error)
	done     func(stream.Appended, error) // answer, bound once
}

var calls sync.Pool

func (p *Enqueuer) call(to int, tell func(Enqueued, error)) *call {
	c, ok := calls.Get().(*call)
	if !ok {
		c = new(call)
		c.done = c.answer
	}
	c.enqueuer, c.to, c.tell = p, to, tell
	return c
}

func (c *call) recycle() {
	*c = call{done: c.done}
	calls.Put(c)
}

// answer answers the Submit, and ends the call.
func (c *call) answer(at stream.Appended, err error) {
	p, to, tell := c.enqueuer, c.to, c.tell
	c.recycle()
	tell(p.answer(to, at, err))
}
