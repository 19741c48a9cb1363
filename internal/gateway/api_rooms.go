package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"unicode/utf8"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/wire"
	"github.com/tidewire/tidewire/websocket"
)

func onRoom(v auth.Verb) func(*http.Request) need { return needing(v, auth.Room, "room") }

// roomRoutes are those of rooms, and of messages to users.
func roomRoutes() map[string]route {
	return map[string]route{
		"GET /v1/rooms":                  {(*call).listRooms, nil},
		"POST /v1/rooms/{room}/kick":     {(*call).kick, onRoom("admin")},
		"POST /v1/rooms/{room}/chats":    {(*call).say, onRoom("chat")},
		"GET /v1/rooms/{room}/chats":     {(*call).readRoom, onRoom("history")},
		"GET /v1/rooms/{room}/follow":    {(*call).followRoom, onRoom("join")},
		"GET /v1/rooms/{room}/members":   {(*call).listMembers, onRoom("presence")},
		"POST /v1/rooms/chats":           {(*call).sayInMany, nil},
		"POST /v1/users/{user}/messages": {(*call).notify, needing("notify", auth.User, "user")},
	}
}

// room returns the room of the path, or refuses the call.
func (c *call) room() (string, bool) {
	name := c.r.PathValue("room")
	if why := unfitRoom(name); why != nil {
		c.refuseFor(why)
		return "", false
	}
	return name, true
}

// unfitRoom returns why no room can have a name.
func unfitRoom(name string) *problem {
	if len(name) > maxNameBytes {
		return because(codeNameTooLong)
	}
	if !validName(name) {
		return because(codeName)
	}
	return nil
}

// say publishes a chat without a sender among the members.
func (c *call) say() {
	name, ok := c.room()
	if !ok {
		return
	}
	body, ok := c.readObject()
	if !ok {
		return
	}
	chat, m, why := c.chatFor(name, body)
	stored := c.api.server.chats.stored
	var as *engine.RequestID
	if why == nil {
		as, why = c.chatID(m, stored.has(name))
	}
	if why != nil {
		c.refuseFor(why)
		return
	}
	if !stored.has(name) {
		c.broadcast(name, chat)
		c.answer(struct{}{})
		return
	}
	outcome, err := c.put(name, as, chat)
	if err != nil {
		c.fail(err, codeNotStored)
		return
	}
	if got := c.await(outcome); got.err != nil {
		c.fail(got.err, codeNotStored)
	} else {
		c.answer(reply{Position: &got.position, Duplicate: got.duplicate})
	}
}

// readObject reads the body, which has to be JSON that is not nested too deeply, or refuses the call.
func (c *call) readObject() ([]byte, bool) {
	body, ok := c.read()
	if !ok {
		return nil, false
	}
	if mediaType(c.r) != "application/json" {
		c.refuse(codeMediaType)
		return nil, false
	}
	why := tooDeep(body, c.api.server.chats.cfg.maxDepth)
	switch {
	case why != nil:
	case !utf8.Valid(body):
		why = errNoUTF8
	case !bytes.HasPrefix(trimSpace(body), []byte{'{'}):
		why = errNoObject
	case !json.Valid(body):
		why = undecodable(body, json.Unmarshal(body, new(json.RawMessage)))
	}
	if why != nil {
		c.refuseFor(why)
	}
	return body, why == nil
}

