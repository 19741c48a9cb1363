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

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/room"
	"github.com/tidewire/tidewire/websocket"
)

// storedRooms are the rooms that are backed by a store. A message is committed
// before any member gets it, and members get messages in position order.
type storedRooms struct {
	store    engine.Rooms
	patterns []string
	hub      *room.Hub
	work     context.Context

	mu sync.Mutex // guards the fields below
	// published is the position up to which all messages have been published. A member that joins under mu gets the
	// messages after it.
	published int64
	storing   int // chats passed to the store whose outcome is not known yet

	flusher *flusher
	watch   *lossWatch
	reading chan struct{} // a semaphore of maxReading: pages of history that are read at a time

	log     *rareLog
	skipped atomic.Uint64 // rows that are not chats
}

// newStoredRooms returns nil if no room is stored. End it with stop.
func newStoredRooms(cfg ChatConfig, kept engine.Engine, hub *room.Hub, work context.Context, log *rareLog) *storedRooms {
	if kept.Rooms == nil {
		return nil
	}
	s := &storedRooms{
		store: kept.Rooms, patterns: cfg.StoredRooms, hub: hub, work: work, published: kept.RoomsHead,
		flusher: newFlusher(), reading: make(chan struct{}, maxReading), log: log,
	}
	s.watch = watchLosses(s)
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

// append stores a chat and, once it is committed, publishes and answers it.
func (s *storedRooms) append(p *participant, member *room.Member, name string, msg chatMessage, payload []byte) error {
	payload, id := bytes.Clone(payload), bytes.Clone(msg.ID)
	p.pending.add()
	s.began(1)
	err := s.store.Append(s.work, name, payload, func(position int64, err error) {
		defer p.pending.done()
		if err != nil {
			s.began(-1)
			p.notStored(chatMessage{ID: id}, err)
		} else {
			s.publish(name, member, payload, position)
			p.ok(chatMessage{ID: id}, map[string]any{"position": position})
		}
		if id != nil {
			s.flusher.later(p.conn)
		}
	})
	if err != nil {
		s.began(-1)
		p.pending.done()
	}
	return err
}

func (s *storedRooms) began(chats int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.storing += chats
}

func (s *storedRooms) publish(name string, from *room.Member, payload []byte, position int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hub.Publish(name, from, websocket.OpText, appendPlaced(nil, payload, position))
	s.published = position
	s.storing--
}

// advance raises published to the store's head, which another server may have moved. It does nothing while chats are
// being stored here, because the head may include them, and members still have to get them; publishing them raises
// published.
func (s *storedRooms) advance(stored int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.storing == 0 {
		s.published = max(s.published, stored)
	}
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
		s.watch.stop()
		s.flusher.stop()
	}
}
