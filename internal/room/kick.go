package room

// Kick ends all memberships of a user in the room of that name on this node, and returns how many these were. It visits all members.
func (h *Hub) Kick(name, user string) int {
	members := h.membersOf(name, user)
	for _, m := range members {
		m.Leave()
		if m.kicked != nil {
			m.kicked()
		}
	}
	return len(members)
}

// membersOf returns the memberships of a user.
func (h *Hub) membersOf(name, user string) (of []*Member) {
	h.mu.Lock()
	r := h.rooms[name]
	h.mu.Unlock()
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.members {
		if m.user == user {
			of = append(of, m)
		}
	}
	return of
}
