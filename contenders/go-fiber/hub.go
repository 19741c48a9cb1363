package main

// hub passes chats on to the members of rooms. Only its goroutine uses the rooms.
type hub struct {
	figures    *figures
	register   chan entry
	unregister chan entry
	broadcast  chan said
	done       chan struct{} // closed when no member is left
}

type entry struct {
	room   string
	member *member
}

type said struct {
	entry // the sender
	text  []byte
}

func newHub(f *figures) *hub {
	return &hub{
		figures: f, register: make(chan entry), unregister: make(chan entry), broadcast: make(chan said), done: make(chan struct{}),
	}
}

func (h *hub) run() {
	rooms := make(map[string]map[*member]struct{})
	for {
		select {
		case e := <-h.register:
			room, ok := rooms[e.room]
			if !ok {
				room = make(map[*member]struct{})
				rooms[e.room] = room
			}
			room[e.member] = struct{}{}

		case e := <-h.unregister:
			delete(rooms[e.room], e.member)
			if len(rooms[e.room]) == 0 {
				delete(rooms, e.room)
			}

		case s := <-h.broadcast:
			for m := range rooms[s.room] {
				if m == s.member {
					continue
				}
				select {
				case m.outbox <- s.text:
				default: // the member is too slow; the others do not wait for it
					h.figures.missed.Add(1)
				}
			}

		case <-h.done:
			return
		}
	}
}
