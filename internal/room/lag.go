package room

import (
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// A member's lag is the bytes not sent to it, plus the bytes sent and not
// acknowledged by its kernel: the local kernel takes megabytes for a peer that
// does not read. Asking the kernel costs a system call, so it is asked only now
// and then.

// lookShare: a quarter of the lag limit may be written to a member before the
// kernel is asked again.
const lookShare = 4

// full reports whether more than limit bytes are in flight to m.
func (m *Member) full(limit int64) bool {
	if m.unseen >= limit/lookShare || m.inFlight > limit {
		m.look()
	}
	return m.inFlight > limit
}

// look asks the kernel how many bytes are in flight to m.
func (m *Member) look() { m.unseen, m.inFlight = 0, int64(m.conn.Backlog()) }

// checkLag makes a member that lags too far skip ahead, or closes its
// connection.
func (s *share) checkLag(m *Member) {
	cfg := s.room.hub.cfg
	if s.head-m.pos+m.inFlight > cfg.MaxLagBytes {
		m.look() // much may have been acknowledged since
	}
	if s.head-m.pos+m.inFlight <= cfg.MaxLagBytes && s.now.Sub(m.blocked) <= cfg.MaxLagAge {
		return
	}
	s.skipAhead(m)
	if m.disconnect {
		m.expel()
		return
	}
	m.lagging = true
}

// skipAhead skips all messages that have not been sent to m.
func (s *share) skipAhead(m *Member) {
	if m.pos == s.head {
		return
	}
	s.room.mu.Lock()
	missed := s.room.log.between(m.pos, s.head) - len(m.skip)
	s.room.mu.Unlock()
	m.pos, m.skip, m.blocked = s.head, m.skip[:0], time.Time{}
	m.missed += missed
	s.missed += missed
}

// caughtUp reports whether a lagging m can take messages again, and then tells
// it how many it missed.
func (s *share) caughtUp(m *Member) bool {
	m.inFlight = int64(m.conn.Backlog())
	if m.inFlight > s.room.hub.cfg.MaxLagBytes/2 || m.conn.Unsent() > 0 {
		return false
	}
	m.conn.Queue(websocket.OpText, GapNotice(s.room.name, m.missed))
	m.conn.Flush()
	m.lagging, m.missed, m.unseen = false, 0, 0
	return true
}
