package room

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

const (
	// batchPause is how long changes gather: short enough for a list of names
	// on a screen to look alive, and a thousand joins a second are four frames.
	batchPause = 250 * time.Millisecond
	// maxNames is how many names a list or a batch holds, so that neither a
	// frame nor the time that the room is locked grows with the room.
	maxNames = 1000
	// unwatchedPause is for how long a room keeps its names when nobody watches
	// any more: collecting them takes a walk over all members, which nobody
	// shall be able to cause at will by leaving and coming back.
	unwatchedPause = time.Second
)

// presence tells a room's watchers who is there. It exists while there are
// watchers, and has a goroutine and a log of its own: its frames are not for the
// other members.
//
// A state is what the names and the count were at one moment. Every batch in the
// log leads from one state to the next; a watcher gets a list of the state at
// the log's head, and then the batches after it.
type presence struct {
	room *Room
	wake chan struct{} // one slot: somebody came, left, or wants a list

	// Guarded by room.mu.
	names    map[string]int  // the connections of each user
	before   map[string]bool // users who came or left since the last state: were they there?
	whole    bool            // there were more than before may hold
	watchers []*watcher

	// Of run.
	count    int        // of connections in the last state
	list     []byte     // the last state as a frame; nil if nobody wanted it
	log      log        // the batches that some watcher may not have got
	audience []*watcher // the watchers at the last state
}

// listMessage is all that a watcher knows, in place of what it knew.
type listMessage struct {
	Type      string   `json:"type"`
	Room      string   `json:"room"`
	Count     int      `json:"count"`
	Members   []string `json:"members"`
	Truncated bool     `json:"truncated,omitempty"`
}

// batchMessage is what has changed.
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

// joined notes a new connection of user. room.mu is held.
func (p *presence) joined(user string) {
	if user != "" {
		if p.names[user]++; p.names[user] == 1 {
			p.note(user, false)
		}
	}
	p.nudge()
}

// left notes the end of a connection of user. room.mu is held.
func (p *presence) left(user string) {
	if user != "" {
		if p.names[user]--; p.names[user] == 0 {
			delete(p.names, user)
			p.note(user, true)
		}
	}
	p.nudge()
}

// note remembers whether a user was there in the last state.
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

// run sends lists and batches until the room is empty, or nobody has watched
// for a while. A change in a quiet room goes out at once; the pause comes after.
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
			watched = true // since the last state: look again
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

// state is what take found.
type state struct {
	changed      bool // since the last state
	wanted       bool // a list is wanted
	followed     bool // there are watchers with a list
	whole        bool // they need a new one: the changes were too many
	members      []string
	truncated    bool
	joined, left []string
}

// advance makes what is now the last state.
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

// take collects what advance needs: a bounded number of names, sorted and
// encoded later, because the room waits.
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

// some returns the names of all users, or of any maxNames of them: to choose
// would take a look at all.
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

// frame encodes a message, once for all who get it.
func frame(message any) []byte {
	text, _ := json.Marshal(message) // fails for no string and no number
	return websocket.AppendFrame(make([]byte, 0, len(text)+websocket.MaxHeader), websocket.OpText, text)
}

// flush offers the watchers what they have not got and returns how many of them
// lag.
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
