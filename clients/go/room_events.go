package tidewire

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// roomChat is a chat as it comes. All other fields are the application's.
type roomChat struct {
	User string `json:"user"`
	Text string `json:"text"`
	// In a room that is not stored, these two are the application's, too.
	Position json.RawMessage `json:"position"`
	Time     any             `json:"time"`
}

// roomMessage is another message of a room.
type roomMessage struct {
	Missed  int       `json:"missed"`
	Last    int64     `json:"last"`
	UpTo    int64     `json:"up_to"`
	Count   int       `json:"count"`
	Members *[]string `json:"members"`
	Joined  []string  `json:"joined"`
	Left    []string  `json:"left"`
}

// take takes what the server has sent.
func (m *Membership) take(in *incoming) error {
	text, err := in.json()
	if err != nil {
		return err
	}
	var chat roomChat
	var message roomMessage
	if string(in.kind) == "chat" {
		if json.Unmarshal(text, &chat) != nil {
			return nil // a member has sent a user or a text of another type: it is no chat of this library
		}
	} else if err := json.Unmarshal(text, &message); err != nil {
		return fmt.Errorf("tidewire: a message of a room: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return nil
	}
	switch string(in.kind) {
	case "chat":
		m.chat(text, &chat)
	case "gap":
		m.gap(message.Missed)
	case "history_lost":
		m.last = min(m.last, message.Last)
		m.historyLost(HistoryLost{message.Last, message.UpTo})
	case "presence":
		m.presence(&message)
	}
	return nil
}

// full reports whether so much waits for the program that nothing more is kept.
func (m *Membership) full() bool { return len(m.events) >= mostEvents }

// gap takes a number of messages that are missing. The caller holds the lock.
func (m *Membership) gap(missed int) {
	if m.full() {
		m.behind = true
		m.missed += max(0, missed)
		return
	}
	m.push(&Missed{missed})
}

// historyLost takes a loss. If there is no room for it, it is told together with others later. The caller holds the lock.
func (m *Membership) historyLost(lost HistoryLost) {
	switch {
	case !m.full():
		m.push(&lost)
	case m.lost == nil:
		m.lost = &lost
	default:
		m.lost.Last, m.lost.UpTo = min(m.lost.Last, lost.Last), max(m.lost.UpTo, lost.UpTo)
	}
}

// tellRest tells what there was no room for, once the program has taken everything. The caller holds the lock.
func (m *Membership) tellRest() {
	if m.lost != nil {
		m.push(m.lost)
		m.lost = nil
	}
	if m.stale {
		m.tellMembers()
	}
}

// chat takes a chat. The caller holds the lock.
func (m *Membership) chat(text []byte, in *roomChat) {
	if m.behind || m.full() {
		m.behind = true
		m.missed++
		return
	}
	c := &Chat{User: in.User, Text: in.Text, JSON: slices.Clone(text)}
	if position, err := number(in.Position); err == nil {
		if m.has && position <= m.last {
			return
		}
		c.Position = position
		if written, ok := in.Time.(string); ok {
			c.Time, _ = time.Parse(time.RFC3339Nano, written)
		}
		m.last, m.has = c.Position, true
	}
	m.push(c)
}

// caughtUp goes on after the program was too slow. The caller holds the lock.
func (m *Membership) caughtUp() {
	if !m.stored {
		m.push(&Missed{m.missed})
		m.behind = false
	}
	m.missed = 0
}

// rejoin asks for the chats that were left out: those after the last one that came.
func (m *Membership) rejoin(l *link) {
	m.joins(true)
	m.leave(l, func(_ *answer, err error) {
		if err == errDetached {
			return
		}
		m.mu.Lock()
		m.behind, m.leaving = false, false
		m.mu.Unlock()
		m.c.reattach(m, 0)
	})
}

// presence keeps the set of members. The caller holds the lock.
func (m *Membership) presence(in *roomMessage) {
	all := m.members
	if in.Members != nil {
		all = *in.Members
	}
	now := map[string]bool{}
	for _, user := range slices.Concat(all, in.Joined) {
		now[user] = true
	}
	for _, user := range in.Left {
		delete(now, user)
	}
	m.members, m.count = slices.Sorted(maps.Keys(now)), in.Count
	if m.full() {
		m.stale = true
		return
	}
	m.tellMembers()
}

// tellMembers tells who has joined and left since the last time. The caller holds the lock.
func (m *Membership) tellMembers() {
	m.stale = false
	p := &Presence{Members: slices.Clone(m.members), Joined: without(m.members, m.told), Left: without(m.told, m.members), Count: m.count}
	if !m.known || len(p.Joined)+len(p.Left) > 0 {
		m.push(p)
	}
	m.told, m.known = m.members, true
}

// without returns the names that are not among others, which are sorted.
func without(names, others []string) (rest []string) {
	for _, name := range names {
		if _, found := slices.BinarySearch(others, name); !found {
			rest = append(rest, name)
		}
	}
	return rest
}

// placed wants the position of a chat, unless the server does not store the room any more.
func (m *Membership) placed(in *incoming) error {
	if m.Stored() {
		return positioned(in)
	}
	return nil
}

// Chat sends a chat to the other members. In a stored room it is stored once, and the result has its position; in another one it is sent once,
// and a lost connection makes its outcome unknown.
func (m *Membership) Chat(ctx context.Context, text string, options ...MessageOption) (Published, error) {
	return m.ChatFields(ctx, map[string]any{"text": text}, options...)
}

// ChatFields is Chat with further fields, of which text has to be one.
func (m *Membership) ChatFields(ctx context.Context, fields map[string]any, options ...MessageOption) (Published, error) {
	var o PublishOptions
	for _, option := range options {
		option(&o)
	}
	if err := o.Check(); err != nil {
		return Published{}, err
	}
	if fields = maps.Clone(fields); fields == nil {
		fields = map[string]any{}
	}
	for _, name := range []string{"type", "id", "room", "client", "sequence"} {
		delete(fields, name)
	}
	if _, ok := fields["user"]; !ok && m.options.User != "" {
		fields["user"] = m.options.User
	}
	rest, err := json.Marshal(fields)
	if err != nil {
		return Published{}, &Error{Code: "invalid", Message: "the chat cannot be encoded: " + err.Error(), cause: err}
	}
	r := &request{kind: "chat", room: m.room, repeat: once, asText: true, size: len(rest)}
	if m.Stored() {
		r.repeat, r.numbered = again, true
		r.check = m.placed
	}
	r.encode = func(w *writer, r *request) {
		w.text("room", m.room)
		m.c.writeSequence(w, r)
		w.fields(rest)
	}
	if err := m.c.do(ctx, r, o.Timeout); err != nil {
		return Published{}, err
	}
	return published(r), nil
}
