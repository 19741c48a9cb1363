package gateway

import (
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/wire"
)

// storing is a request whose messages a store has accepted. The requests of all
// connections share a pool of them, so that an answer allocates nothing.
type storing struct {
	session *session
	by      asked     // keeps only this of the request
	began   time.Time // zero if its time is not measured
	count   int       // sent if the request has a list of messages
	stores  int       // number of messages
	first   engine.Place
	done    func(first engine.Place, err error) // answer, bound once
}

var storings sync.Pool

// storing returns the storing of a request with that many messages.
func (s *session) storing(r *request, messages int) *storing {
	a, ok := storings.Get().(*storing)
	if !ok {
		a = new(storing)
		a.done = a.answer
	}
	a.session, a.by, a.began, a.stores, a.count = s, r.asked(), s.server.latency.Begin(), messages, 0
	if r.Has(wire.FieldMessages) {
		a.count = messages
	}
	return a
}

// recycle returns a to the pool.
func (a *storing) recycle() {
	*a = storing{done: a.done}
	storings.Put(a)
}

// answer answers the request, and ends the storing.
func (a *storing) answer(first engine.Place, err error) {
	s := a.session
	defer s.pending.done()
	if err != nil {
		s.fail(a.by, err, codeNotStored)
	} else {
		if !first.Duplicate {
			s.server.stored.Add(uint64(a.stores))
		}
		s.server.latency.End(a.began)
		a.first = first
		s.ok(a.by, stored(&a.first, a.count))
	}
	if a.by.ID != nil {
		s.server.flusher.later(s.conn)
	}
	a.recycle()
}
