package multinode

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// roomMessage is a message of a server to a member of a room.
type roomMessage struct {
	Type, Code            string
	ID                    int
	Text                  string
	Position, Last        int64
	Missed, Count         int
	Members, Joined, Left []string
}

// silence is the maximum time without any message of a server, which may be frozen.
const silence = 2 * time.Minute

// readRoom passes messages to a function until it returns false or the connection ends.
func readRoom(conn *websocket.Conn, take func(roomMessage) bool) error {
	for {
		conn.SetReadDeadline(time.Now().Add(silence))
		messages, err := conn.Read()
		for _, m := range messages {
			var in roomMessage
			if err := json.Unmarshal(m.Payload, &in); err != nil {
				return fmt.Errorf("server sent %q: %w", m.Payload[:min(len(m.Payload), 200)], err)
			}
			if !take(in) {
				return nil
			}
		}
		if err != nil {
			return err
		}
	}
}

// say sends a message. If that fails, the reader gets the error.
func say(conn *websocket.Conn, format string, args ...any) {
	if conn.Queue(websocket.OpText, fmt.Appendf(nil, format, args...)) != nil || conn.Flush() != nil {
		conn.Abort()
	}
}

// member is a member of the live room, who talks or watches who is there.
type member struct {
	client
	room    *room
	watches bool
}

func (m *member) run(ctx context.Context) {
	for ctx.Err() == nil {
		m.attend(ctx)
	}
}

// attend joins the room, and stays until the connection ends.
func (m *member) attend(ctx context.Context) {
	conn, at, err := m.enter(ctx)
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, conn.Abort)()
	defer m.visit(m.home, at, conn.Abort)()
	defer conn.Abort()
	s := m.room.begin(fmt.Sprintf("user%d", m.number), at, m.watches)
	defer m.room.end(s)
	talking, quiet := context.WithCancel(ctx)
	defer quiet()
	say(conn, `{"type":"join","id":0,"room":%q,"user":%q,"presence":%t}`, liveRoom, s.user, m.watches)
	readRoom(conn, func(in roomMessage) bool { return m.take(in, s, func() { go m.talk(talking, conn, s) }) })
	if ctx.Err() == nil {
		m.ledger.Count(countErrors, 1)
	}
}

// take handles a message. joined is called when the join was acknowledged.
func (m *member) take(in roomMessage, s *session, joined func()) bool {
	switch in.Type {
	case "ok":
		if in.ID > 0 {
			m.room.ack(s, in.ID)
			m.ledger.Count(countAcknowledged, 1)
			m.latency.answers.Add(1)
			break
		}
		m.room.join(s)
		if !m.watches {
			joined()
		}
	case "chat":
		var from, number int
		if _, err := fmt.Sscanf(in.Text, "%d %d", &from, &number); err != nil {
			m.ledger.Break(PromiseRoomOnce, "%s got %q: %v", s, in.Text, err)
			break
		}
		m.room.receive(s, from, number)
		m.delivered(1)
	case "gap":
		m.room.gap(s, in.Missed)
		m.ledger.Count(countTold, in.Missed)
	case "presence":
		m.room.present(s, in.Count, in.Members, in.Joined, in.Left)
	case "error":
		return false
	}
	return true
}

// talk sends chats, and does not wait for the answers.
func (m *member) talk(ctx context.Context, conn *websocket.Conn, s *session) {
	for m.rest(ctx, 1) {
		number := m.room.send(s)
		m.ledger.Count(countSent, 1)
		say(conn, `{"type":"chat","id":%d,"room":%q,"text":"%d %d"}`, number, liveRoom, s.id, number)
	}
}

// keeper is a member of the stored room. After a reconnect it goes on after the last chat that it has.
type keeper struct {
	client
	sequence int
	got      []stored     // in the order of arrival
	at       position     // of the last of them
	pending  atomic.Int64 // chats of this connection without an answer
}

func (k *keeper) run(ctx context.Context) {
	for ctx.Err() == nil {
		k.attend(ctx)
	}
}

