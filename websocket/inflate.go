package websocket

import (
	"bytes"
	"io"
	"runtime"
	"sync"
	"unicode/utf8"

	"github.com/klauspost/compress/flate"
)

// inflaters are shared by all connections. One holds about 40 KiB, its window included, for the time of one message;
// the garbage collector empties the pool.
var inflaters sync.Pool

// inflating limits how many messages are inflated at a time, and so the memory of inflaters. None waits for a peer, since
// a message is inflated only when all of it has arrived.
var inflating = make(chan struct{}, runtime.GOMAXPROCS(0))

// trailer ends a message for an inflater: the empty block that is not sent, and an empty final block.
var trailer = []byte{0x00, 0x00, 0xff, 0xff, 0x01, 0x00, 0x00, 0xff, 0xff}

// firstInflated is the most bytes that are allocated for a message before any of it is inflated.
const firstInflated = 64 << 10

// maxHeld is how many buffers the list of a connection may have room for between two reads.
const maxHeld = 4

// maxFinalBlocks is how many final blocks a message may have, apart from the trailer's. A sender may end each of its flushes with one
// (RFC 7692, section 7.2.1). After each, the inflater starts again, with a copy of up to 32 KiB.
const maxFinalBlocks = 100

var (
	errEarly    = &ProtocolError{StatusPolicyViolation, "compressed message before authentication"}
	errEarlyBig = &ProtocolError{StatusPolicyViolation, "compressed message too big before authentication"}
	// errInflate has the code of text that is not UTF-8: the payload does not fit the type of the message (RFC 6455, section 7.4.1).
	// RFC 7692 leaves the code open (section 7.2.2).
	errInflate = &ProtocolError{StatusInvalidPayload, "invalid compressed data"}
)

// unpacker inflates the messages of one peer. The decoder owns it. It holds the messages of the last decode, and nothing
// while the connection waits for its peer.
type unpacker struct {
	*agreement
	trusts bool // the peer may send compressed messages before AllowCompression

	most int            // bytes of the current message after inflating
	over *ProtocolError // the error if it is larger

	held  []*buffer // inflated messages; the last buffer may have room for another
	used  int       // bytes of the last buffer
	total int       // bytes of all these messages
}

// begin sets the limits of a compressed message that begins, and reports whether the peer may send it.
func (u *unpacker) begin(largest int) bool {
	u.most, u.over = largest, errTooBig
	if !u.trusts && !u.allowed.Load() {
		u.most, u.over = min(largest, u.Early), errEarlyBig
	}
	return u.most > 0
}

// packedMost is how large the current message may be before inflating. If it does not shrink, it grows by the headers of
// its blocks.
func (u *unpacker) packedMost() int { return u.most + u.most>>6 + 64 }

// inflate inflates a whole message. The result is valid until release.
func (u *unpacker) inflate(packed []byte) ([]byte, *ProtocolError) {
	inflating <- struct{}{}
	defer func() { <-inflating }()
	z, ok := inflaters.Get().(*inflater)
	if !ok {
		z = newInflater()
	}
	defer inflaters.Put(z)
	in := getBuffer(len(packed) + len(trailer))
	defer in.put()
	n := copy(in.b, packed)
	n += copy(in.b[n:], trailer)
	z.begin(in.b[:n])
	defer z.in.Reset(nil)
	start := u.room(len(packed))
	for {
		free := u.last()[u.used:]
		size := u.used - start
		switch {
		case size == u.most:
			free = z.extra[:]
		case len(free) == 0:
			start = u.grow(start)
			continue
		default:
			free = free[:min(len(free), u.most-size)]
		}
		n, err := z.flate.Read(free)
		if n > 0 && size == u.most {
			return nil, u.over
		}
		u.used += n
		message := u.last()[start:u.used:u.used]
		switch {
		case err == nil:
		case err != io.EOF || !z.ended() && z.finals == maxFinalBlocks:
			return nil, errInflate
		case z.ended():
			u.total += len(message)
			return message, nil
		default:
			z.finals++
			z.reset(message)
		}
	}
}

