package websocket

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"unicode/utf8"
)

// heard is the result of decoding a stream.
type heard struct {
	messages []string // opcode and payload
	controls []string
	status   StatusCode // of the error that ended it; 0 if none did
	closed   string     // the peer's Close
	inside   bool       // it stopped inside a message or frame
}

func (h heard) String() string {
	return fmt.Sprintf("%.200q %.200q status %d closed %q inside %v", h.messages, h.controls, h.status, h.closed, h.inside)
}

type rules struct {
	max     int
	client  bool
	anyText bool
	packed  bool // messages may be compressed
}

// listen runs the decoder on a stream that arrives in the given pieces.
func listen(stream []byte, r rules, piece func() int, park func() bool) heard {
	var got heard
	d := decoder{size: 1 << 10, max: r.max, client: r.client, anyText: r.anyText}
	d.control = func(op Opcode, p []byte) { got.controls = append(got.controls, fmt.Sprint(op, string(p))) }
	if r.packed {
		d.unpack = &unpacker{agreement: &agreement{}, trusts: true}
	}
	for len(stream) > 0 && d.err == nil {
		n := min(piece(), len(stream))
		n = copy(d.space(), stream[:n])
		d.w += n
		stream = stream[n:]
		for {
			msgs := d.decode()
			if len(msgs) == 0 {
				break
			}
			for _, m := range msgs {
				got.messages = append(got.messages, fmt.Sprint(m.Op, string(m.Payload)))
			}
		}
		if park() {
			d.park()
		}
	}
	var broken *ProtocolError
	var closed *CloseError
	switch {
	case errors.As(d.err, &broken):
		got.status = broken.Code
	case errors.As(d.err, &closed):
		got.closed = closed.Error()
	default:
		got.inside = d.held() > 0 || d.op != 0
	}
	d.release()
	return got
}

// twin is the reference decoder, slow and simple: it has the whole stream at
// once, copies everything and has no fast path.
func twin(stream []byte, r rules) heard {
	var got heard
	var op Opcode
	var message []byte
	fail := func(code StatusCode) heard { got.status = code; return got }
	for {
		if len(stream) < 2 {
			break
		}
		fin, rsv, code := stream[0]&128 != 0, stream[0]&0x70, Opcode(stream[0]&15)
		masked, short := stream[1]&128 != 0, stream[1]&127
		size := 2
		if short == 126 {
			size += 2
		} else if short == 127 {
			size += 8
		}
		lengthEnd := size
		if masked {
			size += 4
		}
		if len(stream) >= lengthEnd && (short == 126 && binary.BigEndian.Uint16(stream[2:]) < 126 ||
			short == 127 && (stream[2]&128 != 0 || binary.BigEndian.Uint64(stream[2:]) < 65536)) {
			return fail(1002)
		}
		if len(stream) < size {
			break
		}
		length := uint64(short)
		if short == 126 {
			length = uint64(binary.BigEndian.Uint16(stream[2:]))
		} else if short == 127 {
			length = binary.BigEndian.Uint64(stream[2:])
		}
		control := code >= 8
		switch {
		case rsv != 0,
			code != 0 && code != 1 && code != 2 && code != 8 && code != 9 && code != 10,
			control && (!fin || length > 125),
			masked == r.client,
			code == 0 && op == 0,
			(code == 1 || code == 2) && op != 0:
			return fail(1002)
		case !control && uint64(len(message))+length > uint64(r.max):
			return fail(1009)
		}
		arrived := stream[size:]
		whole := uint64(len(arrived)) >= length
		if whole {
			arrived = arrived[:length]
		}
		payload := bytes.Clone(arrived)
		if masked {
			for i := range payload {
				payload[i] ^= stream[lengthEnd+i%4]
			}
		}
		if !control {
			if code != 0 {
				op = code
			}
			message = append(message, payload...)
			if op == OpText && !r.anyText && !couldBecomeText(message) {
				return fail(1007)
			}
		}
		if !whole {
			break
		}
		stream = stream[size+int(length):]
		switch {
		case code == 8 && length == 1:
			return fail(1002)
		case code == 8 && length == 0:
			got.closed = (&CloseError{Code: 1005}).Error()
			return got
		case code == 8:
			status := StatusCode(payload[0])<<8 + StatusCode(payload[1])
			if status < 1000 || status >= 1004 && status <= 1006 || status >= 1015 && status < 3000 || status > 4999 {
				return fail(1002)
			}
			if !utf8.Valid(payload[2:]) {
				return fail(1007)
			}
			got.closed = (&CloseError{Code: status, Reason: string(payload[2:])}).Error()
			return got
		case control:
			got.controls = append(got.controls, fmt.Sprint(code, string(payload)))
		case fin:
			if op == OpText && !r.anyText && !utf8.Valid(message) {
				return fail(1007)
			}
			got.messages = append(got.messages, fmt.Sprint(op, string(message)))
			op, message = 0, nil
		}
	}
	got.inside = len(stream) > 0 || op != 0
	return got
}

