package gateway

import (
	"bytes"
	"encoding/json"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/room"
	"github.com/tidewire/tidewire/websocket"
)

// followedRooms are the rooms that have followers by HTTP on this server. Safe for concurrent use.
type followedRooms struct {
	hub    *room.Hub
	stored *storedRooms
	budget *budget.Budget
	limit  int64 // Config.MaxLagBytes of the hub

	readers atomic.Int64
	missed  atomic.Uint64

	mu  sync.Mutex // taken before the hub's
	all map[string]*followedRoom
}

func newFollowedRooms(chats *chatServer, b *budget.Budget, metrics prometheus.Registerer) *followedRooms {
	s := &followedRooms{hub: chats.hub, stored: chats.stored, budget: b, limit: chats.hub.MaxLagBytes(), all: make(map[string]*followedRoom)}
	metrics.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "tidewire_chat_followers", Help: "Followers of rooms by HTTP."},
			func() float64 { return float64(s.readers.Load()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "tidewire_chat_followers_missed_total", Help: "Messages that lagging followers of rooms missed."},
			func() float64 { return float64(s.missed.Load()) }))
	return s
}

// enter returns a room for one more follower. Call leave at its end.
func (s *followedRooms) enter(name string) *followedRoom {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.all[name]
	if r == nil {
		r = &followedRoom{set: s, name: name, stored: s.stored.has(name), readers: make(map[*roomReader]struct{}), changed: make(chan struct{})}
		r.memory = s.budget.Open(r.evict)
		r.listener = s.hub.Listen(name, r.hear)
		s.all[name] = r
	}
	r.users++
	s.readers.Add(1)
	return r
}

func (s *followedRooms) leave(r *followedRoom) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers.Add(-1)
	if r.users--; r.users > 0 {
		return
	}
	delete(s.all, r.name)
	r.listener.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.memory.Close()
}

// followedRoom is what the followers of a room share: its last messages as server-sent events, each encoded once and kept until all followers that
// were there have it. Who lags by more than the members of the room may misses messages.
type followedRoom struct {
	set      *followedRooms
	name     string
	stored   bool
	users    int // guarded by followedRooms.mu
	listener *room.Listener

	mu      sync.Mutex
	memory  *budget.Holder
	kept    []roomEvent
	first   int   // number of kept[0]
	bytes   int64 // of kept
	readers map[*roomReader]struct{}
	changed chan struct{} // closed when there is something new
}

// roomEvent is a message as a server-sent event.
type roomEvent struct {
	text []byte
	// start is the offset of the message in the log of the room.
	start int64
	// position is that of a chat in a stored room. After a history_lost it is the last position that there is.
	position int64
	lost     bool // it is a history_lost
	// missed is for how many messages it stands.
	missed  int
	waiting int // how many readers do not have it
}

// roomReader is one follower. Its methods may be used by one goroutine.
type roomReader struct {
	room *followedRoom

	// Guarded by room.mu.
	next   int   // number of the next event
	from   int64 // events of earlier messages, by their offset, are passed over
	missed int   // messages that were skipped and not reported
}

// hear takes messages of the room. It is called by goroutines of the room.
func (r *followedRoom) hear(start int64, frames []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.readers) == 0 {
		return
	}
	eachPayload(frames, func(offset int, payload []byte) { r.add(start+int64(offset), payload) })
	r.tell()
}

// eachPayload calls a function with the payload of each frame, and the offset at which the frame begins.
func eachPayload(frames []byte, f func(offset int, payload []byte)) {
	for offset := 0; offset < len(frames); {
		h, size, err := websocket.ParseHeader(frames[offset:])
		if err != nil || size == 0 || len(frames) < offset+size+int(h.Length) {
			return
		}
		end := offset + size + int(h.Length)
		f(offset, frames[offset+size:end])
		offset = end
	}
}

// add keeps a message for those who are there. r.mu is held.
func (r *followedRoom) add(start int64, payload []byte) {
	if r.bytes > r.set.limit {
		r.skip(r.set.limit / 2)
	}
	e := newRoomEvent(payload, r.stored)
	e.start, e.waiting = start, len(r.readers)
	r.kept = append(r.kept, e)
	r.bytes += int64(len(e.text))
	r.memory.Take(budget.Output, int64(len(e.text)))
}

// skip has the readers that lag by more than some bytes miss everything that they have not got. So many readers that lag together are visited once for many
// messages. r.mu is held.
func (r *followedRoom) skip(most int64) {
	near, bytes := r.first+len(r.kept), int64(0) // readers at near or after it stay
	for near > r.first && bytes+int64(len(r.kept[near-1-r.first].text)) <= most {
		near--
		bytes += int64(len(r.kept[near-r.first].text))
	}
	for reader := range r.readers {
		if reader.next < near {
			reader.skip()
		}
	}
	r.release()
}

