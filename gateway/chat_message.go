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

// code is an error that a client is told; its sentences are in publicErrors.
type code string

const (
	codeMalformed    code = "malformed"
	codeUnknownType  code = "unknown_type"
	codeRateLimited  code = "rate_limited"
	codeNotJoined    code = "not_joined"
	codeTooManyRooms code = "too_many_rooms"
	codeJoining      code = "join_pending"
	codeNameTooLong  code = "name_too_long"
	codeNotStoredIn  code = "room_not_stored"
	codeAhead        code = "position_ahead"
	codeUnavailable  code = "unavailable"
	codeNotStored    code = "not_stored"

	codeChunksNotOffered code = "chunks_not_offered"
	codeCreditNotOffered code = "credit_not_offered"
	codeCredit           code = "invalid_credit"
)

// publicErrors is all that clients ever read of an error.
var publicErrors = map[code]string{
	codeMalformed:    "the message is not a JSON object with fields of the documented types",
	codeUnknownType:  "the type is none of join, chat, ping, pong, leave",
	codeRateLimited:  "too many messages; retry later",
	codeNotJoined:    "join the room first",
	codeTooManyRooms: "this connection is in too many rooms; leave one first",
	codeJoining:      "the join of this room is still sending what was said before: wait for its answer",
	codeNameTooLong:  "a room's or user's name is at most 128 bytes",
	codeNotStoredIn:  "what is said in this room is not kept: join without after and history",
	codeAhead:        "nothing has been stored at this position yet: join without it",
	codeUnavailable:  "what was said before cannot be read now; join again later",
	codeNotStored:    "the message could not be stored",

	codeChunksNotOffered: "this server takes no chunks",
	codeCreditNotOffered: "say hello with credit first",
	codeCredit:           "credit: want 1 byte or more, and no more than 1 GiB unused",
}

var errMalformed = errors.New("gateway: malformed chat message")

// parseChat reads one message. Beside an error, the message has its ID if that
// could be read: then its sender is owed an answer.
func parseChat(payload []byte) (chatMessage, error) {
	var m chatMessage
	if bytes.HasPrefix(bytes.TrimLeft(payload, " \t\r\n"), []byte("{")) && json.Unmarshal(payload, &m) == nil {
		if m.Type == "chat" && m.Text == nil || m.History < 0 || m.After != nil && *m.After < 0 {
			return m, errMalformed
		}
		return m, checkID(&m)
	}
	m = chatMessage{}
	var id struct {
		ID json.RawMessage `json:"id"`
	}
	if json.Unmarshal(payload, &id) == nil {
		m.ID = id.ID
	}
	checkID(&m)
	return m, errMalformed
}

// checkID accepts a string or a number; anything else is no request.
func checkID(m *chatMessage) error {
	if len(m.ID) == 0 {
		return nil
	}
	if c := m.ID[0]; len(m.ID) <= maxIDBytes && (c == '"' || c == '-' || c >= '0' && c <= '9') {
		return nil
	}
	m.ID = nil
	return errMalformed
}

func (m chatMessage) room() string {
	if m.Room == nil {
		return defaultRoom
	}
	return *m.Room
}
