package main

// hub knows the members of each room. One goroutine owns the rooms, and all
// others send it requests. The channels have no buffer, so that the requests of
// one client are handled in order.
type hub struct {
	stats     *stats
	rooms     map[string]map[*client]bool
	joins     chan membership
	leaves    chan membership
	broadcast chan chat
	quit      chan struct{}
}

type membership struct {
	client *client
	room   string
}

type chat struct {
	from    *client
	room    string
	payload []byte
}

func newHub(s *stats) *hub {
	return &hub{
		stats: s, rooms: make(map[string]map[*client]bool),
		joins: make(chan membership), leaves: make(chan membership), broadcast: make(chan chat), quit: make(chan struct{}),
	}
}

func (h *hub) run() {
	for {
		select {
		case m := <-h.joins:
			if h.rooms[m.room] == nil {
				h.rooms[m.room] = make(map[*client]bool)
			}
			h.rooms[m.room][m.client] = true
		case m := <-h.leaves:
			delete(h.rooms[m.room], m.client)
			if len(h.rooms[m.room]) == 0 {
				delete(h.rooms, m.room)
			}
		case m := <-h.broadcast:
			h.deliver(m)
		case <-h.quit:
			return
		}
	}
}

// deliver offers a chat to all others in the room. A client whose buffer is full
// misses it, so that it cannot delay the room.
func (h *hub) deliver(m chat) {
	for c := range h.rooms[m.room] {
		if c == m.from {
			continue
		}
		select {
		case c.send <- outgoing{payload: m.payload, chat: true}:
		default:
			h.stats.missed.Add(1)
		}
	}
}

// stop ends run. All clients must have left before.
func (h *hub) stop() { close(h.quit) }
