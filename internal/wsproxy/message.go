package wsproxy

import (
	"encoding/json"
	"regexp"

	"github.com/fxamacker/cbor/v2"

	"github.com/tidewire/tidewire/websocket"
)

// message is what rules look at.
type message struct {
	kind    string // the field type
	id      any    // the field id, a text or a number; nil if there is none
	answers string // the type of the request with this id
}

// head are the fields of a message that are read.
type head struct {
	Type string `json:"type" cbor:"type"`
	ID   any    `json:"id" cbor:"id"`
}

// kindInText finds the type in the first fragment of a JSON message, where it is an early field.
var kindInText = regexp.MustCompile(`"type":"([a-z_]+)"`)

// read reads what rules look at from the payload of a frame, which may be the first fragment of a message. Of what is no message it
// returns the zero value.
func read(op websocket.Opcode, payload []byte) (m message) {
	var h head
	if op == websocket.OpBinary && cbor.Unmarshal(payload, &h) == nil {
		return message{kind: h.Type, id: keyOf(h.ID)}
	}
	if json.Unmarshal(payload, &h) == nil {
		return message{kind: h.Type, id: keyOf(h.ID)}
	}
	if found := kindInText.FindSubmatch(payload); found != nil {
		m.kind = string(found[1])
	}
	return m
}

// keyOf makes an id usable as a key: equal numbers are equal, in each encoding.
func keyOf(id any) any {
	switch id := id.(type) {
	case string, float64:
		return id
	case uint64:
		return float64(id)
	case int64:
		return float64(id)
	}
	return nil
}
