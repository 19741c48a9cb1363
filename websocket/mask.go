package websocket

import (
	"encoding/binary"
	"math/bits"
)

// Mask masks or unmasks b in place, which is the same operation. pos counts the
// payload bytes before b, so that a payload can be masked piece by piece; Mask
// returns it for the piece that follows.
func Mask(b []byte, key [4]byte, pos int) int {
	xor(b, word(key, pos))
	return pos + len(b)
}

// word turns the key so that its low byte masks the byte at pos.
func word(key [4]byte, pos int) uint32 {
	return turn(binary.LittleEndian.Uint32(key[:]), pos)
}

// turn rotates a key by n bytes.
func turn(key uint32, n int) uint32 {
	return bits.RotateLeft32(key, -8*(n&3))
}

// highBits has the high bit of every byte set, which no ASCII byte has.
const highBits = 0x8080808080808080

// xor applies key, whose low byte belongs to b[0]. It returns all bytes of the
// result or'ed into each other: the result is ASCII if no bit of highBits is
// set, which saves text a second pass.
//
// The last word overlaps the one before it, so there is no loop over single
// bytes: it is read before the words under it change and written after.
func xor(b []byte, key uint32) (seen uint64) {
	n := len(b)
	if n < 8 {
		return xorShort(b, key)
	}
	k := uint64(key)<<32 | uint64(key)
	end := b[n-8:]
	last := binary.LittleEndian.Uint64(end) ^ bits.RotateLeft64(k, -8*(n&3))
	seen = last
	for len(b) >= 32 {
		p := (*[32]byte)(b)
		w0 := binary.LittleEndian.Uint64(p[0:]) ^ k
		w1 := binary.LittleEndian.Uint64(p[8:]) ^ k
		w2 := binary.LittleEndian.Uint64(p[16:]) ^ k
		w3 := binary.LittleEndian.Uint64(p[24:]) ^ k
		binary.LittleEndian.PutUint64(p[0:], w0)
		binary.LittleEndian.PutUint64(p[8:], w1)
		binary.LittleEndian.PutUint64(p[16:], w2)
		binary.LittleEndian.PutUint64(p[24:], w3)
		seen |= w0 | w1 | w2 | w3
		b = b[32:]
	}
	for len(b) >= 8 {
		p := (*[8]byte)(b)
		w := binary.LittleEndian.Uint64(p[:]) ^ k
		binary.LittleEndian.PutUint64(p[:], w)
		seen |= w
		b = b[8:]
	}
	binary.LittleEndian.PutUint64(end, last)
	return seen
}

// xorShort is xor for fewer than eight bytes.
func xorShort(b []byte, key uint32) (seen uint64) {
	if n := len(b); n >= 4 { // two words that overlap
		first := binary.LittleEndian.Uint32(b) ^ key
		last := binary.LittleEndian.Uint32(b[n-4:]) ^ turn(key, n)
		binary.LittleEndian.PutUint32(b, first)
		binary.LittleEndian.PutUint32(b[n-4:], last)
		return uint64(first | last)
	}
	for i := range b {
		b[i] ^= byte(key)
		seen |= uint64(b[i])
		key >>= 8
	}
	return seen
}
