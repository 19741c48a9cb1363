package websocket

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Opcode says what a frame carries (RFC 6455, section 5.2).
type Opcode byte

// The opcodes of RFC 6455. All others are reserved: a peer that uses one
// breaks the protocol.
const (
	OpContinuation Opcode = 0x0 // the next fragment of a message
	OpText         Opcode = 0x1 // UTF-8
	OpBinary       Opcode = 0x2
	OpClose        Opcode = 0x8
	OpPing         Opcode = 0x9
	OpPong         Opcode = 0xA
)

func (op Opcode) String() string {
	switch op {
	case OpContinuation:
		return "continuation"
	case OpText:
		return "text"
	case OpBinary:
		return "binary"
	case OpClose:
		return "close"
	case OpPing:
		return "ping"
	case OpPong:
		return "pong"
	}
	return fmt.Sprintf("opcode %#x", byte(op))
}

// Control reports whether op belongs to a control frame, which carries at most
// MaxControl bytes, is never fragmented, and may come between two fragments of
// a message.
func (op Opcode) Control() bool { return op&0x8 != 0 }

const (
	// MaxControl is the largest payload of a control frame, in bytes.
	MaxControl = 125

	// MaxHeader is the largest encoded Header, in bytes: 2, a length of 8, a key of 4.
	MaxHeader = 14
)

// Header is a frame's header.
type Header struct {
	Fin    bool    // the last frame of its message
	RSV    byte    // the three reserved bits, RSV1 being 4; zero unless an extension was negotiated
	Op     Opcode  // the low four bits of the first byte
	Masked bool    // Key follows, as it must in every frame from a client
	Key    [4]byte // zero unless Masked
	Length int64   // payload bytes
}

// ErrLength is ParseHeader's error for a payload length that uses more bytes
// than it needs, or the sign bit.
var ErrLength = errors.New("websocket: payload length is not in its shortest form")

// ParseHeader reads the header at the start of b and returns its size, n.
// When b holds only a part of it, n is 0. It checks the encoding of the
// length and nothing else: see [Header.Validate].
func ParseHeader(b []byte) (h Header, n int, err error) {
	if len(b) < 2 {
		return Header{}, 0, nil
	}
	h.Fin = b[0]&0x80 != 0
	h.RSV = b[0] >> 4 & 0x7
	h.Op = Opcode(b[0] & 0xF)
	h.Masked = b[1]&0x80 != 0
	n = 2
	switch short := b[1] & 0x7F; short {
	default:
		h.Length = int64(short)
	case 126:
		if len(b) < 4 {
			return Header{}, 0, nil
		}
		n = 4
		h.Length = int64(binary.BigEndian.Uint16(b[2:]))
		if h.Length < 126 {
			return h, 0, ErrLength
		}
	case 127:
		if len(b) < 10 {
			return Header{}, 0, nil
		}
		n = 10
		h.Length = int64(binary.BigEndian.Uint64(b[2:]))
		if h.Length < 1<<16 { // negative ones too
			return h, 0, ErrLength
		}
	}
	if h.Masked {
		if len(b) < n+4 {
			return Header{}, 0, nil
		}
		h.Key = [4]byte(b[n:])
		n += 4
	}
	return h, n, nil
}

// Validate checks the rules for a frame of either side without extensions:
// reserved bits, opcode, and that a control frame is short and not fragmented.
func (h Header) Validate() error {
	switch {
	case h.RSV != 0:
		return errReserved
	case h.Op > OpBinary && h.Op < OpClose || h.Op > OpPong:
		return errOpcode
	case h.Op.Control() && !h.Fin:
		return errFragmentedControl
	case h.Op.Control() && h.Length > MaxControl:
		return errLongControl
	}
	return nil
}

// AppendHeader appends h in its encoded form, at most MaxHeader bytes.
func AppendHeader(dst []byte, h Header) []byte {
	first := h.RSV&0x7<<4 | byte(h.Op)&0xF
	if h.Fin {
		first |= 0x80
	}
	var masked byte
	if h.Masked {
		masked = 0x80
	}
	switch {
	case h.Length < 126:
		dst = append(dst, first, masked|byte(h.Length))
	case h.Length < 1<<16:
		dst = append(dst, first, masked|126, byte(h.Length>>8), byte(h.Length))
	default:
		dst = append(dst, first, masked|127)
		dst = binary.BigEndian.AppendUint64(dst, uint64(h.Length))
	}
	if h.Masked {
		dst = append(dst, h.Key[:]...)
	}
	return dst
}

// AppendFrame appends a whole message as one unmasked frame, as a server sends
// it.
func AppendFrame(dst []byte, op Opcode, payload []byte) []byte {
	if len(payload) < 126 {
		dst = append(dst, 0x80|byte(op), byte(len(payload)))
	} else {
		dst = AppendHeader(dst, Header{Fin: true, Op: op, Length: int64(len(payload))})
	}
	return append(dst, payload...)
}

// AppendMaskedFrame appends a whole message as one frame masked with key, as a
// client sends it. If the payload comes from another party than the client,
// that party must not be able to predict the key (RFC 6455, section 10.3).
func AppendMaskedFrame(dst []byte, op Opcode, key [4]byte, payload []byte) []byte {
	dst = AppendHeader(dst, Header{Fin: true, Op: op, Masked: true, Key: key, Length: int64(len(payload))})
	start := len(dst)
	dst = append(dst, payload...)
	xor(dst[start:], word(key, 0))
	return dst
}

// frameSize returns the size of a whole message as one frame.
func frameSize(payload int, masked bool) int {
	n := 2 + payload
	if payload >= 1<<16 {
		n += 8
	} else if payload >= 126 {
		n += 2
	}
	if masked {
		n += 4
	}
	return n
}
