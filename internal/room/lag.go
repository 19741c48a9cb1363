package room

import (
	"encoding/json"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// A member lags by what it has not been sent, and by what it has been sent and
// its system has not acknowledged: the kernel takes megabytes for a peer that
// does not read. To ask the kernel costs a system call, so it is asked now and
// then.

// lookShare is the share of the bound that may be written to a member between
// two looks at what of it is under way.
const lookShare = 4

// full reports whether more than limit bytes are under way to m.
func (m *Member) full(limit int64) bool {
	if m.unseen >= limit/lookShare || m.underWay > limit {
		m.look()
	}
	return m.underWay > limit
}

// look asks the kernel how much is under way to m.
func (m *Member) look() { m.unseen, m.underWay = 0, int64(m.conn.Backlog()) }

// checkLag has a member that lags too far skip ahead, or closes it.
func (s *share) checkLag(m *Member) {
	cfg := s.room.hub.cfg
	if s.head-m.pos+m.underWay > cfg.MaxLagBytes {
		m.look() // it may have taken much since
	}
	if s.head-m.pos+m.underWay <= cfg.MaxLagBytes && s.now.Sub(m.blocked) <= cfg.MaxLagAge {
		return
	}
	s.skipAhead(m)
	if m.disconnect {
		m.expel()
		return
	}
	m.lagging = true
}

// skipAhead leaves out what m has not been sent.
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

// caughtUp reports whether m, which has skipped, takes messages again: then it
// is told how many it missed.
func (s *share) caughtUp(m *Member) bool {
	m.underWay = int64(m.conn.Backlog())
	if m.underWay > s.room.hub.cfg.MaxLagBytes/2 || m.conn.Unsent() > 0 {
		return false
	}
	notice, _ := json.Marshal(struct {
		Type   string `json:"type"`
		Room   string `json:"room"`
		Missed int    `json:"missed"`
	}{"gap", s.room.name, m.missed}) // fails for no string and no number
	m.conn.Queue(websocket.OpText, notice)
	m.conn.Flush()
	m.lagging, m.missed, m.unseen = false, 0, 0
	return true
}
