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
	roster                       // on all nodes
	elsewhere map[uint64]*others // by node
	watchers  []*watcher

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
	p := &presence{room: r, wake: make(chan struct{}, 1), roster: newRoster(), elsewhere: make(map[uint64]*others), count: len(r.members)}
	for _, m := range r.members {
		p.roster.joined(m.user)
	}
	clear(p.before)
	p.whole = false
	return p
}

// connections returns how many connections are in the room, on all nodes. room.mu is held.
func (p *presence) connections() int {
	n := len(p.room.members)
	for _, o := range p.elsewhere {
		n += o.count
	}
	return n
}

// joined records a new connection of user. room.mu is held.
func (p *presence) joined(user string) {
	p.roster.joined(user)
	p.nudge()
}

// left records the end of a connection of user. room.mu is held.
func (p *presence) left(user string) {
	p.roster.left(user)
	p.nudge()
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
	p.room.outlet.watch(false)
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
	s.joined, s.left, s.whole = p.changes()
	count := p.connections()
	s.changed = s.whole || len(s.joined)+len(s.left) > 0 || p.count != count
	p.count = count
	s.wanted = s.wanted || s.whole
	if s.wanted && (s.changed || p.list == nil) {
		s.members, s.truncated = p.some()
		for _, o := range p.elsewhere {
			s.truncated = s.truncated || o.truncated
		}
	}
	return s
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
