package room

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// Config configures a Hub.
type Config struct {
	// MaxLagBytes is how far a member may lag, in bytes. Defaults to 1
	// MiB.
	MaxLagBytes int64
	// MaxLagAge is for how long a member's socket may take nothing while there
	// is something for it. Defaults to 5 s.
	MaxLagAge time.Duration
	// LagCloseTimeout is for how long a member that is closed because it lags
	// may take to read up to the Close frame and answer it; then its connection
	// is cut off. Defaults to 1 s.
	LagCloseTimeout time.Duration
}

func (c Config) withDefaults() Config {
	if c.MaxLagBytes == 0 {
		c.MaxLagBytes = 1 << 20
	}
	if c.MaxLagAge == 0 {
		c.MaxLagAge = 5 * time.Second
	}
	if c.LagCloseTimeout == 0 {
		c.LagCloseTimeout = time.Second
	}
	return c
}

// ErrLagged is why a member's connection was closed: it asked for that instead
// of a gap.
var ErrLagged = errors.New("room: member reads too slowly")

// Stats counts since the start.
type Stats struct {
	Deliveries uint64 // messages handed to members' sockets
	Missed     uint64 // messages that lagging members missed
	Rooms      int    // that have members
}

// Room is the members of one name and what is being said.
type Room struct {
	hub  *Hub
	name string
	wake chan struct{} // one slot: there is something to flush
	done chan struct{} // closed when the last member has left

	mu       sync.Mutex
	log      log
	members  []*Member
	scratch  []byte
	presence *presence // nil if nobody watches
}

// Member is a connection in a room.
type Member struct {
	room       *Room
	conn       *websocket.Conn
	user       string
	disconnect bool // instead of skipping ahead
	left       atomic.Bool

	// Guarded by room.mu.
	index   int // in room.members; -1 once it has left
	own     []span
	watcher *watcher // nil if it does not watch
	held    bool     // nothing may be sent to it yet

	// Of the flusher.
	pos      int64
	waits    bool      // it was held at the last look
	skip     []span    // own messages not passed yet
	blocked  time.Time // since when the socket takes nothing; zero: it does
	underWay int64     // bytes queued or in the kernel, when last looked at
	unseen   int64     // bytes written since
	lagging  bool      // it skips until it has taken what is under way
	missed   int       // messages skipped that it has not been told of
}

// span is a message's bytes in the log.
type span struct{ start, end int64 }

// Publish sends a message to all other members of the room, who see it in the
// order of calls. The payload is copied; no member is waited for.
func (m *Member) Publish(op websocket.Opcode, payload []byte) {
	m.room.publish(m, op, payload)
}

func (r *Room) publish(from *Member, op websocket.Opcode, payload []byte) {
	r.mu.Lock()
	r.scratch = websocket.AppendFrame(r.scratch[:0], op, payload)
	start := r.log.append(r.scratch)
	if from != nil && from.room == r {
		from.own = append(from.own, span{start, r.log.head})
	}
	r.mu.Unlock()
	r.nudge()
}

// nudge has the flusher go round.
func (r *Room) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Release ends the Hold of JoinOptions. Messages that were queued on the connection
// before come before those that were kept back, unless the peer reads so slowly that
// the connection's lanes take turns.
func (m *Member) Release() {
	m.room.mu.Lock()
	m.held = false
	m.room.mu.Unlock()
	m.room.nudge()
}

// Leave ends the membership. The member does not get messages that were not sent to it
// by now. A second call does nothing.
func (m *Member) Leave() {
	if w := m.room.remove(m); w != nil {
		w.end() // not under the locks: it waits for a write
	}
}

// remove takes m out of the room, which ends with its last member, and returns
// m's watcher, if it has one.
func (r *Room) remove(m *Member) *watcher {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.index < 0 {
		return nil
	}
	last := len(r.members) - 1
	r.members[m.index] = r.members[last]
	r.members[m.index].index = m.index
	r.members[last] = nil
	r.members = r.members[:last]
	m.index = -1
	m.left.Store(true)
	if m.watcher != nil {
		r.presence.remove(m.watcher)
	}
	if r.presence != nil {
		r.presence.left(m.user)
	}
	if len(r.members) == 0 {
		delete(r.hub.rooms, r.name)
		close(r.done)
	}
	return m.watcher
}

// expel closes the connection of a member that asked for that rather than to
// miss something. The Close frame stands after what the member did not take, so
// it gets a moment to read that far, no matter what else its connection's
// deadlines are used for.
func (m *Member) expel() {
	m.conn.StartClose(websocket.StatusPolicyViolation, ErrLagged.Error())
	time.AfterFunc(m.room.hub.cfg.LagCloseTimeout, m.conn.Abort) // nothing, if it has ended by then
}

// String names the room in errors and logs.
func (r *Room) String() string { return fmt.Sprintf("room %q", r.name) }
