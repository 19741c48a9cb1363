package tidewire

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"
)

// Room is a room of the server.
type Room struct {
	c    *Client
	name string
}

// Room returns the room of that name. It asks the server nothing.
func (c *Client) Room(name string) *Room { return &Room{c, name} }

// A JoinOption is an option of Join.
type JoinOption interface{ join(*JoinOptions) }

type joinOption func(*JoinOptions)

func (o joinOption) join(j *JoinOptions) { o(j) }

// JoinOptions are what JoinOptions set.
type JoinOptions struct {
	User     string
	History  int
	After    *int64
	Presence bool
}

// User is the name of the sender. A server in closed mode takes that of the token.
func User(name string) JoinOption { return joinOption(func(o *JoinOptions) { o.User = name }) }

// History begins with the last n chats of a stored room; 1,000 at most.
func History(n int) JoinOption { return joinOption(func(o *JoinOptions) { o.History = n }) }

// WithPresence tells who is in the room.
func WithPresence() JoinOption { return joinOption(func(o *JoinOptions) { o.Presence = true }) }

// RoomEvent is a *Chat, a *Presence, a *Missed or a *HistoryLost.
type RoomEvent interface{ roomEvent() }

// Chat is what another member has said.
type Chat struct {
	User, Text string
	Position   int64           // in a stored room
	Time       time.Time       // in a stored room
	JSON       json.RawMessage // as it was sent, with all its fields
}

// Presence is a change of who is in the room.
type Presence struct {
	Members      []string // all users, sorted
	Joined, Left []string
	Count        int // of connections
}

// Missed says that messages of the room are missing.
type Missed struct {
	Count int // 0 if it is not known
}

// HistoryLost says that a failover has lost chats of a stored room: discard those after Last, up to UpTo.
type HistoryLost struct{ Last, UpTo int64 }

func (*Chat) roomEvent()        {}
func (*Presence) roomEvent()    {}
func (*Missed) roomEvent()      {}
func (*HistoryLost) roomEvent() {}

// Membership is the membership of a client in a room. It lives until Leave. One goroutine at a time takes its events.
type Membership struct {
	c       *Client
	room    string
	options JoinOptions

	once  sync.Once
	ready chan struct{}
	first error

	mu       sync.Mutex
	link     *link
	begun    bool // it was joined before
	stored   bool
	last     int64 // position up to which everything has come
	has      bool  // last is known
	behind   bool  // the program is too slow: chats are left out until it has taken what waits
	leaving  bool  // to join again after that
	missed   int
	members  []string
	told     []string     // members as of the last Presence
	count    int          // of connections
	stale    bool         // members have changed since told, and there was no room for an event
	lost     *HistoryLost // for which there was no room
	known    bool         // members came
	events   []RoomEvent
	wake     chan struct{}
	attempts int
	ended    bool
	err      error
}

// mostHistory is how many chats a server sends to one who joins without a position.
const mostHistory = 1000

// mostEvents of a room wait for the program.
const mostEvents = 1024

// Join makes the client a member of the room. A client is in a room once.
func (r *Room) Join(ctx context.Context, options ...JoinOption) (*Membership, error) {
	m := &Membership{c: r.c, room: r.name, ready: make(chan struct{}), wake: make(chan struct{}, 1)}
	for _, o := range options {
		o.join(&m.options)
	}
	if err := m.options.Check(); err != nil {
		return nil, err
	}
	if m.options.After != nil {
		m.last, m.has = *m.options.After, true
	}
	c := r.c
	c.mu.Lock()
	var err error
	if c.rooms[r.name] != nil {
		err = local("already_joined", "this client is in the room %q: use that membership", r.name)
	} else if err = c.addLocked(m); err == nil {
		c.rooms[r.name] = m
	}
	c.unlock()
	if err != nil {
		return nil, err
	}
	if err := c.begun(ctx, m, m.ready, &m.first); err != nil {
		return nil, err
	}
	return m, nil
}

// attach joins on l. The client holds its lock.
func (m *Membership) attach(l *link) {
	m.c.joining[m.room] = true
	m.mu.Lock()
	m.link = l
	has, last := m.has, m.last
	m.mu.Unlock()
	m.c.startOn(l, &request{kind: "join", repeat: own, asText: true, then: m.answered, encode: func(w *writer, _ *request) {
		o := &m.options
		w.text("room", m.room)
		if o.User != "" {
			w.text("user", o.User)
		}
		switch {
		case has:
			w.number("after", last)
		case o.History > 0:
			w.number("history", int64(o.History))
		}
		if o.Presence {
			w.yes("presence")
		}
	}})
}