// skip passes over all events, and counts them. room.mu is held.
func (d *roomReader) skip() {
	r := d.room
	for end := r.first + len(r.kept); d.next < end; d.next++ {
		e := &r.kept[d.next-r.first]
		e.waiting--
		if e.start >= d.from {
			d.missed += e.missed
		}
	}
}

// release forgets the events that all readers have. r.mu is held.
func (r *followedRoom) release() {
	n, bytes := 0, int64(0)
	for n < len(r.kept) && r.kept[n].waiting == 0 {
		bytes += int64(len(r.kept[n].text))
		r.kept[n] = roomEvent{}
		n++
	}
	r.kept, r.first, r.bytes = r.kept[n:], r.first+n, r.bytes-bytes
	if len(r.kept) == 0 {
		r.kept = nil
	}
	r.memory.Release(budget.Output, bytes)
}

// tell wakes the readers. r.mu is held.
func (r *followedRoom) tell() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// evict has all readers miss what they have not got, because memory is short and the room holds the most.
func (r *followedRoom) evict() { go r.drop() } // the budget may call it under mu

func (r *followedRoom) drop() {
	r.set.mu.Lock()
	defer r.set.mu.Unlock()
	if r.users == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for reader := range r.readers {
		reader.skip()
	}
	r.release()
	r.memory.Close() // an evicted holder is over
	r.memory = r.set.budget.Open(r.evict)
	r.tell()
}

// attach returns a reader of what is published from now on. End it with detach.
func (r *followedRoom) attach() *roomReader {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := &roomReader{room: r, next: r.first + len(r.kept), from: r.listener.Head()}
	r.readers[d] = struct{}{}
	return d
}

func (d *roomReader) detach() {
	r := d.room
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.readers, d)
	d.skip()
	r.release()
}

// taken is what a reader has got.
type taken struct {
	count    int
	position int64 // the last one; 0 if there is none
	lost     int   // how many history_lost are among it
	missed   int   // if it is not 0, nothing else is there
}

// take appends events to dst until that has some bytes. Without events, it returns a channel that is closed when there may be some.
func (d *roomReader) take(dst []byte, most int) ([]byte, taken, <-chan struct{}) {
	r := d.room
	r.mu.Lock()
	defer r.mu.Unlock()
	got := taken{missed: d.missed}
	if d.missed > 0 {
		d.missed = 0
		return dst, got, nil
	}
	for end := r.first + len(r.kept); d.next < end && len(dst) < most; d.next++ {
		e := &r.kept[d.next-r.first]
		e.waiting--
		if e.start < d.from {
			continue
		}
		dst = append(dst, e.text...)
		got.count++
		if e.lost {
			got.lost++
		}
		if e.position > 0 || e.lost {
			got.position = e.position
		}
	}
	r.release()
	if got.count > 0 {
		return dst, got, nil
	}
	return dst, got, r.changed
}

// newRoomEvent returns a message of a room as an event. A chat has its type once, so nothing that begins as the server's own messages is a chat.
func newRoomEvent(payload []byte, stored bool) roomEvent {
	e := roomEvent{missed: 1}
	name := "chat"
	switch {
	case bytes.HasPrefix(payload, []byte(`{"type":"gap",`)):
		name = "gap"
		var notice struct{ Missed int }
		json.Unmarshal(payload, &notice) // it is the server's
		e.missed = max(notice.Missed, 1)
	case bytes.HasPrefix(payload, []byte(`{"type":"history_lost",`)):
		name, e.lost = "history_lost", true
		var notice historyLost
		json.Unmarshal(payload, &notice)
		e.position = notice.Last
	case stored:
		e.position = lastPosition(payload)
	}
	e.text = append(append(make([]byte, 0, len(payload)+64), "event: "...), name...)
	if e.position > 0 || e.lost {
		e.text = strconv.AppendInt(append(e.text, "\nid: "...), e.position, 10)
	}
	e.text = appendData(e.text, payload)
	return e
}

// lastPosition returns the position that appendPlaced has added to a chat.
func lastPosition(chat []byte) int64 {
	const name = `"position":`
	at := bytes.LastIndex(chat, []byte(name)) // text of the chat may end with another one
	if at < 0 {
		return 0
	}
	n, _ := strconv.ParseInt(string(bytes.TrimSuffix(chat[at+len(name):], []byte{'}'})), 10, 64)
	return n
}
