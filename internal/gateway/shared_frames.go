package gateway

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tidewire/tidewire/internal/wire"
	"github.com/tidewire/tidewire/websocket"
)

const (
	// sharedChunk is the size in bytes from which a sharedFrames begins a new chunk. It keeps the chunk before that, too.
	sharedChunk = 512 << 10
	// maxShared is how many of them a server has: together they hold some 16 MiB, more only while their messages are large.
	maxShared = 16
)

// sharedFrames are the last messages of a stream as frames, which are encoded once for all subscriptions that want the same. Chunks are
// appended to and never changed: those who send hold parts of them. Safe for concurrent use.
type sharedFrames struct {
	users atomic.Int32           // subscriptions; changed with sharedSet.mu held
	with  *websocket.Compression // of all frames; nil without compression

	mu       sync.Mutex
	old, now frameRun
}

// frameRun is a run of consecutive messages.
type frameRun struct {
	after  int64 // the position before the first
	frames []byte
	ends   []frameEnd
}

// frameEnd is where the frame of a message ends.
type frameEnd struct {
	position int64
	end      int
}

// last is the position up to which the run goes.
func (r *frameRun) last() int64 {
	if len(r.ends) == 0 {
		return r.after
	}
	return r.ends[len(r.ends)-1].position
}

// find returns the frames of the messages of a page that are in the run, from its first one on, and how many these are. It returns a negative
// number if the run has other messages in between: those that a failover has lost.
func (r *frameRun) find(p *page) (frames []byte, n int) {
	i, found := slices.BinarySearchFunc(r.ends, p.position(0), func(e frameEnd, position int64) int { return cmp.Compare(e.position, position) })
	if !found {
		return nil, 0
	}
	from := 0
	if i > 0 {
		from = r.ends[i-1].end
	}
	for n = range min(p.size, len(r.ends)-i) {
		if r.ends[i+n].position != p.position(n) {
			return nil, -1
		}
	}
	n++
	return r.frames[from:r.ends[i+n-1].end:r.ends[i+n-1].end], n
}

// of returns the frames of a page that follows a position, in one or two parts; or none, if the page is older than what is kept.
func (s *sharedFrames) of(after int64, p *page, w *wire.Writer) (parts [2][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := 0
	parts[0], found = s.old.find(p)
	switch {
	case found == p.size:
		return parts
	case found == 0 && p.position(0) <= s.now.after:
		return parts // older
	case found < 0, found == 0 && p.position(0) > s.now.last() && after != s.now.last(): // after a gap
		s.restart(after)
		found = 0
	}
	rest := page{size: p.size - found, position: func(n int) int64 { return p.position(n + found) }, write: func(w *wire.Writer, n int) { p.write(w, n+found) }}
	s.extend(&rest, w)
	frames, n := s.now.find(&rest)
	if n < rest.size {
		s.restart(after)
		s.extend(p, w)
		frames, _ = s.now.find(p)
		return [2][]byte{frames}
	}
	parts[1] = frames
	return parts
}

// restart forgets everything. The next message follows a position.
func (s *sharedFrames) restart(after int64) { s.old, s.now = frameRun{}, frameRun{after: after} }

// extend adds what is not there of a page whose messages are in the run, or directly after it.
func (s *sharedFrames) extend(p *page, w *wire.Writer) {
	if len(s.now.frames) >= sharedChunk && p.position(0) > s.now.last() {
		s.old, s.now = s.now, frameRun{after: s.now.last()}
	}
	for i := range p.size {
		position := p.position(i)
		if position <= s.now.last() {
			continue
		}
		w.Buf = w.Buf[:0]
		p.write(w, i)
		s.now.frames = s.with.AppendFrame(s.now.frames, opcode(w.Encoding), w.Buf)
		s.now.ends = append(s.now.ends, frameEnd{position, len(s.now.frames)})
	}
}

// sharedKey says what subscriptions have in common that get the same bytes.
type sharedKey struct {
	stream, subscription string
	encoding             wire.Encoding
	filter               filterSum
	with                 *websocket.Compression
}

// sharedSet are those of a server.
type sharedSet struct {
	mu  sync.Mutex
	all map[sharedKey]*sharedFrames
}

// enter returns what a subscription shares with others, nil if there is too much of it. Call leave at its end.
func (s *sharedSet) enter(key sharedKey) *sharedFrames {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.all[key]
	if f == nil {
		if len(s.all) >= maxShared {
			return nil
		}
		if s.all == nil {
			s.all = make(map[sharedKey]*sharedFrames)
		}
		f = &sharedFrames{with: key.with}
		s.all[key] = f
	}
	f.users.Add(1)
	return f
}

func (s *sharedSet) leave(key sharedKey, f *sharedFrames) {
	if f == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.users.Add(-1) == 0 {
		delete(s.all, key)
	}
}