// answered takes the answer to join.
func (m *Membership) answered(a *answer, err error) {
	if err != nil {
		m.failed(err)
		return
	}
	m.mu.Lock()
	m.attempts = 0
	m.stored = a.has
	switch {
	case !a.has && m.begun:
		m.gap(0)
	case a.has && !m.behind: // else chats before that position were left out
		m.last, m.has = max(m.last, a.position), true
	}
	m.begun = true
	m.mu.Unlock()
	m.joins(false)
	m.once.Do(func() { close(m.ready) })
}

// failed takes an error that has ended the membership, or not let it begin.
func (m *Membership) failed(err error) {
	if err == errDetached {
		return
	}
	var e *Error
	if !errors.As(err, &e) || !e.Retryable && e.Code != "token_expired" {
		m.c.remove(m)
		m.finish(err)
		return
	}
	m.joins(true)
	m.mu.Lock()
	wait := pause(m.attempts)
	m.attempts++
	m.mu.Unlock()
	m.c.reattach(m, max(wait, e.RetryAfter))
}

// joins notes whether the client is about to join. The server takes a chat only after that, so chats wait.
func (m *Membership) joins(now bool) {
	m.c.mu.Lock()
	defer m.c.unlock()
	if m.c.rooms[m.room] != m {
		return
	}
	if now {
		m.c.joining[m.room] = true
		return
	}
	delete(m.c.joining, m.room)
	m.c.wake()
}

func (m *Membership) detach() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.link, m.behind, m.leaving = nil, false, false
}

// finish ends the iteration, after what has come.
func (m *Membership) finish(err error) {
	m.joins(false)
	m.c.mu.Lock()
	if m.c.rooms[m.room] == m {
		delete(m.c.rooms, m.room)
	}
	m.c.mu.Unlock()
	m.once.Do(func() {
		m.first = err
		if err == nil {
			m.first = closedError(nil)
		}
		close(m.ready)
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ended {
		m.ended, m.err = true, err
		m.signal()
	}
}

func (m *Membership) signal() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// push adds an event. The caller holds the lock.
func (m *Membership) push(e RoomEvent) {
	m.events = append(m.events, e)
	m.signal()
}

// Position returns the position up to which everything has come; 0 in a room that is not stored.
func (m *Membership) Position() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// Stored reports whether the room keeps its chats.
func (m *Membership) Stored() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stored
}

// Members returns who is in the room, sorted. It needs WithPresence.
func (m *Membership) Members() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.members)
}

// Events iterates over what happens in the room. The iteration ends with an error, without one after Leave or Close, and with that of
// ctx when it ends. If more than 1,024 events wait, a stored room sends the rest again later, and another room a Missed.
func (m *Membership) Events(ctx context.Context) iter.Seq2[RoomEvent, error] {
	return func(yield func(RoomEvent, error) bool) {
		for {
			e, err := m.next(ctx)
			if err != nil {
				yield(nil, err)
				return
			}
			if e == nil || !yield(e, nil) {
				return
			}
		}
	}
}

// next takes an event; nil after the end.
func (m *Membership) next(ctx context.Context) (RoomEvent, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		m.mu.Lock()
		if len(m.events) > 0 {
			e := m.events[0]
			m.events[0] = nil
			m.events = m.events[1:]
			m.mu.Unlock()
			return e, nil
		}
		ended, err, l := m.ended, m.err, (*link)(nil)
		m.tellRest()
		if m.behind && !m.leaving {
			m.caughtUp()
			if m.stored {
				l = m.link
				m.leaving = l != nil
			}
		}
		more := len(m.events) > 0
		m.mu.Unlock()
		switch {
		case l != nil:
			m.rejoin(l)
		case more:
			continue
		case ended:
			return nil, err
		}
		select {
		case <-m.wake:
		case <-ctx.Done():
		}
	}
}

// Leave ends the membership.
func (m *Membership) Leave() error {
	m.c.remove(m)
	m.quit()
	m.finish(nil)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events, m.err, m.lost, m.stale = nil, nil, nil, false
	return nil
}

// quit leaves the room. What comes before the answer is for nobody, also if the client joins again meanwhile.
func (m *Membership) quit() {
	m.mu.Lock()
	l := m.link
	m.link = nil
	m.mu.Unlock()
	if l == nil {
		return
	}
	m.c.mu.Lock()
	l.left[m.room]++
	m.c.mu.Unlock()
	m.leave(l, func(*answer, error) {
		m.c.mu.Lock()
		defer m.c.mu.Unlock()
		if l.left[m.room]--; l.left[m.room] == 0 {
			delete(l.left, m.room)
		}
	})
}

// leave leaves the room on l.
func (m *Membership) leave(l *link, then func(*answer, error)) {
	m.c.mu.Lock()
	defer m.c.unlock()
	if l != nil && m.c.link == l {
		m.c.startOn(l, &request{kind: "leave", repeat: own, asText: true, then: then, encode: func(w *writer, _ *request) { w.text("room", m.room) }})
	}
}
