package bench

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"

	"github.com/tidewire/tidewire/websocket"
)

// MinPayload is the size of the part of a payload that identifies it.
const MinPayload = 8

const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"

// digit is the inverse of digits; 0xff marks characters that are no digits.
var digit = func() (t [256]byte) {
	for i := range t {
		t[i] = 0xff
	}
	for i, d := range []byte(digits) {
		t[d] = byte(i)
	}
	return t
}()

// AppendPayload appends message seq of a client: eight characters that identify
// both (16 bits of client, 32 of seq, six bits in each), then a filler that is
// the same for all messages, up to size bytes.
func AppendPayload(dst []byte, client, seq, size int) []byte {
	var name [MinPayload]byte
	putName(name[:], client, seq)
	dst = append(dst, name[:]...)
	for i := MinPayload; i < size; i++ {
		dst = append(dst, digits[(i*7)%64])
	}
	return dst
}

func putName(dst []byte, client, seq int) {
	v := uint64(client)<<32 | uint64(uint32(seq))
	for i := range MinPayload {
		dst[i] = digits[v>>(42-6*i)&63]
	}
}

// ParsePayload is the inverse of AppendPayload. ok is false if AppendPayload
// does not produce p with this filler.
func ParsePayload(p, filler []byte) (client, seq int, ok bool) {
	if len(p) != len(filler) || len(p) < MinPayload || !bytes.Equal(p[MinPayload:], filler[MinPayload:]) {
		return 0, 0, false
	}
	return parseName(p[:MinPayload])
}

// parseName is the inverse of putName.
func parseName(name []byte) (client, seq int, ok bool) {
	var v uint64
	for _, c := range name {
		d := digit[c]
		if d == 0xff {
			return 0, 0, false
		}
		v = v<<6 | uint64(d)
	}
	return int(v >> 32), int(uint32(v)), true
}

// frames builds a client's masked frames from a template in which only the name
// changes, so that a message costs one copy and eight characters.
type frames struct {
	client   int
	template []byte
	name     int // where the name begins
	key      uint64
}

func newFrames(op websocket.Opcode, client, size int) *frames {
	var key [4]byte
	binary.BigEndian.PutUint32(key[:], rand.Uint32())
	payload := AppendPayload(nil, client, 0, size)
	template := websocket.AppendMaskedFrame(nil, op, key, payload)
	word := uint64(binary.BigEndian.Uint32(key[:]))
	return &frames{client: client, template: template, name: len(template) - size, key: word<<32 | word}
}

func (f *frames) append(dst []byte, seq int) []byte {
	at := len(dst) + f.name
	dst = append(dst, f.template...)
	name := dst[at : at+MinPayload]
	putName(name, f.client, seq)
	binary.BigEndian.PutUint64(name, binary.BigEndian.Uint64(name)^f.key)
	return dst
}
