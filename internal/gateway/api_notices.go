package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
)

// othersTimeout is how long a request waits for the other servers of a cluster.
const othersTimeout = 5 * time.Second

// The first byte of a question to another server, unless it is about deliveries.
const (
	questionConsumers = 'c' // then the name of a queue; the answer is consumerList
	questionRooms     = 'r' // then a part of names; the answer is roomSizes
	questionKick      = 'k' // then the length of the room's name in one byte, the name, and the user; the answer is reached
	questionMembers   = 'm' // then the name of a room; the answer is roomMembers
	questionNotice    = 'u' // then the length of the user's name in one byte, the name, and a message; the answer is reached
)

// reached is how many connections have got a message.
type reached struct {
	Connections int `json:"connections"`
	// Silent are the servers of the cluster that did not answer in time: their connections may have got it.
	Silent []string `json:"silent,omitempty"`
}

// notify sends a message to the connections of a user, on all servers. It is not stored.
func (c *call) notify() {
	user := c.r.PathValue("user")
	if c.caller == nil {
		c.refuseFor(&problem{code: codeNotServed, text: "this server requires no tokens, so it knows the user of no connection: start it with --auth-secret-file or another key"})
		return
	}
	fields, ok := c.readFields("message")
	if !ok {
		return
	}
	message := fields["message"]
	switch {
	case !auth.ValidUser(user):
		c.refuse(codeName)
		return
	case !bytes.HasPrefix(message, []byte{'{'}):
		c.refuseFor(malformed("message", "an object"))
		return
	}
	notice := append(append([]byte(`{"type":"notice","message":`), message...), '}')
	if len(notice) > c.api.server.cfg.MaxMessage {
		c.refuseFor(tooLarge(c.api.server.cfg.MaxMessage))
		return
	}
	all := reached{Connections: c.api.server.conns.users.send(user, notice)}
	question := append(append([]byte{questionNotice, byte(len(user))}, user...), notice...)
	all.Silent = askAll(c, question, func(there reached) { all.Connections += there.Connections })
	c.answer(all)
}

// askAll asks all other servers of the cluster that are heard, at once, and passes on their answers, one at a time. It returns the names of those
// that did not answer in time, and of those that are not heard but may be there, sorted.
func askAll[T any](c *call, question []byte, take func(T)) (silent []string) {
	nodes := c.api.server.cfg.Nodes
	if nodes == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, othersTimeout)
	defer cancel()
	var mu sync.Mutex
	var asking sync.WaitGroup
	silent = nodes.Unheard()
	for _, node := range nodes.Heard() {
		asking.Go(func() {
			var got T
			answer, err := nodes.Ask(ctx, node, question)
			if err == nil {
				err = json.Unmarshal(answer, &got)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				silent = append(silent, node)
				return
			}
			take(got)
		})
	}
	asking.Wait()
	slices.Sort(silent)
	return slices.Compact(silent)
}

// answerOfRooms answers a question about rooms and users, or returns false if it is about something else.
func (s *Server) answerOfRooms(question []byte) (answer []byte, ok bool) {
	switch {
	case len(question) > 1 && question[0] == questionMembers && s.chats != nil:
		answer, _ = json.Marshal(s.membersHere(string(question[1:])))
		return answer, true
	case len(question) > 0 && question[0] == questionRooms && s.chats != nil:
		answer, _ = json.Marshal(s.roomsHere(string(question[1:]), anyRoom))
		return answer, true
	case len(question) > 2 && question[0] == questionKick && len(question) > 2+int(question[1]) && s.chats != nil:
		name, user := question[2:2+question[1]], question[2+question[1]:]
		answer, _ = json.Marshal(reached{Connections: s.chats.hub.Kick(string(name), string(user))})
		return answer, true
	case len(question) > 2 && question[0] == questionNotice && len(question) >= 2+int(question[1]):
		user, notice := question[2:2+question[1]], question[2+question[1]:]
		answer, _ = json.Marshal(reached{Connections: s.conns.users.send(string(user), notice)}) // a number can't fail
		return answer, true
	}
	return nil, false
}