// last is the buffer that the current message is inflated into.
func (u *unpacker) last() []byte { return u.held[len(u.held)-1].b }

// room finds a place for a message of so many bytes before inflating, and returns where in the last buffer it begins. It
// trusts nothing that the peer says, so the place may be too small.
func (u *unpacker) room(packed int) (start int) {
	if len(u.held) == 0 || len(u.last())-u.used < 2*packed {
		u.held = append(u.held, getBuffer(max(min(4*packed, u.most, firstInflated), 1)))
		u.used = 0
	}
	return u.used
}

// grow moves the current message, which begins at start, to a buffer of twice its size, and returns where it begins there.
func (u *unpacker) grow(start int) int {
	old, size := u.held[len(u.held)-1], u.used-start
	larger := getBuffer(max(min(2*size, u.most), 1))
	copy(larger.b, old.b[start:u.used])
	if start == 0 {
		u.held[len(u.held)-1] = larger
		old.put()
	} else { // the buffer has other messages
		u.held = append(u.held, larger)
	}
	u.used = size
	return 0
}

// release returns the buffers of the messages to the pool.
func (u *unpacker) release() {
	for _, b := range u.held {
		b.put()
	}
	clear(u.held)
	if u.held = u.held[:0]; cap(u.held) > maxHeld {
		u.held = nil
	}
	u.used, u.total = 0, 0
}

// drop leaves the buffers to the garbage collector, since the messages may be in use.
func (u *unpacker) drop() { u.held, u.used, u.total = nil, 0, 0 }

// size is how many bytes the messages hold.
func (u *unpacker) size() (n int) {
	for _, b := range u.held {
		n += cap(b.b)
	}
	return n
}

// inflater inflates one message at a time.
type inflater struct {
	in     bytes.Reader
	flate  io.ReadCloser // a flate.Resetter
	finals int           // final blocks of the message so far
	extra  [1]byte       // finds out whether a message is larger than it may be
}

func newInflater() *inflater {
	z := &inflater{}
	z.flate = flate.NewReader(&z.in) // a bytes.Reader: it reads no byte more than it needs
	return z
}

// begin begins a message, which ends with trailer.
func (z *inflater) begin(in []byte) {
	z.in.Reset(in)
	z.finals = 0
	z.reset(nil)
}

// reset begins a run of blocks, which may refer to the bytes of before.
func (z *inflater) reset(before []byte) {
	_ = z.flate.(flate.Resetter).Reset(&z.in, before) // it never fails
}

// ended reports whether a final block was that of the message's end. Blocks that follow one continue the message (RFC 7692,
// section 7.2.1). If nothing of the message follows, not even the empty block that ought to, it has ended as well.
func (z *inflater) ended() bool { return z.in.Len() == 0 || z.in.Len() == len(trailer) }

// packedFrame checks the header of a frame of a compressed message.
func (d *decoder) packedFrame(h Header) error {
	u, have := d.unpack, d.end-d.start
	if h.Op != OpContinuation {
		have = 0
		if !u.begin(d.max) {
			return errEarly
		}
	}
	if h.Length > int64(u.packedMost()-have) {
		return u.over
	}
	return nil
}

// inflate ends a compressed message: all of it has arrived in b. It appends the message to msgs, or sets d.err.
func (d *decoder) inflate(b []byte, msgs []Message) []Message {
	payload, err := d.unpack.inflate(b[d.start:d.end])
	switch {
	case err != nil:
		d.err = err
		return msgs
	case d.op == OpText && !d.anyText && !utf8.Valid(payload):
		d.err = errText
		return msgs
	}
	msgs = append(msgs, Message{d.op, payload})
	d.op, d.start = 0, d.end
	return msgs
}
