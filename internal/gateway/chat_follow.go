package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/room"
	"github.com/tidewire/tidewire/websocket"
)

const (
	// followAgain is the pause after a failed attempt to follow the store.
	followAgain = time.Second
	// checkEvery is how often the follower looks whether it still has not seen what is published, and checkTimeout bounds
	// the question to the store.
	checkEvery   = time.Second
	checkTimeout = 5 * time.Second
	// reachTimeout is for how long a join waits until this server has published what the store has.
	reachTimeout = 5 * time.Second
)

var errBehind = errors.New("this server has not received all chats of the others yet")

// follower follows the store: members get the chats that other servers have stored. It is a merge of two sequences that are
// both in position order: the outcomes of the chats that this server has stored, and the store. A chat of this server is
// usually published when its outcome comes, before the follower sees it.
type follower struct {
	rooms   *storedRooms
	quit    context.CancelFunc
	running sync.WaitGroup
}

// follow returns a follower that runs until stop.
func follow(s *storedRooms) *follower {
	f := &follower{rooms: s}
	ctx, quit := context.WithCancel(context.Background())
	f.quit = quit
	f.running.Go(func() { f.run(ctx) })
	f.running.Go(func() { f.check(ctx) })
	return f
}

func (f *follower) run(ctx context.Context) {
	s := f.rooms
	for ctx.Err() == nil {
		after := s.begin()
		err := s.store.Follow(ctx, after, func(page []engine.RoomMessage) { s.receive(ctx, page) })
		if lost, ok := errors.AsType[*engine.HistoryLostError](err); ok {
			s.lost(lost.Last)
			continue
		}
		if ctx.Err() == nil {
			s.log.warn("chats of other servers are not received", "error", err)
		}
		select {
		case <-time.After(followAgain):
		case <-ctx.Done():
		}
	}
}

// check asks the store for chats of this server that the follower has not seen for a while: a failover may have lost them. There are such chats only
// while others store too, or PostgreSQL is away.
func (f *follower) check(ctx context.Context) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for before := (doubt{}); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := f.rooms.doubt()
		if now == before {
			f.ask(ctx, now.published, f.rooms.lostPublished)
			f.ask(ctx, now.own, f.rooms.lostOwn)
		}
		before = now
	}
}

// ask asks the store about a position, if it is not 0, and tells a function after which position all is lost.
func (f *follower) ask(ctx context.Context, position int64, lost func(position, after int64)) {
	if position == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if history, ok := errors.AsType[*engine.HistoryLostError](f.rooms.store.Check(ctx, position)); ok {
		lost(position, history.Last)
	}
}

// doubt are positions that this server has stored and the follower has not seen, or 0: the last one that is published, and the last one that is not.
type doubt struct{ published, own int64 }

func (s *storedRooms) doubt() (d doubt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen < s.published {
		d.published = s.published
	}
	if len(s.own) > 0 {
		d.own = s.own[len(s.own)-1].position
	}
	return d
}

// lostPublished takes note that a position is lost that was published, if nothing has changed since the question.
func (s *storedRooms) lostPublished(position, after int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.published == position && s.seen < position {
		s.lostLocked(after)
	}
}

// lostOwn answers the chats of this server that are lost and were not published: all after a position, up to another one.
func (s *storedRooms) lostOwn(position, after int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.own) > 0 && s.own[0].position > after && s.own[0].position <= position {
		s.dropOwn(errLostChat)
	}
}

// giveUp answers the chats of this server that wait for those of others.
func (s *storedRooms) giveUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.own) > 0 {
		s.dropOwn(engine.ErrOutcomeUnknown)
	}
}

// begin returns the position after which the follower begins.
func (s *storedRooms) begin() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = s.published
	return s.seen
}

func (f *follower) stop() {
	f.quit()
	f.running.Wait()
}

// ownChat is a chat of this server that is stored.
type ownChat struct {
	position int64
	room     string
	from     *room.Member
	payload  []byte
	// answered answers the sender. It is called when the chat is published, and not before: so an answer never overtakes the news that earlier
	// chats are lost, and a chat that a failover has lost before it was published is not answered with ok.
	answered func(position int64, err error)
}

var errLostChat = errors.New("a failover has lost the chat")

// storedOne takes note of a chat of this server that is stored. If others have stored chats before it that are not published yet, it waits for these.
func (s *storedRooms) storedOne(c ownChat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known++
	s.lastOwn = c.position
	switch {
	case c.position <= s.published: // as that of another server
		c.answered(c.position, nil)
	case len(s.own) == 0 && c.position == s.published+1:
		s.publish(c)
	default:
		s.own = append(s.own, c)
		s.publishOwn()
	}
	s.tell()
}

// notStored takes note of a chat of this server that is not stored, or was stored before.
func (s *storedRooms) notStored() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known++
	s.tell()
}

