package multinode

import (
	"fmt"
	"slices"
	"sync"
)

// room checks a live room. It has the history of each member: what it sent, what it received, and how many chats it was told to have
// missed. Safe for concurrent use.
//
// A chat names the session of its sender and its number in that session, from 1. A node sends chats of its members to other nodes in one
// order, and tells before each chat how many are missing before it. So a member must have been told of at least as many chats
// as are missing between those that it has, at any time. It must not be told of more than have been sent by members of other nodes and
// have reached no member of its node.
//
// Chats between two members of one node must not be missing. These may be missing without being told: the chats of a node that
// is killed, after the last that another node has received; and those before the first that a member has received from a node.
type room struct {
	ledger  *Ledger
	members int // how many clients are in the room, except while they connect again

	mu       sync.Mutex // guards the fields below, and all sessions and hosts
	sessions []*session // by id
	hosts    map[life]*host
	changes  int // of the sessions' starts, and of who knows which host: a clock
}

// host is what the room has on one process of a node.
type host struct {
	sent map[int]int      // by session: what was acknowledged when the room began here
	seen map[int]*numbers // by session: what any member here has received
}

// session is a member of the room, from its join until its connection ends.
type session struct {
	id     int
	user   string
	life   life
	host   *host
	began  int // this and the next one are times by the room's clock
	joined int // 0 before the answer to its join
	ended  bool

	sent, acked int // numbers of the last chats that it has sent, and that were acknowledged

	heard map[int]*heard // by the sender's session
	knows map[life]int   // of other nodes: when the first chat of one came, by the room's clock
	holes int            // chats that are missing between those that came
	told  int            // chats that it was told to have missed

	watches bool
	users   map[string]bool // who is in the room, as it was told
	count   int             // how many connections are
}

// heard is what a session has received of another one.
type heard struct {
	first int // number of the first chat that counts
	last  int
	got   numbers
}

func newRoom(l *Ledger, members int) *room {
	return &room{ledger: l, members: members, hosts: make(map[life]*host)}
}

// begin adds a session, which is about to join.
func (r *room) begin(user string, at life, watches bool) *session {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.hosts[at]
	if h == nil {
		h = &host{sent: make(map[int]int), seen: make(map[int]*numbers)}
		for _, s := range r.sessions {
			h.sent[s.id] = s.acked
		}
		r.hosts[at] = h
	}
	r.changes++
	s := &session{
		id: len(r.sessions), user: user, life: at, host: h, began: r.changes, watches: watches,
		heard: make(map[int]*heard), knows: make(map[life]int), users: make(map[string]bool),
	}
	r.sessions = append(r.sessions, s)
	return s
}

// join records that the join was acknowledged.
func (r *room) join(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes++
	s.joined = r.changes
}

// end records that the session's connection has ended, or is about to.
func (r *room) end(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.ended = true
}

// send returns the number of the session's next chat.
func (r *room) send(s *session) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.sent++
	return s.sent
}

// ack records that a chat was acknowledged. A node takes the chats of a connection in their order.
func (r *room) ack(s *session, number int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.acked = max(s.acked, number)
}

// receive records a chat.
func (r *room) receive(s *session, from, number int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if from < 0 || from >= len(r.sessions) || from == s.id || number < 1 || number > r.sessions[from].sent {
		r.ledger.Break(PromiseRoomOnce, "%s got chat %d of session %d, which has not sent it to this member", s, number, from)
		return
	}
	sender := r.sessions[from]
	h := s.heard[from]
	if h == nil {
		h = s.hear(sender, number)
	}
	switch {
	case h.got.has(number):
		r.ledger.Break(PromiseRoomOnce, "%s got chat %d of %s again, after %d", s, number, sender, h.last)
		return
	case number < h.last:
		r.ledger.Break(PromiseRoomOrder, "%s got chat %d of %s after %d", s, number, sender, h.last)
	case number > h.last+1:
		r.hole(s, sender, h.last, number)
	}
	h.last = max(h.last, number)
	h.got.add(number)
	r.see(s, sender, number)
}

// hear begins to count the chats of a sender. If the sender has joined after the member's node was in contact with its node,
// everything that it sent counts; otherwise what follows the first chat.
func (s *session) hear(sender *session, number int) *heard {
	h := &heard{first: number, last: number - 1}
	since, known := s.knows[sender.life]
	if s.life == sender.life {
		since, known = s.joined, s.joined > 0
	}
	if known && sender.began > since {
		h.first, h.last = 1, 0
	}
	s.heard[sender.id] = h
	return h
}

