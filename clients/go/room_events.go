package tidewire

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// roomMessage is a message of a room as it comes.
type roomMessage struct {
	User     string    `json:"user"`
	Text     string    `json:"text"`
	Position any       `json:"position"` // in a room that is not stored, these two are the application's
	Time     any       `json:"time"`
	Missed   int       `json:"missed"`
	Last     int64     `json:"last"`
	UpTo     int64     `json:"up_to"`
	Count    int       `json:"count"`
	Members  *[]string `json:"members"`
	Joined   []string  `json:"joined"`
	Left     []string  `json:"left"`
}

// take takes what the server has sent.
func (m *Membership) take(in *incoming) error {
	text, err := in.json()
	if err != nil {
		return err
	}
	var message roomMessage
	if err := json.Unmarshal(text, &message); err != nil {
		return nil // a member has sent a field of another type: it is no chat of this library
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return nil
	}
	switch string(in.kind) {
	case "chat":
		m.chat(text, &message)
	case "gap":
		m.push(&Missed{message.Missed})
	case "history_lost":
		m.last = min(m.last, message.Last)
		m.push(&HistoryLost{message.Last, message.UpTo})
	case "presence":
		m.presence(&message)
	}
	return nil
}

// chat takes a chat. The caller holds the lock.
func (m *Membership) chat(text []byte, in *roomMessage) {
	if m.behind || len(m.events) >= mostEvents {
		m.behind = true
		m.missed++
		return
	}
	c := &Chat{User: in.User, Text: in.Text, JSON: slices.Clone(text)}
	if position, ok := in.Position.(float64); ok {
		if m.has && int64(position) <= m.last {
			return
		}
		c.Position = int64(position)
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
	m.leave(l, func(_ *answer, err error) {
		if err != nil {
			return
		}
		m.mu.Lock()
		m.behind = false
		m.mu.Unlock()
		m.c.reattach(m, 0)
	})
}

// presence keeps the set of members. The caller holds the lock.
func (m *Membership) presence(in *roomMessage) {
	before := map[string]bool{}
	for _, user := range m.members {
		before[user] = true
	}
	now := maps.Clone(before)
	if in.Members != nil {
		clear(now)
		for _, user := range *in.Members {
			now[user] = true
		}
	}
	for _, user := range in.Joined {
		now[user] = true
	}
	for _, user := range in.Left {
		delete(now, user)
	}
	p := &Presence{Members: slices.Sorted(maps.Keys(now)), Count: in.Count}
	for _, user := range p.Members {
		if !before[user] {
			p.Joined = append(p.Joined, user)
		}
	}
	for _, user := range m.members {
		if !now[user] {
			p.Left = append(p.Left, user)
		}
	}
	changed := !m.known || len(p.Joined)+len(p.Left) > 0
	m.members, m.known = p.Members, true
	if changed {
		m.push(p)
	}
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
	fields = maps.Clone(fields)
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
	r := &request{kind: "chat", repeat: once, asText: true, size: len(rest)}
	if m.Stored() {
		r.repeat, r.numbered = again, true
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