// dropOwn answers the first chat that waits with an error. The caller holds mu.
func (s *storedRooms) dropOwn(err error) {
	c := s.own[0]
	s.own = s.own[1:]
	c.answered(0, err)
}

// publishOwn publishes the chats of this server that follow directly. The caller holds mu.
func (s *storedRooms) publishOwn() {
	for len(s.own) > 0 && s.own[0].position == s.published+1 {
		c := s.own[0]
		s.own = s.own[1:]
		s.publish(c)
	}
	if len(s.own) == 0 {
		s.own = nil
	}
}

// publish sends a chat of this server to the members of its room, except its sender, whom it answers. The caller holds mu.
func (s *storedRooms) publish(c ownChat) {
	s.hub.Publish(c.room, c.from, websocket.OpText, appendPlaced(nil, c.payload, c.position))
	s.published = c.position
	c.answered(c.position, nil)
}

// receive publishes what the follower has got from the store, as far as it is not published.
func (s *storedRooms) receive(ctx context.Context, page []engine.RoomMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range page {
		if m.Position > s.published && !s.settled(ctx, m.Position) {
			return
		}
		if m.Position > s.published && s.seen < s.published { // what is published is not in the store any more
			s.lostLocked(s.seen)
		}
		if s.seen = m.Position; m.Position <= s.published {
			continue
		}
		for len(s.own) > 0 && s.own[0].position < m.Position {
			s.dropOwn(errLostChat)
		}
		switch {
		case len(s.own) > 0 && s.own[0].position == m.Position:
			c := s.own[0]
			s.own = s.own[1:]
			s.publish(c)
		default:
			s.publishForeign(m)
		}
	}
	s.publishOwn()
	s.tell()
}

// settled waits until it is known whether this server has stored the chat at a position: until the outcomes of all chats are
// known that are with the store now, or that of one with a higher position. It reports false if ctx ends before. The caller
// holds mu, which is released meanwhile.
func (s *storedRooms) settled(ctx context.Context, position int64) bool {
	s.awaited = s.begun
	for s.known < s.awaited && s.lastOwn < position {
		changed := s.change()
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		s.mu.Lock()
		if ctx.Err() != nil {
			return false
		}
	}
	return true
}

// publishForeign publishes a chat that another server, or SQL, has stored. In a room that is not stored it is one of SQL: every server has it, and it has no
// position that a join could name. The caller holds mu.
func (s *storedRooms) publishForeign(m engine.RoomMessage) {
	s.published = m.Position
	if !s.hub.Has(m.Room) {
		return
	}
	if !isChat(m.Payload) {
		s.skip(m.Room, m.Position)
		return
	}
	if !s.has(m.Room) {
		s.hub.PublishHere(m.Room, websocket.OpText, m.Payload)
		return
	}
	s.hub.Publish(m.Room, nil, websocket.OpText, appendPlaced(nil, m.Payload, m.Position))
}

// skip takes note of a row that is not a chat. Other programs can write to the table.
func (s *storedRooms) skip(room string, position int64) {
	s.skipped.Add(1)
	s.log.warn("skipped a stored row that is not a chat", "room", room, "position", position)
}

// change returns a channel that is closed when known or published has changed. The caller holds mu.
func (s *storedRooms) change() <-chan struct{} {
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// tell closes that channel. The caller holds mu.
func (s *storedRooms) tell() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// reach waits until everything up to a position is published.
func (s *storedRooms) reach(ctx context.Context, position int64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, reachTimeout, errBehind)
	defer cancel()
	for {
		s.mu.Lock()
		published, changed := s.published, s.change()
		s.mu.Unlock()
		if published >= position {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for position %d: %w", position, context.Cause(ctx))
		}
	}
}

// lost tells the members of all stored rooms that the chats after a position, which they have received, are lost. A later
// join gets the chats after that position.
func (s *storedRooms) lost(after int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lostLocked(after)
}

func (s *storedRooms) lostLocked(after int64) {
	if after >= s.published { // it is known
		return
	}
	upTo := s.published
	s.published = after
	s.losses = append(s.losses, after)
	s.hub.PublishEach(websocket.OpText, func(room string) []byte {
		if !s.has(room) {
			return nil
		}
		notice, _ := json.Marshal(historyLost{"history_lost", room, after, upTo}) // of strings and numbers: it can't fail
		return notice
	})
}

// historyLost tells the members of a room that the chats after Last, up to UpTo, are lost. Later ones are not: the answer to a chat of the new history may
// come before this.
type historyLost struct {
	Type string `json:"type"`
	Room string `json:"room"`
	Last int64  `json:"last"`
	UpTo int64  `json:"up_to"`
}

// presenceOnly connects a stored room with the same room on other servers for who is in it; its chats come from the store.
type presenceOnly struct{ room.Outlet }

// Send implements room.Outlet.
func (presenceOnly) Send(uint64, int, []byte) {}
