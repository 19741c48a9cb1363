package cluster

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/room"
)

// A node on which somebody watches a room asks all nodes with the room, every two seconds, which members they have there. Each answers with what
// has changed since its last answer, also with nothing, and sends changes in between. Its messages are numbered; after a hole it is asked for all names. A node
// that says nothing for goneAfter has nobody in the room.

// askEvery is after how many ticks a node asks again.
const askEvery = 2

// watchedLinks are the links of rooms in which somebody on this node watches.
type watchedLinks struct {
	wake chan struct{} // one slot: a link is new, or needs all names

	mu    sync.Mutex
	links map[*link]bool // and whether it needs all names
}

func (w *watchedLinks) set(l *link, on bool) {
	w.mu.Lock()
	if on {
		w.links[l] = true
	} else {
		delete(w.links, l)
	}
	w.mu.Unlock()
	if on {
		w.nudge()
	}
}

// need says that a link needs all names, if it is still watched.
func (w *watchedLinks) need(l *link) {
	w.mu.Lock()
	_, on := w.links[l]
	if on {
		w.links[l] = true
	}
	w.mu.Unlock()
	if on {
		w.nudge()
	}
}

func (w *watchedLinks) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// take returns all links, or those that need all names. Afterwards none needs them.
func (w *watchedLinks) take(all bool) map[*link]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := make(map[*link]bool)
	for l, whole := range w.links {
		if all || whole {
			taken[l] = whole
			w.links[l] = false
		}
	}
	return taken
}

// askPresence asks other nodes who is in the rooms that are watched here, and drops what nodes have told that say nothing more.
func (n *Node) askPresence(all bool) {
	of := make(map[slot][]byte)
	for l, whole := range n.watched.take(all) {
		l.dropSilent(n.now())
		question := of[l.slot]
		if question == nil {
			question = appendHead(nil, kindWatch, n.id)
		}
		of[l.slot] = appendName(append(question, flag(whole, 1)), l.name)
	}
	for s, question := range of {
		n.relay.Publish(s.topic(), question)
	}
}

func flag(on bool, bit byte) byte {
	if on {
		return bit
	}
	return 0
}

// Watch implements room.Outlet.
func (l *link) Watch(on bool) {
	if on {
		l.watches.Add(1)
	}
	l.node.watched.set(l, on)
}

// Present implements room.Outlet.
func (l *link) Present(p room.Presence) {
	l.out.Lock()
	defer l.out.Unlock()
	l.version++
	l.told = l.node.now()
	message := appendName(appendHead(nil, kindPresence, l.node.id), l.name)
	message = binary.BigEndian.AppendUint64(message, l.version)
	message = append(message, flag(p.Whole, 1)|flag(p.Truncated, 2))
	message = binary.BigEndian.AppendUint32(message, uint32(p.Count))
	for _, names := range [][]string{p.Joined, p.Left} {
		message = binary.BigEndian.AppendUint16(message, uint16(len(names)))
		for _, name := range names {
			message = appendName(message, name)
		}
	}
	l.node.relay.Publish(l.slot.topic(), message)
}

// nobody tells other nodes that the room has ended here, if they have been told lately who is in it.
func (l *link) nobody() {
	l.out.Lock()
	told := l.told
	l.out.Unlock()
	if !told.IsZero() && l.node.now().Sub(told) < goneAfter {
		l.Present(room.Presence{Whole: true})
	}
}

// teller is what another node has told of who is in a room.
type teller struct {
	version uint64
	watch   uint64 // for which Watch it has told all names: the room does not have those from before
	at      time.Time
}

// watchedBy handles the question of another node.
func (n *Node) watchedBy(r *reader) {
	for len(r.rest) > 0 && r.err == nil {
		flags, name := r.byte(), r.name()
		l := n.find(name)
		if r.err != nil || l == nil {
			continue
		}
		l.mu.Lock()
		in := l.in
		l.mu.Unlock()
		if in != nil {
			in.Watched(flags&1 != 0)
		}
	}
}

// presence handles what another node tells.
func (n *Node) presence(r *reader, from uint64) {
	name, version, flags := r.name(), r.uint64(), r.byte()
	p := room.Presence{Whole: flags&1 != 0, Truncated: flags&2 != 0, Count: int(r.uint32())}
	p.Joined, p.Left = r.names(), r.names()
	if r.err != nil {
		return
	}
	if l := n.find(name); l != nil && !l.present(from, version, p) {
		n.watched.need(l)
	}
}

// present gives the room what another node tells. It returns false if something is missing before it.
func (l *link) present(from, version uint64, p room.Presence) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.in == nil {
		return true
	}
	t := l.tellers[from]
	if t == nil && !p.Whole {
		return false
	}
	if t == nil {
		t = &teller{}
		l.tellers[from] = t
	}
	t.at = l.node.now() // it is there, whatever is missing
	watch := l.watches.Load()
	if !p.Whole && (version != t.version+1 || watch != t.watch) {
		return false
	}
	t.version, t.watch = version, watch
	l.in.Present(from, p)
	return true
}

// dropSilent drops what nodes have told that have said nothing for a while.
func (l *link) dropSilent(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for from, t := range l.tellers {
		if now.Sub(t.at) > goneAfter {
			delete(l.tellers, from)
			if l.in != nil {
				l.in.Gone(from)
			}
		}
	}
}
