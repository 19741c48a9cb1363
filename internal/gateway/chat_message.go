package gateway

import "encoding/json"

// Limits of a chat message's fields, in bytes. The server keeps the names of
// rooms and users, but not the text.
const (
	maxNameBytes = 128
	maxIDBytes   = 128
)

// defaultRoom is the room of a message that names none.
const defaultRoom = "public"

// chatMessage is a client's message on /ws/chat. Unknown fields are ignored
// here, and published with the other bytes.
type chatMessage struct {
	Type     string
	ID, TS   json.RawMessage // a part of the payload: copy what is kept
	Room     *string
	User     string
	OnLag    string
	Presence bool
	Batch    bool // the client takes several messages as one
	After    *int64
	History  int
	// Placed and Timed: it has a position or time field, as the messages that a stored room sends.
	Placed, Timed bool
	// Client and Sequence name a chat in a stored room, so that it can be repeated. Ambiguous: one of them occurs twice, or in another spelling.
	Client, Sequence json.RawMessage // parts of the payload
	Ambiguous        bool
}

// parseChat parses one message. With a problem, the message still has its ID if
// that could be read, so that it can be answered.
func parseChat(payload []byte) (m chatMessage, why *problem) {
	object := trimSpace(payload)
	if len(object) == 0 || object[0] != '{' {
		return m, errNoObject
	}
	if !json.Valid(object) {
		return chatMessage{ID: identifyChat(object)}, undecodable(object, json.Unmarshal(object, new(json.RawMessage)))
	}
	f, why := scanChat(object)
	m.ID = f.once[1]
	if bad := checkID(&m.ID); bad != nil {
		return m, bad
	}
	if why == nil {
		why = m.read(&f)
	}
	if why != nil {
		return chatMessage{ID: m.ID}, why
	}
	return m, nil
}

// parse is parseChat for messages that are not nested too deeply.
func (p *participant) parse(payload []byte) (chatMessage, *problem) {
	if why := tooDeep(payload, p.server.cfg.maxDepth); why != nil {
		return chatMessage{ID: identifyChat(trimSpace(payload))}, why
	}
	return parseChat(payload)
}

// identifyChat returns the ID of an object that is invalid JSON or nested too
// deeply, unless the ID is ambiguous.
func identifyChat(object []byte) json.RawMessage {
	var f chatFields
	eachField(object, func(key, value []byte) { f.note(key[1:len(key)-1], value) })
	f.settle()
	id := json.RawMessage(f.once[1])
	if checkID(&id) != nil || !json.Valid(id) {
		return nil
	}
	return id
}

// read sets m's fields, if the values have the right types.
func (m *chatMessage) read(f *chatFields) *problem {
	kind, room, user := f.once[0], f.once[2], f.once[3]
	for _, one := range [...]struct {
		name  string
		value []byte
	}{{"type", kind}, {"room", room}, {"user", user}, {"text", f.text}, {"on_lag", f.onLag}} {
		if !isText(one.value) {
			return malformed(one.name, "a string")
		}
	}
	m.TS, m.Placed, m.Timed = f.ts, f.once[4] != nil, f.once[5] != nil
	m.Client, m.Sequence, m.Ambiguous = f.client, f.sequence, f.ambiguous
	m.Type, m.User, m.OnLag = text(kind), text(user), text(f.onLag)
	if isString(room) {
		name := text(room)
		m.Room = &name
	}
	switch {
	case m.Type == "chat" && !isString(f.text):
		return malformed("text", "a string")
	case m.OnLag != "" && m.OnLag != "gap" && m.OnLag != "disconnect":
		return malformed("on_lag", "gap or disconnect")
	case !decode(f.presence, &m.Presence):
		return malformed("presence", "true or false")
	case !decode(f.batch, &m.Batch):
		return malformed("batch", "true or false")
	case !decode(f.after, &m.After) || m.After != nil && *m.After < 0:
		return malformed("after", "a whole number, 0 or more")
	case !decode(f.history, &m.History) || m.History < 0:
		return malformed("history", "a whole number, 0 or more")
	}
	return nil
}

// decode decodes an optional value, and reports whether it has the right type.
func decode[T any](value []byte, to *T) bool {
	if value == nil {
		return true
	}
	var v T // a separate variable, so that *to need not be on the heap
	err := json.Unmarshal(value, &v)
	*to = v
	return err == nil
}

func isString(value []byte) bool { return len(value) > 0 && value[0] == '"' }

// isText reports whether a value is a string, null, or missing.
func isText(value []byte) bool { return len(value) == 0 || value[0] == '"' || value[0] == 'n' }

// checkID accepts a string or a number, and clears any other ID.
func checkID(id *json.RawMessage) *problem {
	if len(*id) == 0 || string(*id) == "null" {
		*id = nil
		return nil
	}
	if c := (*id)[0]; len(*id) <= maxIDBytes && (c == '"' || c == '-' || c >= '0' && c <= '9') {
		return nil
	}
	*id = nil
	return errBadID
}

func (m chatMessage) room() string {
	if m.Room == nil {
		return defaultRoom
	}
	return *m.Room
}
