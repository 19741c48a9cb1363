package room

import (
	"cmp"
	"maps"
	"slices"
)

// Size is how large a room is on this node.
type Size struct {
	Room string `json:"room"`
	// Count is the number of connections.
	Count int `json:"count"`
	// Chats is how many messages the room has had since it has begun on this node, from all nodes.
	Chats uint64 `json:"chats"`
}

// Larger compares the sizes of two rooms: that with more connections is first.
func Larger(a, b Size) int {
	return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Room, b.Room))
}

// Largest returns the n largest rooms whose names fit, the largest first, and whether there are more. It visits all rooms.
func (h *Hub) Largest(n int, fits func(name string) bool) (largest []Size, more bool) {
	h.mu.Lock()
	rooms := slices.Collect(maps.Values(h.rooms))
	h.mu.Unlock()
	keep := func() {
		slices.SortFunc(largest, Larger)
		if len(largest) > n {
			largest, more = largest[:n], true
		}
	}
	for _, r := range rooms {
		if !fits(r.name) {
			continue
		}
		r.mu.Lock()
		largest = append(largest, Size{r.name, len(r.members), r.log.all})
		r.mu.Unlock()
		if len(largest) >= 4*n {
			keep()
		}
	}
	keep()
	return largest, more
}
