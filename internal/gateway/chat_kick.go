package gateway

import (
	"time"

	"github.com/tidewire/tidewire/internal/room"
)

// wasKicked has the reading goroutine tell the client that a membership was ended. The membership has ended already.
func (p *participant) wasKicked() {
	p.conn.kicked.Store(true)
	p.conn.SetReadDeadline(time.Now())
}

// noticeKicks tells the client of which rooms it is no member any more. p.mu is held.
func (p *participant) noticeKicks() {
	if !p.conn.kicked.Load() || !p.conn.kicked.Swap(false) {
		return
	}
	for name := range p.rooms {
		p.member(name)
	}
}

// member returns the membership in a room, or nil. If a kick has ended it, the client is told so. p.mu is held.
func (p *participant) member(name string) *room.Member {
	m := p.rooms[name]
	if m == nil || !m.Left() {
		return m
	}
	delete(p.rooms, name)
	delete(p.watching, name)
	p.outside = p.outside || name == defaultRoom
	with := refusal(codeKicked)
	with.Room = name
	p.send(with.complete())
	return nil
}
