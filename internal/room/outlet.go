package room

import (
	"encoding/json"

	"github.com/tidewire/tidewire/websocket"
)

// Outlet takes what the members of a room on this node publish, for the members on other nodes. Its methods must not block.
type Outlet interface {
	// Send is called by one goroutine of the room, in order. It takes whole frames, of which the first is the frame with that number; the frames of a room are numbered from 1.
	// It keeps no reference to the frames.
	Send(first uint64, count int, frames []byte)
	// Watch says whether somebody on this node watches who is in the room. It must not call the room.
	Watch(on bool)
	// Present takes who is in the room on this node, as long as other nodes ask for that with Inlet.Watched. It is called by one goroutine.
	Present(p Presence)
	// Close ends the room on this node. No Send follows.
	Close()
}

// Inlet takes what the members of a room on other nodes publish. It may be used from any goroutine, also when the room has
// ended on this node; then it does nothing.
type Inlet struct{ room *Room }

// Publish sends the frames of another node to all members on this node. The bytes are copied.
func (in *Inlet) Publish(frames []byte) {
	in.room.bring(func(l *log) { l.appendAll(frames) })
}

// Missed tells all members on this node that so many messages of another node are lost.
func (in *Inlet) Missed(messages int) {
	text := GapNotice(in.room.name, messages)
	in.room.bring(func(l *log) { l.appendGap(websocket.AppendFrame(nil, websocket.OpText, text), messages) })
}

// bring adds frames to the log that do not go out again.
func (r *Room) bring(add func(*log)) {
	select {
	case <-r.done:
		return
	default:
	}
	r.mu.Lock()
	start := r.log.head
	add(&r.log)
	r.outlet.own = append(r.outlet.own, span{start, r.log.head})
	r.mu.Unlock()
	r.nudge()
}

// GapNotice is what tells a member how many messages it has missed.
func GapNotice(room string, missed int) []byte {
	text, _ := json.Marshal(struct {
		Type   string `json:"type"`
		Room   string `json:"room"`
		Missed int    `json:"missed"`
	}{"gap", room, missed}) // strings and numbers cannot fail
	return text
}

// outlet is the room's Outlet. To the log it is one more reader, which never lags.
type outlet struct {
	to  Outlet // nil if the room has no members on other nodes
	own []span // frames of other nodes; guarded by room.mu

	// Used only by the flusher.
	pos  int64
	skip []span // frames of other nodes after pos
	next uint64 // number of the next frame
}

// watch tells the Outlet, if there is one, whether somebody watches. room.mu is held.
func (o *outlet) watch(on bool) {
	if o.to != nil {
		o.to.Watch(on)
	}
}

// serve sends everything in the log that has come from members on this node.
func (o *outlet) serve(r *Room) {
	if o.to == nil {
		return
	}
	s := share{room: r}
	r.mu.Lock()
	o.skip = append(o.skip, o.own...)
	o.own = o.own[:0]
	s.lookAt(&r.log)
	r.mu.Unlock()
	for o.pos < s.head {
		part := s.next(&o.pos, &o.skip)
		if len(part) == 0 {
			continue
		}
		n := frames(part)
		o.to.Send(o.next, n, part)
		o.next += uint64(n)
		o.pos += int64(len(part))
	}
}
