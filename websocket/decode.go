package websocket

import "encoding/binary"

// Message is one whole data message.
type Message struct {
	Op      Opcode // OpText or OpBinary
	Payload []byte // a part of the read buffer: valid until the next Read
}

// decoder turns the bytes of one peer into messages, in the buffer they were
// read into: it parses the headers, unmasks in place and, if a message comes in
// fragments, moves each payload next to the one before. It handles bytes as
// they arrive, so a message is copied only to grow or to empty the buffer.
//
//	0       start         end      r              w        len(b)
//	| spent | message so far | gap | not yet seen | free space |
//
// No message is unfinished while op is zero; then start equals end.
type decoder struct {
	buf        *buffer // nil while it would be empty
	start, end int
	r, w       int

	left    int    // bytes of the current data frame that have not arrived
	key     uint32 // mask for the first of them
	op      Opcode // of the unfinished message; OpContinuation if there is none
	fin     bool   // the current frame is its last
	packed  bool   // it is compressed
	checked int    // bytes of it, from start, known to be whole UTF-8 runes
	frames  int    // of it, before the current one

	finished int // number of messages, and of control frames outside a message

	err error // why reading ended: *CloseError, *ProtocolError or the socket's error

	size      int  // of the buffer to read into
	max       int  // bytes of the largest message
	maxFrames int  // of a message; 0: any number
	client    bool // frames come from a server, unmasked
	anyText   bool // text need not be UTF-8
	control   func(Opcode, []byte)
	unpack    *unpacker // nil unless compression was negotiated
}

// held returns how many bytes in the buffer are still needed.
func (d *decoder) held() int { return d.end - d.start + d.w - d.r }

// space returns where to put the next bytes that arrive, at least one byte; it
// invalidates the messages that decode returned before. A buffer is grown only
// when half of it is full of bytes that have arrived, regardless of the length
// in a header.
func (d *decoder) space() []byte {
	held := d.held()
	if held == 0 {
		if d.buf == nil || len(d.buf.b) < d.size {
			d.release()
			d.buf = getBuffer(d.size)
		}
		d.start, d.end, d.r, d.w = 0, 0, 0, 0
		return d.buf.b
	}
	size := len(d.buf.b)
	if free := size - d.w; size >= d.size && (free >= size/2 || d.left > 0 && free >= d.left-(d.w-d.r)) {
		return d.buf.b[d.w:]
	}
	switch free := size - held; {
	case size < d.size:
		d.move(getBuffer(max(d.size, 2*held)))
	case free >= size/2 || d.left > 0 && free >= d.left-(d.w-d.r):
		d.move(d.buf)
	default:
		d.move(getBuffer(2 * size))
	}
	return d.buf.b[d.w:]
}

// move copies the bytes still needed to the start of to, which may be the same
// buffer.
func (d *decoder) move(to *buffer) {
	from := d.buf
	d.copyTo(to)
	if from != to {
		from.put()
	}
}

// park is called before a wait of unknown length: it releases the buffer, or
// replaces one that is mostly empty by a smaller one.
func (d *decoder) park() {
	if d.buf == nil {
		return
	}
	switch held := d.held(); {
	case held == 0:
		d.release()
	case held <= len(d.buf.b)/4 && len(d.buf.b) > 1<<minClass:
		d.move(getBuffer(held))
	}
}

// release returns the buffer to the pool and drops its content.
func (d *decoder) release() {
	if d.unpack != nil {
		d.unpack.release()
	}
	if d.buf != nil {
		d.buf.put()
		d.buf = nil
		d.start, d.end, d.r, d.w = 0, 0, 0, 0
	}
}

// abandon moves the bytes still needed to a new buffer, since the caller of
// Read may still use the messages in the old one.
func (d *decoder) abandon() {
	if d.unpack != nil {
		d.unpack.drop()
	}
	if d.buf == nil {
		return
	}
	d.copyTo(getBuffer(max(d.held(), d.size)))
}

func (d *decoder) copyTo(to *buffer) {
	n := copy(to.b, d.buf.b[d.start:d.end])
	m := copy(to.b[n:], d.buf.b[d.r:d.w])
	d.buf, d.start, d.end, d.r, d.w = to, 0, n, n, n+m
}

