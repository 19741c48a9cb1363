package main

import (
	"bytes"
	"encoding/json"
)

// message has the fields that the server uses of a client's message.
type message struct {
	Type string          `json:"type"`
	Room *string         `json:"room"`
	User string          `json:"user"`
	Text *string         `json:"text"`
	TS   json.RawMessage `json:"ts"`
}

// event is a message from the server itself.
type event struct {
	Type string          `json:"type"`
	TS   json.RawMessage `json:"ts,omitempty"`
}

// decode returns false for texts that are not JSON with fields of the right
// types.
func decode(text []byte) (msg message, ok bool) {
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) || json.Unmarshal(text, &msg) != nil {
		return msg, false
	}
	complete := msg.Type != "chat" || msg.Text != nil
	return msg, complete && len(msg.room()) <= nameMax && len(msg.User) <= nameMax
}

func (m message) room() string {
	if m.Room == nil {
		return defaultRoom
	}
	return *m.Room
}