// chatFor returns an object as a chat of a room, as members get it, or why the caller may not say that. Its type and room may be missing.
func (c *call) chatFor(room string, object []byte) ([]byte, chatMessage, *problem) {
	object = bytes.TrimSpace(object)
	m, why := parseChat(object)
	switch {
	case why != nil:
		return nil, m, why
	case m.Type != "" && m.Type != "chat":
		return nil, m, malformed("type", "chat, or none")
	case m.Room != nil && *m.Room != room:
		return nil, m, malformed("room", "that of the path or the list, or none")
	case len(m.User) > maxNameBytes:
		return nil, m, because(codeNameTooLong)
	}
	var w wire.Writer
	w.Open()
	w.Name("type")
	w.Text("chat")
	w.Name("room")
	w.Text(room)
	chat := w.Buf
	rest := trimSpace(cutFields(nil, object, "type", "room", "id")[1:]) // after the brace
	if rest[0] != '}' {
		chat = append(chat, ',')
	}
	chat = append(chat, rest...)
	if m, why = parseChat(chat); why != nil { // now that it is a chat it needs a text
		return nil, m, why
	}
	if len(chat) > c.api.server.cfg.MaxMessage {
		return nil, m, tooLarge(c.api.server.cfg.MaxMessage)
	}
	if c.caller != nil {
		if why = m.denied(c.ctx, c.caller, true); why != nil {
			return nil, m, why
		}
	}
	return chat, m, nil
}

// chatID returns what names the chat, so that it can be repeated, or nil; or why a stored room does not take it. In rooms that are not stored nothing is
// known of earlier chats.
func (c *call) chatID(m chatMessage, stored bool) (*engine.RequestID, *problem) {
	named := c.r.Header.Get(repeatHeader) != ""
	if !stored {
		if named {
			return nil, &problem{code: codeNotStoredIn, text: repeatHeader + ": want none, because the chats of this room are not stored, and a repetition is not noticed"}
		}
		return nil, nil
	}
	as, why := m.requestID(c.caller)
	if why == nil {
		why = m.unstorable()
	}
	if why != nil || !named {
		return as, why
	}
	if as != nil {
		return nil, wrong(engine.CodeInvalid, "client", "either the header "+repeatHeader+", or client and sequence")
	}
	return c.requestID()
}

// broadcast sends a chat to the members of a room that is not stored, on all servers.
func (c *call) broadcast(room string, chat []byte) {
	chats := c.api.server.chats
	chats.messages.Add(1)
	chats.hub.Broadcast(room, websocket.OpText, chat)
}

// said is the outcome of a chat in a stored room.
type said struct {
	position  int64
	duplicate bool
	err       error
}

// put stores a chat. The outcome comes after the members on this server have it.
func (c *call) put(room string, as *engine.RequestID, chat []byte) (<-chan said, error) {
	chats := c.api.server.chats
	outcome := make(chan said, 1)
	err := chats.stored.put(c.ctx, room, nil, as, chat, func(position int64, duplicate bool, err error) {
		outcome <- said{position, duplicate, err}
	})
	if err == nil {
		chats.messages.Add(1)
	}
	return outcome, err
}

// await waits for an outcome.
func (c *call) await(outcome <-chan said) said {
	select {
	case got := <-outcome:
		return got
	case <-c.ctx.Done():
		return said{err: errors.Join(engine.ErrOutcomeUnknown, c.ctx.Err())}
	}
}

const (
	// maxSayRooms is in how many rooms one request may say something.
	maxSayRooms = 1000
	// saysBytes is how many bytes of chats one request has with the store at a time.
	saysBytes = 1 << 20
)

// roomResult is what became of a chat in one of many rooms.
type roomResult struct {
	Room     string `json:"room"`
	Position *int64 `json:"position,omitempty"`
	Error    *reply `json:"error,omitempty"`
}

// sayInMany publishes one chat in many rooms.
func (c *call) sayInMany() {
	rooms, object, ok := c.readMany()
	if !ok || !c.reserve(budget.Body, int64(min(len(rooms)*len(object), saysBytes+len(object)))) {
		return
	}
	results := make([]roomResult, len(rooms))
	waiting, bytes := make(map[int]<-chan said), 0
	settle := func() {
		for i, outcome := range waiting {
			got := c.await(outcome)
			results[i] = c.roomResult(rooms[i], got)
		}
		clear(waiting)
		bytes = 0
	}
	for i, name := range rooms {
		outcome, size, why := c.sayIn(name, object)
		if results[i] = (roomResult{Room: name}); why != nil {
			c.api.server.audit.denied(c.api.server.limits.ClientAddress(c.r), requestID(c.r), c.caller, why)
			results[i].Error = errorOf(why.reply())
			continue
		}
		if outcome != nil {
			waiting[i] = outcome
			bytes += size
		}
		if bytes >= saysBytes {
			settle()
		}
	}
	settle()
	c.answer(map[string]any{"results": results})
}

