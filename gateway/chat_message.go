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
	Type     string
	ID, TS   json.RawMessage // a part of the payload: copy what is kept
	Room     *string
	User     string
	OnLag    string
	Presence bool
	After    *int64
	History  int
	// Placed: it has a position, as what a stored room sends has.
	Placed bool
}

var errMalformed = errors.New("gateway: malformed message")

// parseChat reads one message. Beside an error, the message has its ID if that
// could be read: then its sender is owed an answer.
func parseChat(payload []byte) (m chatMessage, err error) {
	object := bytes.TrimLeft(payload, " \t\r\n")
	if len(object) == 0 || object[0] != '{' || !json.Valid(object) {
		return m, errMalformed
	}
	f, err := scanChat(object)
	m.ID = f.once[1]
	if checkID(&m.ID) != nil || err != nil || !m.read(&f) {
		return chatMessage{ID: m.ID}, errMalformed
	}
	return m, nil
}

// read takes the values over, and reports whether they are of the right types.
func (m *chatMessage) read(f *chatFields) bool {
	kind, room, user := f.once[0], f.once[2], f.once[3]
	if !isText(kind) || !isText(room) || !isText(user) || !isText(f.text) || !isText(f.onLag) {
		return false
	}
	m.TS, m.Placed = f.ts, f.once[4] != nil
	m.Type, m.User, m.OnLag = text(kind), text(user), text(f.onLag)
	if isString(room) {
		name := text(room)
		m.Room = &name
	}
	okPresence, okAfter, okHistory := decode(f.presence, &m.Presence), decode(f.after, &m.After), decode(f.history, &m.History)
	return okPresence && okAfter && okHistory &&
		(m.Type != "chat" || isString(f.text)) && m.History >= 0 && (m.After == nil || *m.After >= 0)
}

// decode reads a value of a join, if it is there, and reports whether it is of
// that type.
func decode[T any](value []byte, to *T) bool {
	if value == nil {
		return true
	}
	var v T // of its own: to need not be on the heap
	err := json.Unmarshal(value, &v)
	*to = v
	return err == nil
}

func isString(value []byte) bool { return len(value) > 0 && value[0] == '"' }

// isText reports whether a value is a string, null, or missing.
func isText(value []byte) bool { return len(value) == 0 || value[0] == '"' || value[0] == 'n' }

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
