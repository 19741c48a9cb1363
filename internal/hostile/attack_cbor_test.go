package hostile

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"net"

	"github.com/fxamacker/cbor/v2"

	"github.com/tidewire/tidewire/websocket"
)

// silentCBOR returns a WebSocket whose messages are CBOR; nil if there is none.
func (a *attacker) silentCBOR() *net.TCPConn {
	c := a.raw()
	if c == nil {
		return nil
	}
	if !a.upgrade(c, "/ws", a.head()+"Sec-WebSocket-Protocol: tidewire.v1.cbor\r\n") {
		c.Close()
		return nil
	}
	if a.standing == mistaken {
		a.wrong("taken", "a handshake with a wrong token was accepted")
	}
	return c
}

// sendCBOR sends a random message, mostly as a binary one.
func (a *attacker) sendCBOR(c *net.TCPConn, id int) bool {
	op := websocket.OpBinary
	if a.random.IntN(100) == 0 {
		op = websocket.OpText
	}
	return frame(c, op, a.randomCBOR(id))
}

// randomCBOR returns a request in CBOR. Most can be read, so that a connection lasts for some of them.
func (a *attacker) randomCBOR(id int) []byte {
	valid := a.validCBOR(id)
	switch a.random.IntN(30) {
	case 0: // any bytes change
		for range 1 + a.random.IntN(5) {
			valid[a.random.IntN(len(valid))] = byte(a.random.IntN(256))
		}
	case 1: // cut
		return valid[:a.random.IntN(len(valid))]
	case 2: // more after the end
		return append(valid, valid...)
	case 3: // a length that lies
		return a.inField(a.lyingHead())
	case 4: // the message's own length lies
		return append(a.lyingHead(), valid[1:]...)
	case 5: // nested
		return a.inField(a.deepCBOR())
	case 6: // strings in parts, without an end
		part := [][]byte{{0x7f, 0x61, 'a'}, {0x5f, 0x41, 1}, {0x7f, 0x60}, {0x5f, 0x40}, {0x7f, 0x7f}, {0x7f, 0x41, 1}}[a.random.IntN(6)]
		return a.inField(append(part[:1:1], bytes.Repeat(part[1:], 1+a.random.IntN(10_000))...))
	case 7: // names twice
		return a.doubled(id)
	case 8: // values without use for JSON
		return a.inField([][]byte{{0xf7}, {0xf9, 0x7c, 0}, {0xf9, 0x7e, 0}, {0xfb, 0x7f, 0xf0, 0, 0, 0, 0, 0, 0}, {0xe0}, {0xf8, 0xff}, {0xff}, {0x1c}, {0xc2, 0x41, 1}, {0xc0, 0x60}}[a.random.IntN(10)])
	}
	return valid
}

// validCBOR is a random request, whose payload may be bytes.
func (a *attacker) validCBOR(id int) []byte {
	for {
		var fields map[string]any
		if json.Unmarshal([]byte(a.randomRequest(id)), &fields) != nil { // some values are none
			continue
		}
		for name, value := range fields {
			if whole, ok := value.(float64); ok && whole == float64(int32(whole)) {
				fields[name] = int64(whole)
			}
		}
		if text, ok := fields["payload"].(string); ok && a.random.IntN(2) == 0 {
			fields["payload"] = []byte(text + "\xff\x00")
		}
		if out, err := cbor.Marshal(fields); err == nil {
			return out
		}
	}
}

// inField is a request with a value, which need not be CBOR, in any field.
func (a *attacker) inField(value []byte) []byte {
	out := []byte{0xbf}
	for _, text := range []string{"type", a.one(randomTypes), "stream", "evil-0", a.one(randomFields)} {
		out = appendCBORText(out, text)
	}
	return append(append(out, value...), 0xff)
}

// doubled is a request in which some names are twice, one of them in two parts.
func (a *attacker) doubled(id int) []byte {
	field := a.one(randomFields)
	out := append([]byte{0xbf}, 0x62, 'i', 'd', byte(id%24), 0x7f, 0x61, 'i', 0x61, 'd', 0xff, byte(id%24))
	for _, text := range []string{"type", a.one(randomTypes), "type", a.one(randomTypes), field, "evil-0", field, "evil-queue"} {
		out = appendCBORText(out, text)
	}
	return append(out, 0xff)
}

// lyingHead is the head of a string, array, map or tag that is much longer than what follows.
func (a *attacker) lyingHead() []byte {
	major := []byte{2, 3, 4, 5, 6}[a.random.IntN(5)]
	length := []uint64{1 << 20, 1<<31 - 1, 1 << 32, 1<<63 - 1, 1 << 63, 1<<64 - 1}[a.random.IntN(6)]
	return binary.BigEndian.AppendUint64([]byte{major<<5 | 27}, length)
}

// deepCBOR is a value nested in arrays, maps or tags, with lengths and without.
func (a *attacker) deepCBOR() []byte {
	level := [][]byte{{0x81}, {0x9f}, {0xa1, 0x61, 'a'}, {0xbf, 0x61, 'a'}, {0xc6}, {0xd9, 0xd9, 0xf7}}[a.random.IntN(6)]
	return append(bytes.Repeat(level, []int{30, 70, 1000, 300_000}[a.random.IntN(4)]), 0)
}

func appendCBORText(out []byte, text string) []byte {
	if len(text) < 24 {
		return append(append(out, 0x60|byte(len(text))), text...)
	}
	return append(append(out, 0x78, byte(len(text))), text...)
}