// sayIn publishes a chat in one of many rooms. Of a stored room the outcome is to come.
func (c *call) sayIn(room string, object []byte) (<-chan said, int, *problem) {
	chat, m, why := c.chatFor(room, object)
	if why != nil {
		return nil, 0, why
	}
	if !c.api.server.chats.stored.has(room) {
		c.broadcast(room, chat)
		return nil, 0, nil
	}
	if m.Client != nil || m.Sequence != nil { // each room would be a repetition of the one before
		return nil, 0, wrong(engine.CodeInvalid, "client", "none in a stored room: send a request for each")
	}
	if why := m.unstorable(); why != nil {
		return nil, 0, why
	}
	outcome, err := c.put(room, nil, chat)
	if err != nil {
		failed := make(chan said, 1)
		failed <- said{err: err}
		return failed, 0, nil
	}
	return outcome, len(chat), nil
}

// roomResult describes an outcome.
func (c *call) roomResult(room string, got said) roomResult {
	if got.err == nil {
		return roomResult{Room: room, Position: &got.position}
	}
	return roomResult{Room: room, Error: errorOf(c.explain(got.err))}
}

// explain is the answer for an error of the store of rooms, which it logs if clients are not told what it is.
func (c *call) explain(err error) reply {
	with := explained(err, codeNotStored)
	if with.Code == codeNotStored || with.Code == engine.CodeRefused {
		c.api.server.chats.stored.log.warn("chat not stored", "error", err)
	}
	return with
}

// errorOf is a reply as the error in an answer.
func errorOf(with reply) *reply {
	with.Type = ""
	with = with.complete()
	return &with
}

// readMany reads the rooms and the chat of a request, or refuses the call.
func (c *call) readMany() (rooms []string, chat []byte, ok bool) {
	fields, ok := c.readFields("rooms", "chat")
	if !ok {
		return nil, nil, false
	}
	why := c.manyRooms(fields["rooms"], &rooms)
	if chat = fields["chat"]; why == nil && !bytes.HasPrefix(chat, []byte{'{'}) {
		why = malformed("chat", "an object")
	}
	if why == nil && c.r.Header.Get(repeatHeader) != "" {
		why = wrong(engine.CodeInvalid, repeatHeader, "none: send a request for each room")
	}
	if why != nil {
		c.refuseFor(why)
	}
	return rooms, chat, why == nil
}

// manyRooms decodes a list of rooms.
func (c *call) manyRooms(text []byte, rooms *[]string) *problem {
	if json.Unmarshal(text, rooms) != nil || len(*rooms) == 0 || len(*rooms) > maxSayRooms {
		return malformed("rooms", fmt.Sprintf("1 to %d names", maxSayRooms))
	}
	seen := make(map[string]bool, len(*rooms))
	for i, name := range *rooms {
		field := fmt.Sprintf("rooms[%d]", i)
		if unfitRoom(name) != nil {
			return malformed(field, fmt.Sprintf("a name of 1 to %d bytes", maxNameBytes))
		}
		if seen[name] {
			return malformed(field, "each room once")
		}
		seen[name] = true
	}
	return nil
}

// readFields reads the body, an object with some of these fields, or refuses the call.
func (c *call) readFields(names ...string) (map[string]json.RawMessage, bool) {
	body, ok := c.readObject()
	if !ok {
		return nil, false
	}
	fields := make(map[string]json.RawMessage, len(names))
	var why *problem
	eachField(body, func(key, value []byte) {
		name := text(key)
		switch {
		case !oneOf(key[1:len(key)-1], names):
			why = &problem{code: codeUnknownField, text: name + ": this request has no such field", field: name}
		case fields[name] != nil:
			why = malformed(name, "this field once")
		default:
			fields[name] = value
		}
	})
	if why != nil {
		c.refuseFor(why)
	}
	return fields, why == nil
}