// attend joins the room after the last chat, and stays until the connection ends.
func (k *keeper) attend(ctx context.Context) {
	conn, at, err := k.enter(ctx)
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, conn.Abort)()
	defer k.visit(k.home, at, conn.Abort)()
	defer conn.Abort()
	talking, quiet := context.WithCancel(ctx)
	joined, sent := make(chan struct{}), make(chan int, 1)
	first := k.sequence
	go func() { sent <- k.talk(talking, conn, joined, first) }()
	defer func() {
		quiet()
		k.sequence = <-sent
		k.pending.Store(0)
	}()
	say(conn, `{"type":"join","id":0,"room":%q,"after":%d}`, storedRoom, k.at.last())
	readRoom(conn, func(in roomMessage) bool { return k.take(in, joined) })
	if ctx.Err() == nil {
		k.ledger.Count(countErrors, 1)
		sleep(ctx, again)
	}
}

// take handles a message. It closes joined when the join was acknowledged.
func (k *keeper) take(in roomMessage, joined chan struct{}) bool {
	switch in.Type {
	case "ok":
		if in.ID == 0 {
			close(joined)
			break
		}
		k.pending.Add(-1)
		k.ledger.Acknowledged(storedRoom, contentOf(k.number, in.ID), in.Position)
		k.latency.answers.Add(1)
	case "chat":
		k.receive(in)
	case "history_lost":
		k.ledger.Break(PromiseComplete, "%s: member %d was told that history after %d is lost", storedRoom, k.number, in.Last)
	case "error":
		if in.Code == "history_lost" {
			k.ledger.Break(PromiseComplete, "%s: member %d, which has %d, was told that history after %d is lost", storedRoom, k.number, k.at.last(), in.Last)
		}
		k.ledger.Count(countErrors, 1)
		k.pending.Add(-1)
		return in.ID > 0 // of a chat: it was not stored, or that is not known
	}
	return true
}

func (k *keeper) receive(in roomMessage) {
	c, err := parseContent(in.Text)
	if err != nil {
		k.ledger.Break(PromiseComplete, "%s: position %d: %v", storedRoom, in.Position, err)
	}
	if last := k.at.last(); in.Position <= last {
		k.ledger.Break(PromiseComplete, "%s: member %d got position %d after %d", storedRoom, k.number, in.Position, last)
	}
	k.got = append(k.got, stored{in.Position, c})
	k.at.set(in.Position)
	k.delivered(1)
}

// talk sends chats after the join, and does not wait for the answers. A chat whose outcome is unknown is not repeated. It returns
// the number of the last chat.
func (k *keeper) talk(ctx context.Context, conn *websocket.Conn, joined chan struct{}, sequence int) int {
	select {
	case <-joined:
	case <-ctx.Done():
		return sequence
	}
	for k.rest(ctx, 4) {
		sequence++
		k.pending.Add(1)
		k.ledger.Count(countSent, 1)
		say(conn, `{"type":"chat","id":%d,"room":%q,"text":%q}`, sequence, storedRoom, contentOf(k.number, sequence))
	}
	return sequence
}

// compare checks that the member has received what is stored, except its own chats, which it need not have received.
func (k *keeper) compare(held []stored) {
	complete(k.ledger, fmt.Sprintf("%s: member %d", storedRoom, k.number), k.got, held, func(c content) bool { return c.client() == k.number })
}

// complete checks that a reader has received everything that is held, in order, except what may be missing.
func complete(l *Ledger, reader string, got, held []stored, may func(content) bool) {
	for _, h := range held {
		switch {
		case len(got) > 0 && got[0] == h:
			got = got[1:]
		case may != nil && may(h.content):
		case len(got) > 0:
			l.Break(PromiseComplete, "%s got %v at position %d, where %v at %d is next", reader, got[0].content, got[0].position, h.content, h.position)
			return
		default:
			l.Break(PromiseComplete, "%s got nothing from position %d on, where %v is", reader, h.position, h.content)
			return
		}
	}
	if len(got) > 0 {
		l.Break(PromiseComplete, "%s got %v at position %d, which is not stored", reader, got[0].content, got[0].position)
	}
}