// frame is one frame as a client would send it.
func frame(fin bool, op Opcode, payload string) []byte {
	h := Header{Fin: fin, Op: op, Masked: true, Key: [4]byte{0x37, 0xFA, 0x21, 0x3D}, Length: int64(len(payload))}
	b := append(AppendHeader(nil, h), payload...)
	Mask(b[len(b)-len(payload):], h.Key, 0)
	return b
}

func join(frames ...[]byte) []byte { return bytes.Join(frames, nil) }

func TestDecoder_rules(t *testing.T) {
	t.Parallel()
	unmasked := AppendFrame(nil, OpText, []byte("hello"))
	with := func(b []byte, i int, or byte) []byte { b = bytes.Clone(b); b[i] |= or; return b }
	closing := func(code int, reason string) []byte {
		return frame(true, OpClose, string([]byte{byte(code >> 8), byte(code)})+reason)
	}
	hello := frame(true, OpText, "hello")
	for _, test := range []struct {
		name   string
		stream []byte
		status StatusCode
		want   []string
	}{
		{"5.1 unmasked frame from a client", join(hello, unmasked), 1002, []string{"texthello"}},
		{"5.2 RSV1", with(hello, 0, 0x40), 1002, nil},
		{"5.2 RSV2", with(hello, 0, 0x20), 1002, nil},
		{"5.2 RSV3", with(hello, 0, 0x10), 1002, nil},
		{"5.2 opcode 3", frame(true, 3, ""), 1002, nil},
		{"5.2 opcode 7", frame(true, 7, ""), 1002, nil},
		{"5.2 opcode 11", frame(true, 11, ""), 1002, nil},
		{"5.2 opcode 15", frame(true, 15, ""), 1002, nil},
		{"5.2 16 bit length not needed", []byte{0x81, 0xFE, 0, 5, 0, 0, 0, 0, 1, 2, 3, 4, 5}, 1002, nil},
		{"5.2 64 bit length not needed", []byte{0x81, 0xFF, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 1, 2, 3, 4, 5}, 1002, nil},
		{"5.2 negative length", []byte{0x82, 0xFF, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 1002, nil},
		{"5.4 continuation of nothing", frame(true, OpContinuation, "x"), 1002, nil},
		{"5.4 continuation after the last", join(frame(false, OpText, "a"), frame(true, 0, "b"), frame(true, 0, "c")), 1002, []string{"textab"}},
		{"5.4 message in a message", join(frame(false, OpText, "a"), frame(true, OpText, "b")), 1002, nil},
		{"5.4 empty fragments", join(frame(false, OpBinary, ""), frame(false, 0, ""), frame(true, 0, "")), 0, []string{"binary"}},
		{"5.4 control between fragments", join(frame(false, OpText, "a"), frame(true, OpPing, "p"), frame(true, 0, "b")), 0, []string{"textab"}},
		{"5.5 fragmented ping", frame(false, OpPing, "p"), 1002, nil},
		{"5.5 ping of 125", frame(true, OpPing, string(make([]byte, 125))), 0, nil},
		{"5.5 ping of 126", frame(true, OpPing, string(make([]byte, 126))), 1002, nil},
		{"5.5.1 close of 1 byte", frame(true, OpClose, "x"), 1002, nil},
		{"5.5.1 reason not UTF-8", closing(1000, "\xff"), 1007, nil},
		{"5.5.1 nothing after close", join(hello, closing(1000, ""), unmasked), 0, []string{"texthello"}},
		{"5.6 text not UTF-8", join(hello, frame(true, OpText, "\xff")), 1007, []string{"texthello"}},
		{"5.6 text ends in a rune", frame(true, OpText, "\xe2\x82"), 1007, nil},
		{"5.6 text ends in a rune, fragmented", join(frame(false, OpText, "\xe2"), frame(true, 0, "\x82")), 1007, nil},
		{"5.6 rune over fragments", join(frame(false, OpText, "\xe2"), frame(false, 0, "\x82"), frame(true, 0, "\xac")), 0, []string{"text€"}},
		{"5.6 fails before the last fragment", join(frame(false, OpText, "\xed"), frame(false, 0, "\xa0")), 1007, nil},
		{"5.6 fails inside a frame", frame(true, OpText, "a\xffbcdefghijk")[:8], 1007, nil},
		{"5.6 binary need not be", frame(true, OpBinary, "\xff"), 0, []string{"binary\xff"}},
		{"7.4 code 999", closing(999, ""), 1002, nil},
		{"7.4 code 1004", closing(1004, ""), 1002, nil},
		{"7.4 code 1005", closing(1005, ""), 1002, nil},
		{"7.4 code 1006", closing(1006, ""), 1002, nil},
		{"7.4 code 1014", closing(1014, ""), 0, nil},
		{"7.4 code 1015", closing(1015, ""), 1002, nil},
		{"7.4 code 2999", closing(2999, ""), 1002, nil},
		{"7.4 code 3000", closing(3000, ""), 0, nil},
		{"7.4 code 4999", closing(4999, ""), 0, nil},
		{"7.4 code 5000", closing(5000, ""), 1002, nil},
		{"10.4 at the limit", frame(true, OpBinary, string(make([]byte, 3000))), 0, []string{"binary" + string(make([]byte, 3000))}},
		{"10.4 over the limit", frame(true, OpBinary, string(make([]byte, 3001)))[:8], 1009, nil},
		{"10.4 over the limit in fragments", join(frame(false, OpBinary, string(make([]byte, 3000))), frame(true, 0, "x")), 1009, nil},
		{"10.4 largest length", []byte{0x82, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0}, 1009, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := rules{max: 3000}
			for _, size := range []int{1, 2, 3, 7, 100, 1 << 20} {
				got := listen(test.stream, r, func() int { return size }, func() bool { return size < 3 })
				if got.status != test.status || fmt.Sprint(got.messages) != fmt.Sprint(test.want) {
					t.Errorf("in pieces of %d: %v", size, got)
				}
				if want := twin(test.stream, r); got.String() != want.String() {
					t.Errorf("in pieces of %d: %v\n twin: %v", size, got, want)
				}
			}
		})
	}
}

