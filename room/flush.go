package room

import (
	"runtime"
	"sync"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

const (
	// minPause and maxPause bound how long messages gather between two flushes.
	// In between, the pause is as long as the last flush took: the flusher
	// sleeps for half of its time, and the busier it is the more a write holds.
	minPause = time.Millisecond
	maxPause = 5 * time.Millisecond
	// retryPause is when a member is tried again whose socket took nothing.
	retryPause = 20 * time.Millisecond
	// shareSize is how many members are worth a goroutine of their own: writing
	// to them takes about a millisecond.
	shareSize = 250
)

// run flushes the room while it has members.
func (r *Room) run() {
	timer := stoppedTimer()
	defer timer.Stop()
	var f flush
	var took time.Duration
	for {
		var retry <-chan time.Time
		if f.behind > 0 {
			timer.Reset(retryPause)
			retry = timer.C
		}
		select {
		case <-r.wake:
		case <-retry:
		case <-r.done:
			return
		}
		timer.Reset(min(max(took, minPause), maxPause))
		select {
		case <-timer.C:
		case <-r.done:
			return
		}
		start := time.Now()
		r.flush(&f, start)
		took = time.Since(start)
	}
}

// flush is one offer to all members, and its memory.
type flush struct {
	room    *Room
	now     time.Time
	members []*Member
	chunks  []chunk // of the log, from the oldest offset of a member on
	head    int64
	behind  int // members that have not got everything
	shares  []share
}

type chunk struct {
	start int64
	bytes []byte
}

// share is a part of the members, served by one goroutine, and what came of it.
type share struct {
	*flush
	members   []*Member
	oldest    int64 // offset of a member
	delivered int
	missed    int
	behind    int

	// The last run of frames counted: nearly all members get the same.
	countedAt, countedTo int64
	counted              int
}

func (r *Room) flush(f *flush, now time.Time) {
	f.room, f.now = r, now
	r.snapshot(f)
	f.split()
	var others sync.WaitGroup
	for i := range f.shares[1:] {
		others.Go(f.shares[i+1].serve)
	}
	f.shares[0].serve()
	others.Wait()

	oldest, delivered, missed := f.head, 0, 0
	f.behind = 0
	for _, s := range f.shares {
		oldest = min(oldest, s.oldest)
		delivered += s.delivered
		missed += s.missed
		f.behind += s.behind
	}
	r.hub.deliveries.Add(uint64(delivered))
	r.hub.missed.Add(uint64(missed))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log.release(oldest)
}

// snapshot takes what the flush works on: bytes of the log never change once
// they are there, so that only taking them needs the lock.
func (r *Room) snapshot(f *flush) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.spoke {
		m.skip = append(m.skip, m.own...)
		m.own = m.own[:0]
	}
	clear(r.spoke)
	r.spoke = r.spoke[:0]
	clear(f.members)
	f.members = append(f.members[:0], r.members...)
	f.head = r.log.head
	f.chunks = f.chunks[:0]
	for _, s := range r.log.segs {
		f.chunks = append(f.chunks, chunk{s.start, (*s.buf)[:len(*s.buf):len(*s.buf)]})
	}
}

// split shares the members out over the processors.
func (f *flush) split() {
	n := min(max(len(f.members)/shareSize, 1), runtime.GOMAXPROCS(0))
	f.shares = f.shares[:0]
	for i := range n {
		part := f.members[i*len(f.members)/n : (i+1)*len(f.members)/n]
		f.shares = append(f.shares, share{flush: f, members: part, oldest: f.head, countedAt: -1})
	}
}

func (s *share) serve() {
	for _, m := range s.members {
		s.offer(m)
		if m.pos < s.head || m.lagging {
			s.behind++
		}
		s.oldest = min(s.oldest, m.pos)
	}
}

// offer gives m all that it has not seen, as far as its socket takes it.
func (s *share) offer(m *Member) {
	if m.lagging && !s.caughtUp(m) {
		s.skipAhead(m)
		return
	}
	from := m.pos
	if m.pos < s.head && !m.full(s.room.hub.cfg.MaxLagBytes) {
		s.write(m)
	}
	switch {
	case m.pos == s.head:
		m.blocked = time.Time{}
		return
	case m.pos > from || m.blocked.IsZero():
		m.blocked = s.now
	}
	s.checkLag(m)
}

// write offers m's socket everything but its own messages, until it takes no
// more.
func (s *share) write(m *Member) {
	for m.pos < s.head {
		if len(m.skip) > 0 && m.skip[0].start == m.pos {
			m.pos = m.skip[0].end
			m.skip = m.skip[:copy(m.skip, m.skip[1:])]
			continue
		}
		part := s.from(m.pos)
		if len(m.skip) > 0 {
			part = part[:min(int64(len(part)), m.skip[0].start-m.pos)]
		}
		n, err := m.conn.WriteShared(part)
		if err != nil {
			m.pos, m.skip = s.head, m.skip[:0] // it is gone, and will leave
			return
		}
		if n == 0 {
			return
		}
		s.delivered += s.count(m.pos, part[:n])
		m.pos += int64(n)
		m.unseen += int64(n)
		if n < len(part) {
			return
		}
	}
}

// from returns the bytes at an offset up to the end of their segment.
func (f *flush) from(offset int64) []byte {
	for i := len(f.chunks) - 1; i >= 0; i-- {
		if c := f.chunks[i]; offset >= c.start {
			return c.bytes[offset-c.start:]
		}
	}
	return nil
}

// count returns how many frames b is, which begins at an offset.
func (s *share) count(offset int64, b []byte) int {
	if end := offset + int64(len(b)); offset != s.countedAt || end != s.countedTo {
		s.countedAt, s.countedTo, s.counted = offset, end, frames(b)
	}
	return s.counted
}

// frames returns how many frames b is.
func frames(b []byte) (n int) {
	for len(b) > 0 {
		h, size, err := websocket.ParseHeader(b)
		if err != nil || size == 0 {
			return n
		}
		b = b[size+int(h.Length):]
		n++
	}
	return n
}
