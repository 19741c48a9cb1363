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
	// MaxLagAge is how long a member's socket may take nothing while messages
	// wait for it. Defaults to 5 s.
	MaxLagAge time.Duration
	// LagCloseTimeout is how long a member that is closed because it lags may
	// take to read up to the Close frame and answer it; then its connection is
	// aborted. Defaults to 1 s.
	LagCloseTimeout time.Duration
	// Connect is called when a room gets its first member, and connects it with the same room on other nodes. It returns
	// nil if there is none. It must not block, nor call the Hub. Defaults to nil: there are no other nodes.
	Connect func(room string, in *Inlet) Outlet
	// Compression compresses messages to members whose connection takes them compressed, once for all of them. It has to be that of the
	// connections. Defaults to nil: nothing is compressed.
	Compression *websocket.Compression
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

// ErrLagged is why the connection of a member with DisconnectOnLag was closed.
var ErrLagged = errors.New("room: member reads too slowly")

// Stats counts since the start.
type Stats struct {
	Deliveries uint64 // messages handed to members' sockets
	Missed     uint64 // messages that lagging members missed
	Rooms      int    // rooms that exist now
}

// Room is a room: its members and its log.
type Room struct {
	hub  *Hub
	name string
	wake chan struct{} // one slot: there is something to flush
	done chan struct{} // closed when the room has ended

	outlet outlet

	mu      sync.Mutex
	log     log
	members []*Member
	have    [forms]int // members of each form
	// listeners is replaced, never changed.
	listeners []*Listener
	scratch   []byte
	presence  *presence // nil if nobody watches
	census    *census   // nil if nobody on other nodes watches
}

// Member is a connection in a room.
type Member struct {
	room       *Room
	conn       *websocket.Conn
	user       string
	observer   Observer // may be nil
	kicked     func()   // may be nil
	disconnect bool     // DisconnectOnLag
	form       form     // in which it gets messages
	left       atomic.Bool

	// Guarded by room.mu.
	index   int // in room.members; -1 once it has left
	own     []span
	watcher *watcher // nil if it is not a watcher
	held    bool     // nothing may be sent to it yet

	// Used only by the flusher.
	pos      int64
	waits    bool      // value of held at the last look
	skip     []span    // own messages after pos
	blocked  time.Time // since when the socket takes nothing; zero if it is not blocked
	inFlight int64     // bytes queued or in the kernel, when last asked
	unseen   int64     // bytes written since then
	lagging  bool      // it skips messages until most bytes in flight are acknowledged
	missed   int       // skipped messages not yet reported to it
}

// span is a message's bytes in the log.
type span struct{ start, end int64 }

// Publish sends a message to all other members of the room, in the order of
// calls. The payload is copied. Publish does not wait for any member.
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

// nudge wakes the flusher for a round.
func (r *Room) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Release ends the Hold of JoinOptions. Messages queued on the connection before the
// call precede the held ones, unless the peer reads so slowly that the connection's
// lanes take turns.
func (m *Member) Release() {
	m.room.mu.Lock()
	m.held = false
	m.room.mu.Unlock()
	m.room.nudge()
}

// Leave ends the membership. The member does not get messages that are not sent to it
// by now. A second call does nothing.
func (m *Member) Leave() {
	if w := m.room.remove(m); w != nil {
		w.end() // not under the locks: it waits for a write
	}
}

// Left reports whether the membership has ended.
func (m *Member) Left() bool { return m.left.Load() }

// remove removes m from the room, and returns m's watcher, or nil.
func (r *Room) remove(m *Member) *watcher {
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
	r.have[m.form]--
	m.left.Store(true)
	if m.watcher != nil {
		r.presence.remove(m.watcher)
	}
	if r.presence != nil {
		r.presence.left(m.user)
	}
	if r.census != nil {
		r.census.left(m.user)
		r.census.nudge()
	}
	if m.observer != nil {
		m.observer.Left(r.name, m.user)
	}
	if len(r.members) == 0 {
		r.nudge()
	}
	return m.watcher
}

// ended ends the room if its last member and its last listener have left, and the outlet has received everything. It reports whether the room has ended.
func (r *Room) ended() bool {
	if !r.empty() {
		return false
	}
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	if !r.empty() {
		return false
	}
	if r.outlet.to != nil {
		r.outlet.to.Close()
	}
	delete(r.hub.rooms, r.name)
	close(r.done)
	return true
}

// empty reports whether there are no members and no listeners, and the outlet has received everything. Only the flusher may call it.
func (r *Room) empty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.members) == 0 && len(r.listeners) == 0 && (r.outlet.to == nil || r.outlet.pos == r.log.head)
}

// expel closes the connection of a lagging member with DisconnectOnLag. The
// Close frame comes after the bytes that the member has not read, so it gets
// LagCloseTimeout to read that far, independent of the connection's deadlines.
func (m *Member) expel() {
	m.conn.StartClose(websocket.StatusPolicyViolation, ErrLagged.Error())
	time.AfterFunc(m.room.hub.cfg.LagCloseTimeout, m.conn.Abort) // does nothing if the connection has ended by then
}

// String names the room in errors and logs.
func (r *Room) String() string { return fmt.Sprintf("room %q", r.name) }