// hole records that chats between two numbers are missing.
func (r *room) hole(s, sender *session, last, number int) {
	missing := number - last - 1
	if s.life == sender.life {
		r.ledger.Break(PromiseRoomTold, "%s got chat %d of %s, on the same node, after %d", s, number, sender, last)
		return
	}
	if s.holes += missing; s.holes > s.told {
		r.ledger.Break(PromiseRoomTold, "%s got chat %d of %s after %d: it misses %d chats and was told of %d", s, number, sender, last, s.holes, s.told)
	}
}

// see records what has reached the member's node.
func (r *room) see(s, sender *session, number int) {
	if _, ok := s.knows[sender.life]; !ok && s.life != sender.life {
		r.changes++
		s.knows[sender.life] = r.changes
	}
	n := s.host.seen[sender.id]
	if n == nil {
		n = &numbers{}
		s.host.seen[sender.id] = n
	}
	n.add(number)
}

// gap records that the member was told of missing chats.
func (r *room) gap(s *session, missed int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.told += missed
	if most := r.missable(s); s.told > most {
		r.ledger.Break(PromiseRoomTold, "%s was told of %d missing chats, and only %d can be missing", s, s.told, most)
	}
}

// missable returns how many chats of other nodes' members have not reached the member's node, and were sent since the room began
// there.
func (r *room) missable(s *session) (most int) {
	for _, sender := range r.sessions {
		if sender.life == s.life {
			continue
		}
		since := s.host.sent[sender.id]
		most += sender.sent - since - s.host.seen[sender.id].within(since+1, sender.sent)
	}
	return most
}

// quiet reports whether every chat is acknowledged.
func (r *room) quiet() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.ContainsFunc(r.sessions, func(s *session) bool { return !s.ended && s.acked < s.sent })
}

// snapshot returns what each session has sent that is still there: the numbers of the last acknowledged chats.
func (r *room) snapshot() map[int]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent := make(map[int]int)
	for _, s := range r.sessions {
		if !s.ended {
			sent[s.id] = s.acked
		}
	}
	return sent
}

// open returns how many chats of the snapshot at least one member has neither received nor been told of.
func (r *room) open(sent map[int]int) (most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sessions {
		if s.ended || s.joined == 0 {
			continue
		}
		most = max(most, r.unaccounted(s, sent)-s.told)
	}
	return most
}

// unaccounted returns how many chats of the snapshot a member has not received.
func (r *room) unaccounted(s *session, sent map[int]int) (missing int) {
	for id, last := range sent {
		sender := r.sessions[id]
		h := s.heard[id]
		if sender.ended || id == s.id || h == nil {
			continue // what a node has not relayed when it ends is lost, and not told
		}
		missing += max(last-h.first+1, 0) - h.got.within(h.first, last)
	}
	return missing
}

// check checks, when nothing is under way any more, that each member has received everything or was told so.
func (r *room) check() {
	sent := r.snapshot()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sessions {
		if s.ended || s.joined == 0 {
			continue
		}
		if missing := r.unaccounted(s, sent); missing > s.told {
			r.ledger.Break(PromiseRoomTold, "%s misses %d chats, and was told of %d", s, missing, s.told)
		}
		if most := r.missable(s); s.told > most {
			r.ledger.Break(PromiseRoomTold, "%s was told of %d missing chats, and only %d are missing", s, s.told, most)
		}
	}
}

// present records who is in the room, as a watcher is told. members is nil unless the message has the whole list.
func (r *room) present(s *session, count int, members, joined, left []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if members != nil {
		clear(s.users)
	}
	for _, user := range slices.Concat(members, joined) {
		s.users[user] = true
	}
	for _, user := range left {
		delete(s.users, user)
	}
	s.count = count
}

// wrong returns what the first watcher that is wrong about the room believes, or an empty string if all are right.
func (r *room) wrong() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	users, count := make(map[string]bool), 0
	for _, s := range r.sessions {
		if s.ended {
			continue
		}
		if s.joined == 0 {
			return fmt.Sprintf("%s has not joined", s)
		}
		users[s.user] = true
		count++
	}
	if count < r.members {
		return fmt.Sprintf("%d members are in the room, want %d", count, r.members)
	}
	for _, s := range r.sessions {
		if s.ended || !s.watches {
			continue
		}
		if s.count != count || len(s.users) != len(users) {
			return fmt.Sprintf("%s sees %d connections and %d users, want %d and %d", s, s.count, len(s.users), count, len(users))
		}
		for user := range users {
			if !s.users[user] {
				return fmt.Sprintf("%s does not see %s", s, user)
			}
		}
	}
	return ""
}

func (s *session) String() string {
	return fmt.Sprintf("session %d of %s at node %d.%d", s.id, s.user, s.life.node+1, s.life.number)
}
