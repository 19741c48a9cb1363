package room

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

const (
	// batchPause is how long changes gather: short enough for a live list of
	// names on a screen, and long enough that a thousand joins a second are
	// four frames.
	batchPause = 250 * time.Millisecond
	// maxNames is how many names a list or a batch holds, so that neither the
	// size of a frame nor the time under the room's lock grows with the room.
	maxNames = 1000
	// unwatchedPause is how long a room keeps its names after its last watcher
	// has left. Collecting names visits all members, and a client that leaves
	// and rejoins repeatedly must not cause that each time.
	unwatchedPause = time.Second
)

// presence tells a room's watchers who is in the room. It exists while there are
// watchers, and has a separate goroutine and log, because the other members do
// not get its frames.
//
// A state is the names and the count at one moment. Every batch in the log
// changes one state into the next; a watcher gets a list of the state at the
// log's head, and then the batches after it.
type presence struct {
	room *Room
	wake chan struct{} // one slot: somebody came, left, or wants a list

	// Guarded by room.mu.
	names    map[string]int  // the connections of each user
	before   map[string]bool // users who came or left since the last state, and whether they were in it
	whole    bool            // there were more changes than before may hold
	watchers []*watcher

	// Used only by run.
	count    int        // connections in the last state
	list     []byte     // the last state as a frame; nil if it is not encoded
	log      log        // the batches that some watcher may not have received
	audience []*watcher // the watchers at the last state
}

// listMessage is a complete state, which replaces the watcher's earlier state.
type listMessage struct {
	Type      string   `json:"type"`
	Room      string   `json:"room"`
	Count     int      `json:"count"`
	Members   []string `json:"members"`
	Truncated bool     `json:"truncated,omitempty"`
}

// batchMessage is the changes since the last state.
type batchMessage struct {
	Type   string   `json:"type"`
	Room   string   `json:"room"`
	Count  int      `json:"count"`
	Joined []string `json:"joined,omitempty"`
	Left   []string `json:"left,omitempty"`
}

// newPresence collects the names of a room's members. r.mu is held.
func newPresence(r *Room) *presence {
	p := &presence{
		room:   r,
		wake:   make(chan struct{}, 1),
		names:  make(map[string]int),
		before: make(map[string]bool),
		count:  len(r.members),
	}
	for _, m := range r.members {
		if m.user != "" {
			p.names[m.user]++
		}
	}
	return p
}

// joined records a new connection of user. room.mu is held.
func (p *presence) joined(user string) {
	if user != "" {
		if p.names[user]++; p.names[user] == 1 {
			p.note(user, false)
		}
	}
	p.nudge()
}

// left records the end of a connection of user. room.mu is held.
func (p *presence) left(user string) {
	if user != "" {
		if p.names[user]--; p.names[user] == 0 {
			delete(p.names, user)
			p.note(user, true)
		}
	}
	p.nudge()
}

// note records whether a changed user was in the last state.
func (p *presence) note(user string, was bool) {
	if _, known := p.before[user]; known || p.whole {
		return
	}
	if len(p.before) == maxNames {
		p.whole = true
		clear(p.before)
		return
	}
	p.before[user] = was
}

func (p *presence) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run sends lists and batches until the room is empty, or nobody has watched for
// a while. A change in a quiet room is sent at once; the pause follows it.
func (p *presence) run() {
	pause, retry, unwatched := stoppedTimer(), stoppedTimer(), stoppedTimer()
	defer pause.Stop()
	defer retry.Stop()
	defer unwatched.Stop()
	wake, watched := p.wake, true
	for {
		select {
		case <-wake:
			p.advance()
			wake = nil
			pause.Reset(batchPause)
		case <-pause.C:
			wake = p.wake
			continue
		case <-retry.C:
		case <-unwatched.C:
			if p.retire() {
				return
			}
			watched = true // a watcher has come since the last state
		case <-p.room.done:
			return
		}
		if now := len(p.audience) > 0; now != watched {
			watched = now
			unwatched.Reset(unwatchedPause)
		}
		if p.flush(time.Now()) > 0 {
			retry.Reset(retryPause)
		}
	}
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// retire ends the presence if nobody watches, and reports whether it did.
func (p *presence) retire() bool {
	p.room.mu.Lock()
	defer p.room.mu.Unlock()
	if len(p.watchers) > 0 {
		return false
	}
	p.room.presence = nil
	return true
}

// state is the result of take.
type state struct {
	changed      bool // something has changed since the last state
	wanted       bool // some watcher needs a list
	followed     bool // some watcher has a list
	whole        bool // all watchers need a new list: there were too many changes
	members      []string
	truncated    bool
	joined, left []string
}

// advance takes the current state and encodes the list or batch that it needs.
func (p *presence) advance() {
	s := p.take()
	if s.changed {
		p.list = nil
	}
	if s.wanted && p.list == nil {
		slices.Sort(s.members)
		p.list = frame(listMessage{"presence", p.room.name, p.count, s.members, s.truncated})
	}
	switch {
	case !s.changed || !s.followed:
	case s.whole:
		p.log.append(p.list)
	default:
		slices.Sort(s.joined)
		slices.Sort(s.left)
		p.log.append(frame(batchMessage{"presence", p.room.name, p.count, s.joined, s.left}))
	}
}

// take collects a bounded number of names under the room's lock. advance sorts
// and encodes them without the lock.
func (p *presence) take() (s state) {
	p.room.mu.Lock()
	defer p.room.mu.Unlock()
	clear(p.audience)
	p.audience = append(p.audience[:0], p.watchers...)
	for _, w := range p.audience {
		s.followed = s.followed || w.follows
		s.wanted = s.wanted || !w.follows
	}
	for user, was := range p.before {
		switch is := p.names[user] > 0; {
		case is && !was:
			s.joined = append(s.joined, user)
		case was && !is:
			s.left = append(s.left, user)
		}
	}
	clear(p.before)
	s.whole, p.whole = p.whole, false
	s.changed = s.whole || len(s.joined)+len(s.left) > 0 || p.count != len(p.room.members)
	p.count = len(p.room.members)
	s.wanted = s.wanted || s.whole
	if s.wanted && (s.changed || p.list == nil) {
		s.members, s.truncated = p.some()
	}
	return s
}

// some returns the names of all users, or any maxNames of them: choosing
// particular ones would mean visiting all.
func (p *presence) some() (names []string, truncated bool) {
	names = make([]string, 0, min(len(p.names), maxNames)) // never null in JSON
	for user := range p.names {
		if len(names) == maxNames {
			return names, true
		}
		names = append(names, user)
	}
	return names, false
}

// frame encodes a message, once for all watchers.
func frame(message any) []byte {
	text, _ := json.Marshal(message) // strings and numbers cannot fail
	return websocket.AppendFrame(make([]byte, 0, len(text)+websocket.MaxHeader), websocket.OpText, text)
}

// flush offers the watchers everything that they have not received, and returns
// how many of them lag.
func (p *presence) flush(now time.Time) (lagging int) {
	oldest := p.log.head
	for _, w := range p.audience {
		if !w.offer(p, now) {
			lagging++
		}
		if w.follows {
			oldest = min(oldest, w.pos)
		}
	}
	p.log.release(oldest)
	return lagging
}
