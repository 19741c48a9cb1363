package websocket

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"
)

// reference inflates a message with package compress/flate. The status is 0, or the code of the Close frame.
func reference(op Opcode, packed []byte, most int) (message []byte, status StatusCode) {
	in := bytes.NewReader(append(bytes.Clone(packed), "\x00\x00\xff\xff\x01\x00\x00\xff\xff"...))
	for finals := 0; ; finals++ {
		z := flate.NewReaderDict(in, message)
		more, err := io.ReadAll(io.LimitReader(z, int64(most+1-len(message))))
		switch message = append(message, more...); {
		case len(message) > most:
			return nil, 1009
		case err != nil:
			return nil, 1007
		case in.Len() == 0 || in.Len() == 9:
			if op == OpText && !utf8.Valid(message) {
				return nil, 1007
			}
			return message, 0
		case finals == maxFinalBlocks:
			return nil, 1007
		}
	}
}

// packedFrame is a frame of a compressed message, as a client would send it.
func packedFrame(fin bool, op Opcode, payload string) []byte {
	b := frame(fin, op, payload)
	b[0] |= rsv1Byte
	return b
}

// packedWith compresses a message with package compress/flate.
func packedWith(t testing.TB, level int, payload string) string {
	t.Helper()
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, level)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, payload); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(b.String(), "\x00\x00\xff\xff")
}

// TestDecoder_packed has the examples of RFC 7692, section 7.2.3, and rules for compressed messages.
func TestDecoder_packed(t *testing.T) {
	t.Parallel()
	const hello = "\xf2\x48\xcd\xc9\xc9\x07\x00"
	with := func(b []byte, or byte) []byte { b = bytes.Clone(b); b[0] |= or; return b }
	text := func(payload string) []byte { return packedFrame(true, OpText, payload) }
	big := strings.Repeat("0123456789", 300)
	for _, test := range []struct {
		name   string
		stream []byte
		status StatusCode
		want   []string
	}{
		{"7.2.3.1 one block", text(hello), 0, []string{"textHello"}},
		{"7.2.3.1 fragments", join(packedFrame(false, OpText, hello[:3]), frame(true, 0, hello[3:])), 0, []string{"textHello"}},
		{"7.2.3.2 refers to an earlier message", join(text(hello), text("\xf2\x00\x11\x00\x00")), 1007, []string{"textHello"}},
		{"7.2.3.3 stored block", text("\x00\x05\x00\xfa\xffHello\x00"), 0, []string{"textHello"}},
		{"7.2.3.4 final block", text("\xf3\x48\xcd\xc9\xc9\x07\x00\x00"), 0, []string{"textHello"}},
		{"7.2.3.5 two blocks", text("\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00"), 0, []string{"textHello"}},
		{"7.2.3.6 empty", text("\x00"), 0, []string{"text"}},
		{"final block and nothing after it", text("\xf3\x48\xcd\xc9\xc9\x07\x00"), 0, []string{"textHello"}},
		{"blocks after a final one refer to it", text("\xf3\x48\xcd\xc9\xc9\x07\x00\xf2\x00\x11\x00\x00"), 0, []string{"textHelloHello"}},
		{"many final blocks", text(strings.Repeat("\x03\x00", maxFinalBlocks) + "\x00"), 0, []string{"text"}},
		{"too many final blocks", text(strings.Repeat("\x03\x00", maxFinalBlocks+1) + "\x00"), 1007, nil},
		{"the trailer was not removed", text(hello + "\x00\x00\xff\xff"), 1007, nil},
		{"no byte at all", text(""), 1007, nil},
		{"reserved block type", text("\x07"), 1007, nil},
		{"wrong length of a stored block", text("\x00\x05\x00\xfa\xfeHello\x00"), 1007, nil},
		{"cut off", text(hello[:4]), 1007, nil},
		{"empty fragments", join(packedFrame(false, OpText, ""), frame(false, 0, hello), frame(true, 0, "")), 0, []string{"textHello"}},
		{"control frames between fragments", join(packedFrame(false, OpText, hello[:1]), frame(true, OpPing, "p"), frame(true, 0, hello[1:])), 0, []string{"textHello"}},
		{"uncompressed between others", join(text(hello), frame(true, OpText, "plain"), text(hello)), 0, []string{"textHello", "textplain", "textHello"}},
		{"RSV1 on a continuation", join(packedFrame(false, OpText, hello[:3]), packedFrame(true, 0, hello[3:])), 1002, nil},
		{"RSV1 on a later fragment alone", join(frame(false, OpText, "a"), packedFrame(true, 0, hello)), 1002, nil},
		{"RSV1 on a ping", packedFrame(true, OpPing, ""), 1002, nil},
		{"RSV1 on a pong", packedFrame(true, OpPong, ""), 1002, nil},
		{"RSV1 on a close", packedFrame(true, OpClose, ""), 1002, nil},
		{"RSV1 and RSV2", with(text(hello), 0x20), 1002, nil},
		{"RSV1 and RSV3", with(text(hello), 0x10), 1002, nil},
		{"RSV2", with(frame(true, OpText, hello), 0x20), 1002, nil},
		{"RSV1 and a reserved opcode", packedFrame(true, 3, hello), 1002, nil},
		{"message in a message", join(packedFrame(false, OpText, hello[:3]), text(hello)), 1002, nil},
		{"text not UTF-8", text(packedWith(t, 6, "\xff")), 1007, nil},
		{"text ends in a rune", text(packedWith(t, 6, "\xe2\x82")), 1007, nil},
		{"packed bytes are no text", text(packedWith(t, 0, "grüße")), 0, []string{"textgrüße"}},
		{"binary need not be UTF-8", packedFrame(true, OpBinary, packedWith(t, 6, "\xff")), 0, []string{"binary\xff"}},
		{"at the limit", text(packedWith(t, 6, big)), 0, []string{"text" + big}},
		{"at the limit, stored", text(packedWith(t, 0, big)), 0, []string{"text" + big}},
		{"over the limit", join(text(hello), text(packedWith(t, 6, big+"x"))), 1009, []string{"textHello"}},
		{"frame over the limit", packedFrame(true, OpBinary, string(make([]byte, 3200)))[:8], 1009, nil},
		{"frames over the limit", join(packedFrame(false, OpBinary, string(make([]byte, 3000))), frame(true, 0, string(make([]byte, 200)))), 1009, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for _, size := range []int{1, 2, 3, 7, 100, 1 << 20} {
				got := listen(test.stream, rules{max: 3000, packed: true}, func() int { return size }, func() bool { return size < 3 })
				if got.status != test.status || fmt.Sprint(got.messages) != fmt.Sprint(test.want) {
					t.Errorf("in pieces of %d: %v", size, got)
				}
				without := listen(test.stream, rules{max: 3000}, func() int { return size }, func() bool { return false })
				if test.stream[0]&rsv1Byte != 0 && without.status != 1002 {
					t.Errorf("without an agreement: %v", without)
				}
			}
		})
	}
}

