package gateway

import (
	"bytes"
	"context"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/room"
)

// storedRooms are the rooms that are backed by a store. A message is committed
// before any member gets it, and members get messages in position order.
type storedRooms struct {
	store    engine.Rooms
	patterns []string
	hub      *room.Hub
	work     context.Context
	keep     int // see ChatConfig.RoomChats

	mu sync.Mutex // guards the fields below
	// published is the position up to which all messages have been published. A member that joins under mu gets the
	// messages after it.
	published int64
	seen      int64         // the position up to which the follower has seen the store
	own       []ownChat     // in the order of positions
	losses    []int64       // after which positions failovers have lost chats that were published
	lastOwn   int64         // the last position at which this server has stored a chat
	begun     int           // chats passed to the store
	known     int           // those of them whose outcome is known
	awaited   int           // of how many the follower waits for the outcomes
	changed   chan struct{} // see change; nil if nobody waits

	flusher  *flusher
	follower *follower
	reading  chan struct{} // a semaphore of maxReading: pages of history that are read at a time

	log     *rareLog
	skipped atomic.Uint64 // rows that are not chats
}

// newStoredRooms returns nil if no room is stored. End it with stop.
func newStoredRooms(cfg ChatConfig, kept engine.Engine, hub *room.Hub, work context.Context, log *rareLog) *storedRooms {
	if kept.Rooms == nil {
		return nil
	}
	s := &storedRooms{
		store: kept.Rooms, patterns: cfg.StoredRooms, keep: cfg.RoomChats, hub: hub, work: work, published: kept.RoomsHead,
		flusher: newFlusher(), reading: make(chan struct{}, maxReading), log: log,
	}
	s.follower = follow(s)
	return s
}

// has reports whether a room is stored.
func (s *storedRooms) has(name string) bool {
	if s == nil || name == "" || strings.IndexByte(name, 0) >= 0 {
		return false
	}
	return slices.ContainsFunc(s.patterns, func(pattern string) bool {
		ok, _ := path.Match(pattern, name) // patterns were validated at the start
		return ok
	})
}

// append stores a chat and, once it is committed, publishes and answers it. A repeated one is answered only.
func (s *storedRooms) append(p *participant, member *room.Member, msg chatMessage, as *engine.RequestID, payload []byte) error {
	id := bytes.Clone(msg.ID)
	p.pending.add()
	err := s.put(s.work, msg.room(), member, as, payload, func(position int64, duplicate bool, err error) {
		defer p.pending.done()
		switch {
		case err != nil:
			p.notStored(chatMessage{ID: id}, err)
		case duplicate:
			p.ok(chatMessage{ID: id}, map[string]any{"position": position, "duplicate": true})
		default:
			p.ok(chatMessage{ID: id}, map[string]any{"position": position})
		}
		if id != nil {
			s.flusher.later(p.conn)
		}
	})
	if err != nil {
		p.pending.done()
	}
	return err
}

// put stores a chat and, once it is committed, publishes it to the members of its room except its sender, which may be nil, and calls answered. A
// repeated chat is not published: it was when it was stored. If put returns an error, answered is not called. It must not block.
func (s *storedRooms) put(ctx context.Context, name string, from *room.Member, as *engine.RequestID, payload []byte, answered func(position int64, duplicate bool, err error)) error {
	payload = storedForm(payload, time.Now())
	number := s.began()
	err := s.store.Append(ctx, name, as, payload, func(position int64, duplicate bool, err error) {
		if err != nil || duplicate {
			s.notStored()
			answered(position, duplicate, err)
			return
		}
		s.storedOne(ownChat{position, name, from, payload, func(position int64, err error) { answered(position, false, err) }})
	})
	if err != nil {
		s.refused(number)
	}
	return err
}

// began takes note of a chat that is passed to the store, and numbers it.
func (s *storedRooms) began() (number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
	return s.begun
}

// refused takes note of a chat that the store has not taken: it has no outcome.
func (s *storedRooms) refused(number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun--
	if number <= s.awaited {
		s.awaited--
	}
	s.tell()
}

// appendPlaced appends a chat, which is a non-empty JSON object, with its
// position as the last field.
func appendPlaced(dst, payload []byte, position int64) []byte {
	payload = bytes.TrimRight(payload, " \t\r\n")
	dst = append(dst, payload[:len(payload)-1]...)
	dst = append(dst, `,"position":`...)
	return append(strconv.AppendInt(dst, position, 10), '}')
}

// stop is called when every connection has ended.
func (s *storedRooms) stop() {
	if s != nil {
		s.follower.stop()
		s.flusher.stop()
	}
}
