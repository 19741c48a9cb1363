package stream

import (
	"sync"
	"sync/atomic"
)

// Peers passes what one process has committed to the Hubs of others, so that these need not read it from PostgreSQL.
// It may lose, repeat and reorder pages: a Hub delivers a page only if it follows directly on what the Hub has, and
// else reads from PostgreSQL. But it must connect only Hubs on the same database.
//
// Its methods may be called from any goroutine, and must not block.
type Peers interface {
	// Send passes a page of a stream to the other processes that listen to it. It does not keep the page.
	Send(stream int32, page []byte)
	// Listen calls receive with each page of the stream that another process sends, until stop. receive does not
	// block, and does not keep the page. It may still be called after stop.
	Listen(stream int32, receive func(page []byte)) (stop func())
}

// PeersStats counts since the start.
type PeersStats struct {
	Pages uint64 // pages and hints of other processes
	Holes uint64 // how often a page of this process or of another one did not follow on what the Hub had, so that PostgreSQL was read
}

type peersCounts struct{ pages, holes atomic.Uint64 }

// PeersStats returns what has come from Peers.
func (h *Hub) PeersStats() PeersStats {
	return PeersStats{h.peers.pages.Load(), h.peers.holes.Load()}
}

var encodedPages = sync.Pool{New: func() any { return new([]byte) }}

// keepEncoded is the size up to which the memory of an encoded page is used again, in bytes.
const keepEncoded = 1 << 20

// send passes on what this process has committed: the messages, if they are known, and that the stream ends at
// position last, or 0.
func (h *Hub) send(s *Stream, p tailPage, last int64) {
	if h.cfg.Peers == nil {
		return
	}
	if !p.fits(&h.cfg) {
		p = tailPage{}
	}
	encoded := encodedPages.Get().(*[]byte)
	page := appendPage((*encoded)[:0], p, last)
	h.cfg.Peers.Send(s.id, page)
	if cap(page) <= keepEncoded {
		*encoded = page
		encodedPages.Put(encoded)
	}
}

// listen makes the feed get what other processes commit. The caller holds mu.
func (h *Hub) listen(f *feed) (stop func()) {
	if h.cfg.Peers == nil {
		return func() {}
	}
	return h.cfg.Peers.Listen(f.stream.id, func(page []byte) {
		h.peers.pages.Add(1)
		p, last, err := decodePage(page)
		if err != nil { // a newer version may have sent it: at least the stream has grown
			p, last = tailPage{}, 0
		}
		h.grown(f, p, last)
	})
}

// grown gives the feed what was committed, here or elsewhere.
func (h *Hub) grown(f *feed, p tailPage, last int64) {
	h.mu.Lock()
	subscribers := f.subscribers
	h.mu.Unlock()
	switch {
	case len(p.messages) == 0:
		f.heard(last)
	case subscribers > 0:
		f.grown(p)
	default:
		f.grownAlone(p)
	}
}

// heard takes note that the stream has grown up to a position, or 0 if that is not known.
func (f *feed) heard(last int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last == 0 || last > f.told {
		f.hintLocked()
	}
}
