package gateway

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/room"
)

// maxListedRooms is how many rooms an answer has at most.
const maxListedRooms = 500

// roomSizes are the largest rooms.
type roomSizes struct {
	Rooms     []roomSize `json:"rooms"`
	Truncated bool       `json:"truncated,omitempty"`
	// Silent are the servers of the cluster that did not answer in time.
	Silent []string `json:"silent,omitempty"`
}

type roomSize struct {
	room.Size
	Stored bool `json:"stored"`
}

func anyRoom(string) bool { return true }

// roomsHere returns the largest rooms of this server whose names have a part.
func (s *Server) roomsHere(part string, may func(name string) bool) (all roomSizes) {
	sizes, more := s.chats.hub.Largest(maxListedRooms, func(name string) bool { return strings.Contains(name, part) && may(name) })
	for _, size := range sizes {
		all.Rooms = append(all.Rooms, roomSize{Size: size})
	}
	all.Truncated = more
	return all
}

// listRooms answers with the largest rooms that the caller may see, on all servers.
func (c *call) listRooms() {
	find := c.r.URL.Query().Get("find")
	if len(find) > maxNameBytes {
		c.refuse(codeNameTooLong)
		return
	}
	may := func(name string) bool { return c.caller == nil || c.caller.Granted("presence", auth.Room, name) }
	all := c.api.server.roomsHere(find, may)
	at := make(map[string]int, len(all.Rooms))
	for i, one := range all.Rooms {
		at[one.Room] = i
	}
	all.Silent = askAll(c, append([]byte{questionRooms}, find...), func(there roomSizes) {
		all.Truncated = all.Truncated || there.Truncated
		for _, one := range there.Rooms {
			i, known := at[one.Room]
			switch {
			case known: // each server with the room has all of its chats
				all.Rooms[i].Count += one.Count
				all.Rooms[i].Chats = max(all.Rooms[i].Chats, one.Chats)
			case may(one.Room):
				at[one.Room] = len(all.Rooms)
				all.Rooms = append(all.Rooms, one)
			}
		}
	})
	slices.SortFunc(all.Rooms, func(a, b roomSize) int { return room.Larger(a.Size, b.Size) })
	if len(all.Rooms) > maxListedRooms {
		all.Rooms, all.Truncated = all.Rooms[:maxListedRooms], true
	}
	for i := range all.Rooms {
		all.Rooms[i].Stored = c.api.server.chats.stored.has(all.Rooms[i].Room)
	}
	if all.Rooms == nil {
		all.Rooms = []roomSize{} // never null in JSON
	}
	c.answer(all)
}

// kick ends the memberships of a user in a room, on all servers. It keeps nobody out.
func (c *call) kick() {
	name, ok := c.room()
	if !ok {
		return
	}
	var body struct {
		User string `json:"user"`
	}
	if !c.readStrict(&body) {
		return
	}
	if body.User == "" || len(body.User) > maxNameBytes {
		c.refuseFor(malformed("user", fmt.Sprintf("a user of 1 to %d bytes", maxNameBytes)))
		return
	}
	all := reached{Connections: c.api.server.chats.hub.Kick(name, body.User)}
	question := append(append([]byte{questionKick, byte(len(name))}, name...), body.User...)
	all.Silent = askAll(c, question, func(there reached) { all.Connections += there.Connections })
	c.acted(actKick, name+" "+body.User)
	c.answer(all)
}
