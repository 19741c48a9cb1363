package room

import (
	"bytes"
	"math"
	"slices"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// form says in which form a member gets the messages of the log.
type form int

const (
	plain  form = iota // as they are in the log
	single             // large ones compressed, each alone
	batch              // several in one compressed message
	forms
)

const (
	// gatherPause is the least time between two moments at which batches are made: a message that is published after a quiet time leaves at
	// once, and those that follow it gather. Compression needs some ten messages to save much.
	gatherPause = 20 * time.Millisecond
	// batchBytes bounds the messages of a batch, and those that gather, in bytes before compression. A larger message is alone.
	batchBytes = 64 << 10
	// minBatch and maxBatch bound how many messages are in a batch. In between it is the square root of the number of members. A member whose own
	// message is in a batch cannot take it, and gets the other messages of it as plain frames. If all members send, the share of these members is the
	// size of the batch divided by the number of members: so batches are small in a small room.
	minBatch = 8
	maxBatch = 100
)

// formOf is the form for a new member.
func (c Config) formOf(conn *websocket.Conn, opts JoinOptions) form {
	switch {
	case c.Compression == nil || !conn.TakesCompressed():
		return plain
	case opts.Batch:
		return batch
	}
	return single
}

// Batches reports whether the member gets several messages as one: it has asked for that, and its connection takes compressed messages.
func (m *Member) Batches() bool { return m.form == batch }

// pack is a frame in place of messages of the log, for all members of a form.
type pack struct {
	start, end int64 // of these messages in the log
	messages   int
	frame      []byte
}

// packer makes the packs of a room, before the members are visited. Only the flusher uses it; shares read its packs. The packs of a
// message are kept as long as the message is, and are smaller.
type packer struct {
	packs [forms][]pack
	// ready is up to where the log has been packed. Packs never change: members of a form may be at different offsets, and share those
	// that come after.
	ready [forms]int64
	next  time.Time // before which no batches are made
	waits bool      // there are messages that wait for next

	// The log at the last look.
	have [forms]int
	log  share
	text []byte // of a batch; reused
	out  []byte // a frame; reused
}

// look takes a snapshot. room.mu is held.
func (p *packer) look(r *Room) {
	p.have = r.have
	p.log.lookAt(&r.log)
}

// pack packs the messages that were not packed before.
func (p *packer) pack(with *websocket.Compression, now time.Time) {
	p.waits = false
	for f := single; f < forms; f++ {
		from := max(p.ready[f], p.log.first())
		switch {
		case p.have[f] == 0:
			p.ready[f] = p.log.head
			continue
		case f == batch && from < p.log.head && p.log.head-from < batchBytes && now.Before(p.next):
			p.waits = true
			continue
		case f == batch && from < p.log.head:
			p.next = now.Add(gatherPause)
		}
		w := &packing{packer: p, with: with, form: f, most: p.most(f)}
		for from < p.log.head {
			part := p.log.from(from)
			w.addAll(from, part)
			from += int64(len(part))
		}
		w.end()
		p.ready[f] = p.log.head
	}
}

// first is where the log begins: all members have received, or skipped, what was before.
func (s *share) first() int64 {
	if len(s.chunks) == 0 {
		return s.head
	}
	return s.chunks[0].start
}

// most is how many messages one pack may stand for.
func (p *packer) most(f form) int {
	if f == single {
		return 1
	}
	members := 0
	for _, n := range p.have {
		members += n
	}
	return min(max(int(math.Sqrt(float64(members))), minBatch), maxBatch)
}

// release forgets the packs of messages that all members have received.
func (p *packer) release(oldest int64) {
	for f, packs := range p.packs {
		n := 0
		for n < len(packs) && packs[n].end <= oldest {
			n++
		}
		p.packs[f] = slices.Delete(packs, 0, n)
	}
}

// packing gathers the messages of one pack after another.
type packing struct {
	*packer
	with *websocket.Compression
	form form
	most int

	next pack
	size int    // of what it stands for, as frames
	only []byte // the payload, if it is one message
}

// addAll adds the frames of a part of the log, which begins at an offset. Frames of the log are unmasked, whole messages.
func (w *packing) addAll(at int64, frames []byte) {
	for len(frames) > 0 {
		h, n, err := websocket.ParseHeader(frames)
		if err != nil || n == 0 {
			return
		}
		size := n + int(h.Length)
		w.add(at, h.Op, frames[n:size], size)
		frames = frames[size:]
		at += int64(size)
	}
}

// add adds a message. Binary ones are compressed alone.
func (w *packing) add(at int64, op websocket.Opcode, payload []byte, size int) {
	if w.next.messages == w.most || w.size+size > batchBytes || op != websocket.OpText {
		w.end()
	}
	if w.next.messages == 0 {
		w.next.start, w.next.end, w.only = at, at, payload
		w.text = append(w.text[:0], '[')
	} else {
		w.text = append(w.text, ',')
	}
	if w.most > 1 && op == websocket.OpText {
		w.text = append(w.text, payload...)
	}
	w.next.messages++
	w.next.end += int64(size)
	w.size += size
	if op != websocket.OpText {
		w.endAs(op)
	}
}

func (w *packing) end() { w.endAs(websocket.OpText) }

// endAs makes the pack, if it is smaller than the messages that it stands for.
func (w *packing) endAs(op websocket.Opcode) {
	next, payload := w.next, w.only
	if next.messages > 1 {
		w.text = append(w.text, ']')
		payload = w.text
	}
	size := w.size
	w.next, w.size, w.only = pack{}, 0, nil
	if next.messages == 0 {
		return
	}
	if w.out = w.with.AppendFrame(w.out[:0], op, payload); len(w.out) < size {
		next.frame = bytes.Clone(w.out)
		w.packs[w.form] = append(w.packs[w.form], next)
	}
}

// end is up to where a member gets the log in this round. A member may have skipped more than that.
func (s *share) end(m *Member) int64 {
	if m.form == plain {
		return s.head
	}
	return s.ready[m.form]
}

// nextFor returns the next bytes for a member: a pack, or frames of the log. If it skips what is next, it returns nothing. A member that
// begins within a pack, or skips a part of it, gets the frames.
func (s *share) nextFor(m *Member) (part []byte, whole *pack) {
	if m.form == plain {
		return s.next(&m.pos, &m.skip), nil
	}
	packs := s.packed[m.form]
	i, _ := slices.BinarySearchFunc(packs, m.pos, func(p pack, pos int64) int {
		if p.end <= pos {
			return -1
		}
		return 1
	})
	until := s.end(m)
	if i < len(packs) {
		p := &packs[i]
		if p.start == m.pos && (len(m.skip) == 0 || m.skip[0].start >= p.end) {
			return p.frame, p
		}
		until = p.end
		if m.pos < p.start {
			until = p.start
		}
	}
	part = s.next(&m.pos, &m.skip)
	return part[:max(min(int64(len(part)), until-m.pos), 0)], nil
}
