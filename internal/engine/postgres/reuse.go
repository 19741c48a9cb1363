package postgres

import (
	"errors"
	"sync"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// A small publish or enqueue is so cheap that its allocations would be most of its
// cost. Packages stream and queue keep no slice of messages, so calls take turns with
// a few; and each call's callback is a method of a record that is used again.

// lender lends slices of T (object pool).
type lender[T any] struct{ pool sync.Pool }

// lend returns a slice of n zero elements.
func (l *lender[T]) lend(n int) *[]T {
	lent, ok := l.pool.Get().(*[]T)
	if !ok {
		lent = new([]T)
	}
	if cap(*lent) < n {
		*lent = make([]T, n)
	}
	*lent = (*lent)[:n]
	return lent
}

// giveBack takes a slice that nobody uses any more. It does not keep what the elements refer to.
func (l *lender[T]) giveBack(lent *[]T) {
	clear(*lent)
	l.pool.Put(lent)
}

var (
	queueMessages  lender[queue.Message]
	streamMessages lender[stream.Message]
)

// enqueuing is an accepted call of Enqueue.
type enqueuing struct {
	queues *queues
	queue  *openQueue
	tell   func(engine.Place, error)
	done   func(queue.Enqueued, error) // answer, bound once
}

var enqueuings sync.Pool

func (s *queues) enqueuing(o *openQueue, tell func(engine.Place, error)) *enqueuing {
	e, ok := enqueuings.Get().(*enqueuing)
	if !ok {
		e = new(enqueuing)
		e.done = e.answer
	}
	e.queues, e.queue, e.tell = s, o, tell
	return e
}

func (e *enqueuing) recycle() {
	*e = enqueuing{done: e.done}
	enqueuings.Put(e)
}

// answer answers the call, and ends the enqueuing.
func (e *enqueuing) answer(at queue.Enqueued, err error) {
	s, o, tell := e.queues, e.queue, e.tell
	e.recycle()
	o.progress.end()
	if errors.Is(err, queue.ErrNotFound) {
		s.end(o)
	}
	place := engine.Place{Partition: -1, Position: at.First, Count: at.Count, Duplicate: at.Duplicate}
	if errors.Is(err, queue.ErrDuplicate) {
		err = nil
	}
	tell(place, engineError(err))
}

// publishing is an accepted call of Publish.
type publishing struct {
	streams *streams
	stream  *openStream
	tell    func(engine.Place, error)
	done    func(stream.Appended, error) // answer, bound once
}

var publishings sync.Pool

func (s *streams) publishing(o *openStream, tell func(engine.Place, error)) *publishing {
	p, ok := publishings.Get().(*publishing)
	if !ok {
		p = new(publishing)
		p.done = p.answer
	}
	p.streams, p.stream, p.tell = s, o, tell
	return p
}

func (p *publishing) recycle() {
	*p = publishing{done: p.done}
	publishings.Put(p)
}

// answer answers the call, and ends the publishing.
func (p *publishing) answer(at stream.Appended, err error) {
	s, o, tell := p.streams, p.stream, p.tell
	p.recycle()
	o.progress.end()
	if errors.Is(err, stream.ErrNotFound) {
		s.forget(o)
	}
	place := engine.Place{Partition: at.Partition, Position: at.First, Count: at.Count(), Duplicate: at.Duplicate}
	if o.Partitions() == 0 {
		place.Partition = -1
	}
	tell(place, engineError(err))
}
