package bench

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// A chat is JSON with a fixed layout, so that the receiver finds its number at
// once: "~", then whether it was sent in the hold, then its sender and its
// number among all chats, as in AppendPayload.
const (
	chatFormat = `{"type":"chat","room":"public","user":"u%05d","ts":%013d,"text":"~%c%s`
	chatEnd    = `"}`
	chatMark   = len(`{"type":"chat","room":"public","user":"u00000","ts":0000000000000,"text":"`)

	// MinChat is the size of the smallest chat, in bytes.
	MinChat = chatMark + 2 + MinPayload + len(chatEnd)
	// MaxChat is the size of the largest.
	MaxChat = 16 << 10

	inHold    = 'h'
	notInHold = 'o'
)

// appendChat appends chat number n, sent by a client, as a frame.
func appendChat(dst []byte, client, n, size int, mark byte, now time.Time) []byte {
	var name [MinPayload]byte
	putName(name[:], client, n)
	text := fmt.Appendf(make([]byte, 0, size), chatFormat, client, now.UnixMilli(), mark, name[:])
	for len(text) < size-len(chatEnd) {
		text = append(text, '.')
	}
	text = append(text, chatEnd...)
	return websocket.AppendMaskedFrame(dst, websocket.OpText, maskKey(), text)
}

func appendText(dst []byte, format string, args ...any) []byte {
	return websocket.AppendMaskedFrame(dst, websocket.OpText, maskKey(), fmt.Appendf(nil, format, args...))
}

func appendLeave(dst []byte) []byte {
	dst = appendText(dst, `{"type":"leave","room":"public"}`)
	return websocket.AppendMaskedFrame(dst, websocket.OpClose, maskKey(), binary.BigEndian.AppendUint16(nil, uint16(websocket.StatusNormal)))
}

func maskKey() (key [4]byte) {
	binary.LittleEndian.PutUint32(key[:], rand.Uint32())
	return key
}

// chatText returns the part of a chat that identifies it, or nil if the payload is not one of this
// run's chats.
func chatText(payload []byte, size int) []byte {
	const length = 2 + MinPayload
	if len(payload) == size && payload[chatMark] == '~' { // as it was sent
		return payload[chatMark : chatMark+length]
	}
	_, text, found := bytes.Cut(payload, []byte(`"text":"~`)) // from a server that encodes chats again
	if !found || len(text) < length-1 {
		return nil
	}
	return payload[len(payload)-len(text)-1:][:length]
}

// notice is a message of the server that is not a chat.
type notice struct {
	Type   string `json:"type"`
	Missed int    `json:"missed"`
}

func parseNotice(payload []byte) notice {
	var n notice
	if json.Unmarshal(payload, &n) != nil {
		return notice{}
	}
	return n
}
