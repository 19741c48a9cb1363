package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/tidewire/tidewire/room"
	"github.com/tidewire/tidewire/websocket"
)

// RoomStore keeps what is said in rooms whose messages outlive them. All rooms
// share one order of positions.
type RoomStore interface {
	// Append accepts a room's next message, of which it keeps a copy, and waits
	// while the store is behind. If it returns nil it calls done once: after the
	// commit with the position, or with why there is none; all calls in the order
	// of positions, from one goroutine.
	Append(ctx context.Context, room string, payload []byte, done func(position int64, err error)) error
	// After returns messages of a room behind a position, up to one inclusive,
	// in order, at most limit.
	After(ctx context.Context, room string, after, upTo int64, limit int) ([]StoredMessage, error)
	// Last returns the last n messages of a room up to a position, in order.
	Last(ctx context.Context, room string, upTo int64, n int) ([]StoredMessage, error)
	// Head returns the position of the last message stored.
	Head(ctx context.Context) (int64, error)
}

// StoredMessage is one of a room's messages.
type StoredMessage struct {
	Position int64
	Payload  []byte
}

const (
	// maxHistory is how many messages a join can ask for by number. Behind a
	// position there may be any number of them.
	maxHistory = 1000
	// historyPage is how many are read at a time.
	historyPage = 200
	// historyFrames is how many bytes of them are encoded at a time.
	historyFrames = 256 << 10
)

// storedRooms are the rooms that are backed by a store. A message is committed
// before anybody gets it, and members get messages in the order of positions.
type storedRooms struct {
	store    RoomStore
	patterns []string
	hub      *room.Hub
	work     context.Context

	// published is the position up to which members got everything that was
	// stored through this server. Whoever joins under mu gets what is behind it.
	mu        sync.Mutex
	published int64

	flusher *flusher
}

// newStoredRooms returns nil if no room is stored. End it with stop.
func newStoredRooms(cfg ChatConfig, hub *room.Hub, work context.Context) *storedRooms {
	if cfg.Store == nil {
		return nil
	}
	return &storedRooms{
		store: cfg.Store, patterns: cfg.StoredRooms, hub: hub, work: work, published: cfg.StoreHead,
		flusher: newFlusher(),
	}
}

// has reports whether a room is stored.
func (s *storedRooms) has(name string) bool {
	if s == nil || name == "" || strings.IndexByte(name, 0) >= 0 {
		return false
	}
	return slices.ContainsFunc(s.patterns, func(pattern string) bool {
		ok, _ := path.Match(pattern, name) // patterns were checked at the start
		return ok
	})
}

// append stores a chat and, once it is committed, publishes and answers it.
func (s *storedRooms) append(p *participant, member *room.Member, name string, msg chatMessage, payload []byte) error {
	payload, id := bytes.Clone(payload), bytes.Clone(msg.ID)
	p.pending.add()
	err := s.store.Append(s.work, name, payload, func(position int64, err error) {
		defer p.pending.done()
		if err != nil {
			p.answer(chatMessage{ID: id}, codeNotStored, nil)
		} else {
			s.publish(name, member, payload, position)
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

func (s *storedRooms) publish(name string, from *room.Member, payload []byte, position int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hub.Publish(name, from, websocket.OpText, withPosition(payload, position))
	s.published = position
}

// withPosition returns a chat, which is a JSON object that is not empty, with
// its position as the last field.
func withPosition(payload []byte, position int64) []byte {
	payload = bytes.TrimRight(payload, " \t\r\n")
	out := make([]byte, 0, len(payload)+len(`,"position":`)+20)
	out = append(out, payload[:len(payload)-1]...)
	out = append(out, `,"position":`...)
	return append(strconv.AppendInt(out, position, 10), '}')
}

// stop is called when every connection has ended.
func (s *storedRooms) stop() {
	if s != nil {
		s.flusher.stop()
	}
}

var errAhead = errors.New("gateway: position is ahead of the store")

// join makes p a member that first gets what was said before, as far as it
// asked for that, and returns how much that was and up to which position it is
// everything.
func (s *storedRooms) join(p *participant, name string, msg chatMessage, opts room.JoinOptions) (m *room.Member, count int, upTo int64, err error) {
	after := int64(-1)
	if msg.After != nil {
		after = *msg.After
		// Most of it before the join, so that little is kept back meanwhile.
		if after, count, err = s.catchUp(p, name, after); err != nil {
			return nil, count, 0, err
		}
	}
	opts.Hold = true
	s.mu.Lock()
	m, upTo = s.hub.Join(p.conn.Conn, name, opts), s.published
	s.mu.Unlock()
	var past []StoredMessage
	switch {
	case after >= 0:
		past, err = s.rest(p.catchUps, name, after, upTo)
	case msg.History > 0:
		past, err = s.store.Last(p.catchUps, name, upTo, min(msg.History, maxHistory))
	}
	if err == nil {
		err = p.sendPast(past)
	}
	if err != nil {
		m.Leave()
		return nil, count, 0, err
	}
	return m, count + len(past), max(upTo, after), nil
}

// catchUp sends what is stored behind a position, as far as members have got
// it: what is behind that will come live.
func (s *storedRooms) catchUp(p *participant, name string, after int64) (last int64, count int, err error) {
	s.mu.Lock()
	head := s.published
	s.mu.Unlock()
	if after > head { // perhaps of another server on the same store
		if stored, err := s.store.Head(p.catchUps); err != nil {
			return after, 0, err
		} else if after > stored {
			return after, 0, errAhead
		}
	}
	for {
		page, err := s.store.After(p.catchUps, name, after, head, historyPage)
		if err != nil || len(page) == 0 {
			return max(after, head), count, err
		}
		if err := p.sendPast(page); err != nil {
			return after, count, err
		}
		count += len(page)
		after = page[len(page)-1].Position
	}
}

// rest returns all messages between two positions.
func (s *storedRooms) rest(ctx context.Context, name string, after, upTo int64) (all []StoredMessage, err error) {
	for after < upTo {
		page, err := s.store.After(ctx, name, after, upTo, historyPage)
		if err != nil || len(page) == 0 {
			return all, err
		}
		all = append(all, page...)
		after = page[len(page)-1].Position
	}
	return all, nil
}

// sendPast sends stored messages on the bulk lane, at the pace at which the peer
// takes them.
func (p *participant) sendPast(past []StoredMessage) error {
	var frames []byte
	for i, m := range past {
		frames = websocket.AppendFrame(frames, websocket.OpText, withPosition(m.Payload, m.Position))
		if len(frames) < historyFrames && i < len(past)-1 {
			continue
		}
		if err := p.conn.WriteBulkFrames(p.catchUps, frames); err != nil {
			return fmt.Errorf("send history: %w", err)
		}
		frames = frames[:0]
	}
	return nil
}

// storable reports whether a chat can be stored and sent as text.
func storable(payload []byte) bool { return utf8.Valid(payload) }
