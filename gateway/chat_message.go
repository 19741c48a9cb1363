package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
)

// Limits of a chat message's fields, in bytes; a room's and a user's name are
// kept by the server, the text is not.
const (
	maxNameBytes = 128
	maxIDBytes   = 128
)

// defaultRoom is meant where a message names none.
const defaultRoom = "public"

// chatMessage is what a client sends on /ws/chat. Unknown fields are kept in
// the bytes that are passed on, and ignored here.
type chatMessage struct {
	Type     string          `json:"type"`
	ID       json.RawMessage `json:"id"`
	Room     *string         `json:"room"`
	User     string          `json:"user"`
	Text     *string         `json:"text"`
	TS       json.RawMessage `json:"ts"`
	OnLag    string          `json:"on_lag"`
	Presence bool            `json:"presence"`
	After    *int64          `json:"after"`
	History  int             `json:"history"`
}

var errMalformed = errors.New("gateway: malformed message")

// parseChat reads one message. Beside an error, the message has its ID if that
// could be read: then its sender is owed an answer.
func parseChat(payload []byte) (chatMessage, error) {
	var m chatMessage
	if bytes.HasPrefix(bytes.TrimLeft(payload, " \t\r\n"), []byte("{")) && json.Unmarshal(payload, &m) == nil {
		if m.Type == "chat" && m.Text == nil || m.History < 0 || m.After != nil && *m.After < 0 {
			return m, errMalformed
		}
		return m, checkID(&m.ID)
	}
	m = chatMessage{}
	var id struct {
		ID json.RawMessage `json:"id"`
	}
	if json.Unmarshal(payload, &id) == nil {
		m.ID = id.ID
	}
	checkID(&m.ID)
	return m, errMalformed
}

// checkID accepts a string or a number; anything else is no request, and is
// removed.
func checkID(id *json.RawMessage) error {
	if len(*id) == 0 {
		return nil
	}
	if c := (*id)[0]; len(*id) <= maxIDBytes && (c == '"' || c == '-' || c >= '0' && c <= '9') {
		return nil
	}
	*id = nil
	return errMalformed
}

func (m chatMessage) room() string {
	if m.Room == nil {
		return defaultRoom
	}
	return *m.Room
}
