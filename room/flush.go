package room

import (
	"encoding/json"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

const (
	minPause = time.Millisecond
	maxPause = 5 * time.Millisecond
	// retryPause is when a member is tried again whose socket took nothing.
	retryPause = 20 * time.Millisecond
)

// run flushes the room while it has members.
func (r *Room) run() {
	timer := time.NewTimer(0)
	<-timer.C
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
		timer.Reset(min(max(4*took, minPause), maxPause))
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

// flush is one pass over the members, and its memory.
type flush struct {
	members []*Member
	chunks  []chunk // of the log, from the oldest offset of a member on
	head    int64
	behind  int // members that have not got everything
}

type chunk struct {
	start int64
	bytes []byte
}

func (r *Room) flush(f *flush, now time.Time) {
	r.snapshot(f)
	f.behind = 0
	oldest := f.head
	delivered := 0
	for _, m := range f.members {
		from := m.pos
		if m.pos < f.head {
			delivered += r.write(m, f)
		}
		switch {
		case m.pos == f.head:
			m.blocked = time.Time{}
		case m.pos > from || m.blocked.IsZero():
			m.blocked = now
			fallthrough
		default:
			f.behind++
			r.checkLag(m, f, now)
		}
		oldest = min(oldest, m.pos)
	}
	r.hub.deliveries.Add(uint64(delivered))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log.release(oldest)
}

// snapshot takes what the pass works on: bytes of the log never change once
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
	f.members = append(f.members[:0], r.members...)
	f.head = r.log.head
	f.chunks = f.chunks[:0]
	for _, s := range r.log.segs {
		f.chunks = append(f.chunks, chunk{s.start, (*s.buf)[:len(*s.buf):len(*s.buf)]})
	}
}

// write offers m all that it has not seen but its own messages, until its
// socket takes no more, and returns how many messages it took.
func (r *Room) write(m *Member, f *flush) (delivered int) {
	for m.pos < f.head {
		if len(m.skip) > 0 && m.skip[0].start == m.pos {
			m.pos = m.skip[0].end
			m.skip = m.skip[:copy(m.skip, m.skip[1:])]
			continue
		}
		part := f.from(m.pos)
		if len(m.skip) > 0 {
			part = part[:min(int64(len(part)), m.skip[0].start-m.pos)]
		}
		n, err := m.conn.WriteShared(part)
		if err != nil {
			m.pos, m.skip = f.head, m.skip[:0] // it is gone, and will leave
			return delivered
		}
		if n == 0 {
			return delivered
		}
		delivered += f.count(part[:n])
		m.pos += int64(n)
		if n < len(part) {
			return delivered
		}
	}
	return delivered
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

// count returns how many frames b is.
func (f *flush) count(b []byte) (frames int) {
	for len(b) > 0 {
		h, n, err := websocket.ParseHeader(b)
		if err != nil || n == 0 {
			return frames
		}
		b = b[n+int(h.Length):]
		frames++
	}
	return frames
}

// checkLag has a member that is too far behind skip ahead, or closes it.
func (r *Room) checkLag(m *Member, f *flush, now time.Time) {
	cfg := r.hub.cfg
	if f.head-m.pos+int64(m.conn.Unsent()) <= cfg.MaxLagBytes && now.Sub(m.blocked) <= cfg.MaxLagAge {
		return
	}
	r.mu.Lock()
	missed := r.log.between(m.pos, f.head) - len(m.skip)
	r.mu.Unlock()
	m.pos, m.skip, m.blocked = f.head, m.skip[:0], time.Time{}
	r.hub.missed.Add(uint64(missed))
	if m.disconnect {
		m.expel()
		return
	}
	notice, _ := json.Marshal(struct {
		Type   string `json:"type"`
		Room   string `json:"room"`
		Missed int    `json:"missed"`
	}{"gap", r.name, missed})
	m.conn.Queue(websocket.OpText, notice)
	m.conn.Flush()
}
