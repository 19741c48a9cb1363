package gateway

import (
	"math"
	"slices"
	"strconv"

	"github.com/tidewire/tidewire/internal/engine"
)

// readRoom answers with chats of a stored room, and the position after which the next page begins.
func (c *call) readRoom() {
	name, ok := c.room()
	if !ok {
		return
	}
	stored := c.api.server.chats.stored
	if !stored.has(name) {
		c.refuseFor(&problem{code: codeNotStoredIn, text: "the chats of this room are not stored"})
		return
	}
	query := c.r.URL.Query()
	after, okAfter := c.number("after", 0, math.MaxInt64, 0)
	if !okAfter {
		return
	}
	limit, okLimit := c.number("limit", 1, maxHistory, 100)
	if !okLimit {
		return
	}
	last, okLast := c.number("last", 1, maxHistory, 0)
	if !okLast {
		return
	}
	before, okBefore := c.number("before", 1, math.MaxInt64, math.MaxInt64)
	if !okBefore {
		return
	}
	switch {
	case last > 0 && (query.Has("after") || query.Has("limit")):
		c.refuseFor(wrong(codeParameter, "last", "either last, or after and limit"))
		return
	case last == 0 && query.Has("before"):
		c.refuseFor(wrong(codeParameter, "before", "last beside it"))
		return
	case last > 0:
		limit = last
	}
	rows, after, err := c.pageOf(stored, name, after, before, last, int(limit))
	if err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	c.writeChats(stored, name, rows, after)
}

// pageOf reads the chats after a position, or the last ones before a position. The position that it returns is the one after which they begin.
func (c *call) pageOf(stored *storedRooms, name string, after, before, last int64, limit int) ([]engine.RoomMessage, int64, error) {
	head, err := query(c.ctx, c, func() (head int64, err error) {
		if head, err = stored.store.Head(c.ctx); err != nil {
			return 0, err
		}
		if after > 0 {
			err = stored.store.Check(c.ctx, after)
		}
		if err == nil {
			after, err = stored.bounded(c.ctx, name, after)
		}
		if err == nil && last > 0 {
			var start int64
			head = min(head, before-1)
			start, err = stored.store.Start(c.ctx, name, head, int(last))
			after = max(after, start)
		}
		return head, err
	})
	if err != nil {
		return nil, 0, err
	}
	rows, err := readPage(c, func() ([]engine.RoomMessage, error) {
		return stored.store.After(c.ctx, name, after, head, limit, historyBytes)
	}, func(m *engine.RoomMessage) int { return len(m.Payload) })
	return rows, after, err
}

// writeChats answers with a page of chats. Rows that are no chats are left out.
func (c *call) writeChats(stored *storedRooms, name string, rows []engine.RoomMessage, after int64) {
	text := []byte(`{"chats":[`)
	first := true
	for _, row := range rows {
		if c.ctx.Err() != nil { // the server stops, or the request was evicted
			c.fail(c.ctx.Err(), codeUnavailable)
			return
		}
		after = row.Position
		if !isChat(row.Payload) {
			stored.skip(name, row.Position)
			continue
		}
		if !first {
			text = append(text, ',')
		}
		text, first = appendPlaced(text, row.Payload, row.Position), false
	}
	text = strconv.AppendInt(append(text, `],"next":`...), after, 10)
	c.write(append(text, '}'))
}

// roomMembers is who is in a room.
type roomMembers struct {
	Room      string   `json:"room"`
	Count     int      `json:"count"`
	Members   []string `json:"members"`
	Stored    bool     `json:"stored"`
	Truncated bool     `json:"truncated,omitempty"`
	// Silent are the servers of the cluster that did not answer in time.
	Silent []string `json:"silent,omitempty"`
}

// membersHere returns who is in a room on this server.
func (s *Server) membersHere(name string) roomMembers {
	names, truncated, count := s.chats.hub.Members(name)
	return roomMembers{Room: name, Count: count, Members: names, Stored: s.chats.stored.has(name), Truncated: truncated}
}

// maxMembers is how many names an answer has at most, as a list of presence does.
const maxMembers = 1000

// listMembers answers with who is in a room, on all servers.
func (c *call) listMembers() {
	name, ok := c.room()
	if !ok {
		return
	}
	all := c.api.server.membersHere(name)
	all.Silent = askAll(c, append([]byte{questionMembers}, name...), func(there roomMembers) {
		all.Count += there.Count
		all.Members = append(all.Members, there.Members...)
		all.Truncated = all.Truncated || there.Truncated
	})
	slices.Sort(all.Members)
	if all.Members = slices.Compact(all.Members); len(all.Members) > maxMembers {
		all.Members, all.Truncated = all.Members[:maxMembers], true
	}
	if all.Members == nil {
		all.Members = []string{} // never null in JSON
	}
	c.answer(all)
}