// compare decodes a stream in random pieces, and compares the result with the
// twin's.
func compare(t *testing.T, stream []byte, r rules, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	most := 1 + random.IntN(1<<random.IntN(13))
	got := listen(stream, r, func() int { return 1 + random.IntN(most) }, func() bool { return random.IntN(2) == 0 })
	if want := twin(stream, r); got.String() != want.String() || fmt.Sprint(got.messages) != fmt.Sprint(want.messages) {
		t.Fatalf("rules %+v seed %d stream %x\n got %v\nwant %v", r, seed, stream, got, want)
	}
}

// TestDecoder_twin compares mostly valid streams, which the fuzzer would take
// long to find.
func TestDecoder_twin(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	text := []byte("plain words, grüße, 漢字, 🙂🙂, and on. ")
	for seed := range uint64(4000) {
		r := rules{max: 1 << (4 + random.IntN(12)), client: random.IntN(4) == 0, anyText: random.IntN(4) == 0}
		var stream []byte
		open := false
		for range random.IntN(12) {
			h := Header{Fin: random.IntN(3) > 0, Op: OpText + Opcode(random.IntN(2)), Masked: !r.client}
			binary.LittleEndian.PutUint32(h.Key[:], random.Uint32())
			if r.client {
				h.Key = [4]byte{}
			}
			size := random.IntN(1 + min(r.max, 1<<random.IntN(14)))
			switch {
			case random.IntN(5) == 0:
				h.Op, h.Fin, size = OpPing+Opcode(random.IntN(2)), true, random.IntN(126)
			case open:
				h.Op, open = OpContinuation, !h.Fin
			default:
				open = !h.Fin
			}
			h.Length = int64(size)
			stream = AppendHeader(stream, h)
			start := len(stream)
			for i := range size {
				stream = append(stream, text[i%len(text)])
			}
			Mask(stream[start:], h.Key, 0)
		}
		if random.IntN(2) == 0 {
			stream = append(stream, frame(true, OpClose, "\x03\xe8bye")...)
		}
		if len(stream) > 0 && random.IntN(3) == 0 {
			stream[random.IntN(len(stream))] ^= 1 << random.IntN(8)
		}
		compare(t, stream, r, seed)
	}
}

func FuzzReader(f *testing.F) {
	f.Add(join(frame(true, OpText, "hello"), frame(true, OpPing, "p"), frame(true, OpClose, "\x03\xe8bye")), uint64(1), uint16(100), byte(0))
	f.Add(join(frame(false, OpText, "\xe2\x82"), frame(true, OpPong, ""), frame(true, 0, "\xac")), uint64(2), uint16(4), byte(0))
	f.Add(frame(true, OpBinary, string(make([]byte, 300))), uint64(3), uint16(300), byte(2))
	f.Add(AppendFrame(AppendFrame(nil, OpText, []byte("from a server")), OpClose, nil), uint64(4), uint16(90), byte(1))
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64, max uint16, flags byte) {
		compare(t, stream, rules{max: int(max), client: flags&1 != 0, anyText: flags&2 != 0}, seed)
	})
}