// gibibyte is a compressed message of a GiB of zeros: a run of blocks that do not refer to each other.
func gibibyte(t testing.TB) string {
	return strings.Repeat(packedWith(t, 9, string(make([]byte, 1<<20)))+"\x00\x00\xff\xff", 1023) + packedWith(t, 9, string(make([]byte, 1<<20)))
}

// TestInflate_bomb: a message of a GiB ends at the limit of a MiB, and costs memory only for that.
func TestInflate_bomb(t *testing.T) { // not parallel: it counts what the process allocates
	bomb := packedFrame(true, OpBinary, gibibyte(t))
	d := decoder{size: 64 << 10, max: 1 << 20, unpack: &unpacker{agreement: &agreement{}, trusts: true}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for len(bomb) > 0 && d.err == nil {
		n := copy(d.space(), bomb)
		d.w += n
		bomb = bomb[n:]
		if msgs := d.decode(); len(msgs) > 0 {
			t.Fatalf("got a message of %d bytes", len(msgs[0].Payload))
		}
	}
	d.release()
	runtime.ReadMemStats(&after)
	if d.err != errTooBig {
		t.Errorf("ended with %v", d.err)
	}
	// The message: buffers of 64 KiB to 2 MiB, and a copy; its first MiB: buffers of 64 KiB to 1 MiB.
	if n := after.TotalAlloc - before.TotalAlloc; n > 10<<20 {
		t.Errorf("allocated %d bytes", n)
	}
}

// TestInflate_manyBombs: one read brings messages that inflate to 50 MiB. decode returns them in parts.
func TestInflate_manyBombs(t *testing.T) {
	t.Parallel()
	const size, count = 1 << 20, 50
	one := packedFrame(true, OpBinary, packedWith(t, 9, string(make([]byte, size))))
	d := decoder{size: 64 << 10, max: size, unpack: &unpacker{agreement: &agreement{}, trusts: true}}
	d.w += copy(d.space(), bytes.Repeat(one, count))
	got := 0
	for msgs := d.decode(); len(msgs) > 0; msgs = d.decode() {
		got += len(msgs)
		if n := d.unpack.size(); n > 64<<10+size {
			t.Fatalf("holds %d bytes", n)
		}
		for _, m := range msgs {
			if len(m.Payload) != size {
				t.Fatalf("message of %d bytes", len(m.Payload))
			}
		}
	}
	if got != count || d.err != nil || d.unpack.size() != 0 {
		t.Errorf("%d messages, %v, holds %d bytes", got, d.err, d.unpack.size())
	}
	d.release()
}

// TestDeflate_roundTrip: what deflate makes, for each level and window, package compress/flate inflates again.
func TestDeflate_roundTrip(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	noise := make([]byte, 1<<16) // of which level 1 writes all before the flush
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	chats := bytes.Repeat([]byte(`{"type":"chat","room":"lobby","text":"grüße"}`), 20_000)
	for level := range 10 {
		for window := 8; window <= 15; window++ {
			if window < 15 && level > 0 {
				continue // the level has no effect
			}
			for _, size := range []int{1, 10, 46, 127, 128, 300, 5000, 70_000, 300_000} {
				in := chats[:size]
				p := deflate(in, level, window)
				if p == nil && size > 300 {
					t.Errorf("level %d, window %d: %d bytes did not shrink", level, window, size)
				}
				if p == nil {
					continue
				}
				if got, status := reference(OpBinary, p.b, size); status != 0 || !bytes.Equal(got, in) || len(p.b) >= size {
					t.Errorf("level %d, window %d: %d bytes became %d, and then %d, %d", level, window, size, len(p.b), len(got), status)
				}
				p.put()
			}
			if p := deflate(noise, level, window); p != nil {
				t.Errorf("level %d, window %d: noise shrinks to %d bytes", level, window, len(p.b))
			}
		}
	}
}

// TestDeflate_window: no part of a message with a small window refers to another.
func TestDeflate_window(t *testing.T) {
	t.Parallel()
	in := bytes.Repeat([]byte("some words that come again and again, "), 100)
	p := deflate(in, 9, 9)
	defer p.put()
	rest := append(bytes.Clone(p.b), "\x00\x00\xff\xff"...)
	for at := 0; at < len(in); at += 1 << 9 {
		part := in[at:min(at+1<<9, len(in))]
		alone := deflate(part, 0, 15)
		want := append(bytes.Clone(alone.b), "\x00\x00\xff\xff"...)
		alone.put()
		if !bytes.HasPrefix(rest, want) {
			t.Fatalf("the part at %d is not what it is alone", at)
		}
		rest = rest[len(want):]
	}
	if len(rest) > 0 {
		t.Errorf("%d bytes too many", len(rest))
	}
}

// FuzzInflate compares a compressed message, in fragments and in pieces, with what package compress/flate makes of it. Then
// it compresses the fuzzer's data.
func FuzzInflate(f *testing.F) {
	f.Add([]byte("\xf2\x48\xcd\xc9\xc9\x07\x00"), uint16(100), uint64(1), true)
	f.Add([]byte("\xf3\x48\xcd\xc9\xc9\x07\x00\xf2\x00\x11\x00\x00"), uint16(10), uint64(2), false)
	f.Add([]byte("\x00\x05\x00\xfa\xffHello\x00"), uint16(5), uint64(3), true)
	f.Add([]byte(packedWith(f, 9, string(make([]byte, 70_000)))), uint16(65535), uint64(4), false)
	f.Fuzz(func(t *testing.T, packed []byte, most uint16, seed uint64, isText bool) {
		random := rand.New(rand.NewPCG(seed, 1))
		op, rest := OpBinary, string(packed)
		if isText {
			op = OpText
		}
		want := heard{}
		if most == 0 || len(packed) > int(most)+int(most)>>6+64 {
			return
		}
		message, status := reference(op, packed, int(most))
		if want.status = status; status == 0 {
			want.messages = []string{fmt.Sprint(op, string(message))}
		}
		var stream []byte
		for first := true; first || rest != ""; first = false {
			n := min(len(rest), 1+random.IntN(1+len(rest)))
			if first {
				stream = packedFrame(n == len(rest), op, rest[:n])
			} else {
				stream = append(stream, frame(n == len(rest), 0, rest[:n])...)
			}
			rest = rest[n:]
		}
		got := listen(stream, rules{max: int(most), packed: true}, func() int { return 1 + random.IntN(1000) }, func() bool { return random.IntN(2) == 0 })
		if got.String() != want.String() || fmt.Sprint(got.messages) != fmt.Sprint(want.messages) {
			t.Fatalf("got  %v\nwant %v", got, want)
		}
		level, window := random.IntN(10), 8+random.IntN(8)
		if p := deflate(packed, level, window); p != nil {
			if again, status := reference(OpBinary, p.b, len(packed)); status != 0 || !bytes.Equal(again, packed) {
				t.Fatalf("level %d, window %d: %x became %x, and then %x", level, window, packed, p.b, again)
			}
			p.put()
		}
	})
}