// decode returns the complete messages. They are valid until the next call of
// any method. If err is set as well, it belongs after them. Compressed messages
// may be returned by several calls, the last of which returns none: inflated
// they may be large.
func (d *decoder) decode() []Message {
	if d.unpack != nil {
		d.unpack.release()
	}
	if d.buf == nil || d.err != nil {
		return nil
	}
	b, msgs := d.buf.b, d.buf.msgs[:0]
	for d.err == nil {
		if d.left == 0 {
			if d.op == 0 {
				msgs = d.decodeShort(b, msgs)
			}
			if !d.header(b) {
				break
			}
		}
		if d.left > 0 {
			d.payload(b)
			if d.left > 0 || d.err != nil {
				break
			}
		}
		if d.fin && d.op != 0 && d.packed {
			if msgs = d.inflate(b, msgs); d.unpack.total >= d.size {
				break
			}
		} else if d.fin && d.op != 0 {
			if d.op == OpText && !d.anyText && d.checked != d.end-d.start {
				d.err = errText // ends inside a rune
				break
			}
			msgs = append(msgs, Message{d.op, b[d.start:d.end:d.end]})
			d.op, d.start = 0, d.end
		}
	}
	d.buf.msgs = msgs
	d.finished += len(msgs)
	return msgs
}

// decodeShort is the fast path: it decodes messages from the start of the
// unread bytes as long as each is one whole masked frame of less than 64 KiB.
// All other frames are left to the general path.
func (d *decoder) decodeShort(b []byte, msgs []Message) []Message {
	if d.client {
		return msgs
	}
	r, w, limit := d.r, d.w, d.max
	for w-r >= 8 {
		p := b[r:w]
		op := Opcode(p[0] &^ 0x80)
		if p[0]&0x80 == 0 || op-1 > 1 || p[1]&0x80 == 0 {
			break
		}
		n, head := int(p[1]&0x7F), 6
		if n >= 126 {
			if n == 127 {
				break
			}
			n, head = int(binary.BigEndian.Uint16(p[2:])), 8
			if n < 126 {
				break
			}
		}
		if n > limit || head+n > len(p) {
			break
		}
		key := binary.LittleEndian.Uint32(p[head-4:])
		payload := p[head : head+n : head+n]
		seen := xor(payload, key)
		if seen&highBits != 0 && op == OpText && !d.anyText {
			if whole, ok := checkText(payload); !ok || whole != n {
				d.err = errText
				break
			}
		}
		msgs = append(msgs, Message{op, payload})
		r += head + n
	}
	d.r, d.start, d.end = r, r, r
	return msgs
}

// header handles the next frame's header, and a control frame completely. It
// reports whether there was one.
func (d *decoder) header(b []byte) bool {
	if d.err != nil {
		return false
	}
	h, n, err := ParseHeader(b[d.r:d.w])
	switch {
	case err != nil:
		d.err = errLength
		return false
	case n == 0:
		return false
	}
	packed := d.packed && h.Op == OpContinuation
	if h.RSV == rsv1 && d.unpack != nil && (h.Op == OpText || h.Op == OpBinary) {
		packed, h.RSV = true, 0
	}
	switch err := h.Validate(); {
	case err != nil:
		d.err = err
	case h.Masked && d.client:
		d.err = errMasked
	case !h.Masked && !d.client:
		d.err = errUnmasked
	case h.Op.Control():
		return d.controlFrame(b, h, n)
	case h.Op == OpContinuation && d.op == 0:
		d.err = errContinuation
	case h.Op != OpContinuation && d.op != 0:
		d.err = errInterleaved
	case d.maxFrames > 0 && d.frames >= d.maxFrames:
		d.err = errFragments
	case packed:
		d.err = d.packedFrame(h)
	case h.Length > int64(d.max-(d.end-d.start)):
		d.err = errTooBig
	}
	if d.err != nil {
		return false
	}
	d.r += n
	if h.Op != OpContinuation {
		d.op, d.start, d.end, d.checked, d.packed = h.Op, d.r, d.r, 0, packed
	}
	if d.frames++; h.Fin {
		d.frames = 0
	}
	d.fin, d.left, d.key = h.Fin, int(h.Length), word(h.Key, 0)
	return true
}

// payload unmasks and checks the bytes of the current data frame that have
// arrived.
func (d *decoder) payload(b []byte) {
	n := min(d.left, d.w-d.r)
	p := b[d.r : d.r+n]
	seen := xor(p, d.key)
	d.key = turn(d.key, n)
	if d.end != d.r {
		copy(b[d.end:], p)
	}
	d.left -= n
	d.r += n
	d.end += n
	if d.op != OpText || d.anyText || d.packed {
		return
	}
	if seen&highBits == 0 && d.checked == d.end-n-d.start {
		d.checked += n
		return
	}
	whole, ok := checkText(b[d.start+d.checked : d.end])
	d.checked += whole
	if !ok {
		d.err = errText
	}
}

// controlFrame handles a control frame once all of it has arrived.
func (d *decoder) controlFrame(b []byte, h Header, n int) bool {
	size := n + int(h.Length)
	if d.w-d.r < size {
		return false
	}
	p := b[d.r+n : d.r+size]
	Mask(p, h.Key, 0)
	if d.op == 0 {
		d.start, d.end = d.r+size, d.r+size
		d.finished++
	}
	d.r += size
	if h.Op == OpClose {
		d.err = parseClose(p)
		return false
	}
	d.control(h.Op, p)
	return true
}
