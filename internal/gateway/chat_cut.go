package gateway

import (
	"bytes"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/wire"
)

// cutFields appends an object, which is valid JSON, without its fields of these names. All other bytes stay as they are. Fields of inner objects
// stay, and so do names in another spelling.
func cutFields(dst, object []byte, names ...string) []byte {
	brace := bytes.IndexByte(object, '{')
	start := skipSpace(object, brace+1) // of the next field
	dst = append(dst, object[:start]...)
	first := true
	end := start // of the last field
	for at := start; object[at] != '}'; {
		separator := object[end:at] // the comma, with the space around it
		colon := skipSpace(object, stringEnd(object, at))
		key := object[at+1 : stringEnd(object, at)-1]
		end = valueEnd(object, skipSpace(object, colon+1))
		if !oneOf(key, names) {
			if !first {
				dst = append(dst, separator...)
			}
			dst = append(dst, object[at:end]...)
			first = false
		}
		if at = skipSpace(object, end); object[at] == ',' {
			at = skipSpace(object, at+1)
		}
	}
	return append(dst, object[end:]...)
}

func oneOf(key []byte, names []string) bool {
	for _, name := range names {
		if string(key) == name {
			return true
		}
	}
	return false
}

// withoutID returns a chat without its id, which is for the sender alone.
func withoutID(payload []byte) []byte {
	if !bytes.Contains(payload, []byte(`"id"`)) {
		return payload
	}
	return cutFields(nil, payload, "id")
}

// chatTime is how the time of a stored chat is written: RFC 3339 with milliseconds.
const chatTime = `"2006-01-02T15:04:05.000Z"`

// storedForm returns a chat as it is stored: without what is for its sender alone, and with its time, which is the same for all members.
func storedForm(payload []byte, at time.Time) []byte {
	form := make([]byte, 0, len(payload)+len(`,"time":`)+len(chatTime)+len(`,"position":1234567890123}`))
	form = bytes.TrimRight(cutFields(form, payload, "id", "client", "sequence"), " \t\r\n")
	form = append(form[:len(form)-1], `,"time":`...) // after the type and the text, which every chat has
	return append(at.UTC().AppendFormat(form, chatTime), '}')
}

// unstorable returns why a stored room does not take a chat, or nil. Members trust what the server adds.
func (m chatMessage) unstorable() *problem {
	switch {
	case m.Placed:
		return malformed("position", "none: the server adds it")
	case m.Timed:
		return malformed("time", "none: the server adds it")
	}
	return nil
}

// requestID returns the RequestID of a caller's chat in a stored room, or nil.
func (m chatMessage) requestID(c *auth.Caller) (*engine.RequestID, *problem) {
	if m.Ambiguous {
		return nil, malformed("client", "client and sequence once each, spelled in no other way")
	}
	if m.Client == nil && m.Sequence == nil {
		return nil, nil
	}
	var named request
	switch {
	case !isText(m.Client):
		return nil, malformed("client", "a string")
	case !decode(m.Sequence, &named.Sequence):
		return nil, malformed("sequence", "a whole number, 0 or more")
	}
	named.Client = text(m.Client)
	if len(m.Sequence) > 0 && m.Sequence[0] != 'n' {
		named.Given = wire.Of(wire.FieldSequence)
	}
	return named.requestID(c)
}
