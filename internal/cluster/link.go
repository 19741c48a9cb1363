package cluster

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/internal/room"
	"github.com/tidewire/tidewire/websocket"
)

// slot is one of the topics onto which the names of rooms are hashed.
type slot uint16

const slots = 4096

func slotOf(name string) slot {
	h := fnv.New32a()
	h.Write([]byte(name))
	return slot(h.Sum32() % slots)
}

func (s slot) topic() string { return "room." + strconv.Itoa(int(s)) }

// link connects a room on this node with the same room on other nodes. It implements room.Outlet. It outlives the room for a
// while, so that the numbers go on if the room begins again.
type link struct {
	node  *Node
	name  string
	slot  slot
	epoch uint64
	begun time.Time // of the epoch

	// out guards what goes out. It is held until a batch is with the relay: no digest may overtake the batches that it counts.
	out     sync.Mutex
	base    uint64 // what to add to the numbers of the room
	next    uint64 // number of the next frame
	digests int    // in how many more digests the room is
	version uint64 // of the last message that says who is in the room
	told    time.Time

	watches atomic.Uint64 // how often somebody on this node has begun to watch

	// mu guards what comes in.
	mu      sync.Mutex
	in      inlet  // nil while the room has no members on this node
	opened  uint64 // number of the node's last heartbeat before the room began
	closed  time.Time
	origins map[uint64]*origin
	tellers map[uint64]*teller
}

// inlet is what a link needs of a room.Inlet.
type inlet interface {
	Publish(frames []byte)
	Missed(messages int)
	Watched(whole bool)
	Present(node uint64, p room.Presence)
	Gone(node uint64)
}

// open begins the room on this node, and says so: other nodes answer with their numbers.
func (l *link) open(in inlet, heartbeat uint64) {
	l.mu.Lock()
	l.in, l.opened, l.origins, l.tellers = in, heartbeat, make(map[uint64]*origin), make(map[uint64]*teller)
	l.mu.Unlock()
	l.out.Lock()
	defer l.out.Unlock()
	l.base = l.next - 1
	l.node.relay.Publish(l.slot.topic(), l.numbers(kindOpen))
}

// numbers returns a message of that kind with the number of the next frame. l.out is held.
func (l *link) numbers(kind byte) []byte {
	return appendPlace(appendName(appendHead(nil, kind, l.node.id), l.name), l.place(l.node.now()))
}

// answerOpen answers another node that has begun the room.
func (l *link) answerOpen() {
	l.out.Lock()
	defer l.out.Unlock()
	l.node.relay.Publish(l.slot.topic(), l.numbers(kindDigest))
}

// Close implements room.Outlet.
func (l *link) Close() {
	now := l.node.now()
	l.mu.Lock()
	l.in, l.origins, l.tellers, l.closed = nil, nil, nil, now
	l.mu.Unlock()
	l.node.watched.set(l, false)
	l.nobody()
	l.node.ended(l, now)
}

// Send implements room.Outlet.
func (l *link) Send(first uint64, count int, frames []byte) {
	l.out.Lock()
	defer l.out.Unlock()
	at := place{l.epoch, l.base + first, l.node.now().Sub(l.begun)}
	l.next = at.first + uint64(count)
	if l.digests == 0 {
		l.node.active.add(l)
	}
	l.digests = digests
	scratch := batches.Get().(*[]byte)
	batch := appendPlace(appendName(appendHead((*scratch)[:0], kindBatch, l.node.id), l.name), at)
	batch = append(binary.BigEndian.AppendUint32(batch, uint32(count)), frames...)
	// A batch that can't be sent is a hole in the numbers, like one that is lost on its way.
	l.node.relay.Publish(l.slot.topic(), batch)
	if cap(batch) <= keepBatch {
		*scratch = batch
		batches.Put(scratch)
	}
}

// keepBatch is the size up to which the memory of a batch is used again, in bytes: a segment of a room's log fits.
const keepBatch = 512 << 10

var batches = sync.Pool{New: func() any { return new([]byte) }}

// place returns where the next frame belongs. l.out is held.
func (l *link) place(now time.Time) place { return place{l.epoch, l.next, now.Sub(l.begun)} }

// receive handles a message of a slot.
func (n *Node) receive(message []byte) {
	r := &reader{rest: message}
	switch kind, from := r.head(); {
	case r.err != nil || from == n.id:
	case kind == kindBatch:
		name, at, count := r.name(), r.place(), r.uint32()
		if l := n.find(name); r.err == nil && l != nil {
			l.receive(from, at, int(count), r)
		}
	case kind == kindDigest:
		for len(r.rest) > 0 && r.err == nil {
			name, at := r.name(), r.place()
			if l := n.find(name); r.err == nil && l != nil {
				l.receive(from, at, 0, r)
			}
		}
	case kind == kindOpen:
		name, at := r.name(), r.place()
		if l := n.find(name); r.err == nil && l != nil {
			l.receive(from, at, 0, r)
			l.answerOpen()
		}
	case kind == kindWatch:
		n.watchedBy(r)
	case kind == kindPresence:
		n.presence(r, from)
	default:
		r.err = errMalformed
	}
	if r.err != nil {
		n.malformed.Add(1)
	}
}

// receive gives the room the frames that it does not have yet, after it was told how many are missing before them. With a count of 0 there are no
// frames.
func (l *link) receive(from uint64, at place, count int, r *reader) {
	var frames []byte
	if count > 0 {
		if frames = r.rest; !whole(frames, count) {
			r.err = errMalformed
			return
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock() // also while the room takes the frames: it must not take those of a later batch before
	if l.in == nil {
		return
	}
	o := l.origins[from]
	if o == nil {
		o = &origin{}
		l.origins[from] = o
	}
	// By heartbeats, and not by the clock: while this process is stopped, messages wait, and the room gets no older.
	open := time.Duration(l.node.heartbeats.Load()-l.opened) * tick
	drop, missed := o.take(at, uint64(count), open)
	missed = min(missed, math.MaxInt32)
	if missed > 0 {
		l.node.missed.Add(missed)
		l.in.Missed(int(missed))
	}
	if frames = after(frames, int(drop)); len(frames) > 0 {
		l.in.Publish(frames)
	}
}

// whole reports whether b consists of so many whole messages, each in one frame that no client has masked.
func whole(b []byte, count int) bool {
	for ; len(b) > 0 && count > 0; count-- {
		h, size, err := websocket.ParseHeader(b)
		if err != nil || size == 0 || h.Masked || !h.Fin || h.Op != websocket.OpText && h.Op != websocket.OpBinary || uint64(len(b)-size) < uint64(h.Length) {
			return false
		}
		b = b[size+int(h.Length):]
	}
	return len(b) == 0 && count == 0
}

// after returns the frames without the first ones.
func after(frames []byte, drop int) []byte {
	for range drop {
		h, size, _ := websocket.ParseHeader(frames)
		frames = frames[size+int(h.Length):]
	}
	return frames
}
