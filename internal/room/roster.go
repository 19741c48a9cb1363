package room

// roster is who is in a room, and who has come or left since the last look. room.mu guards it.
type roster struct {
	names  map[string]int  // how often each user is in the room
	before map[string]bool // users who came or left since the last look, and whether they were there at it
	whole  bool            // there were more changes than before may hold
}

func newRoster() roster {
	return roster{names: make(map[string]int), before: make(map[string]bool)}
}

// joined records a new connection of user.
func (r *roster) joined(user string) {
	if user == "" {
		return
	}
	if r.names[user]++; r.names[user] == 1 {
		r.note(user, false)
	}
}

// left records the end of a connection of user.
func (r *roster) left(user string) {
	if user == "" {
		return
	}
	if r.names[user]--; r.names[user] == 0 {
		delete(r.names, user)
		r.note(user, true)
	}
}

// note records whether a changed user was there at the last look.
func (r *roster) note(user string, was bool) {
	if _, known := r.before[user]; known || r.whole {
		return
	}
	if len(r.before) == maxNames {
		r.whole = true
		clear(r.before)
		return
	}
	r.before[user] = was
}

// changes returns who came and left since the last look. whole means that there were too many changes: all names are needed.
func (r *roster) changes() (joined, left []string, whole bool) {
	for user, was := range r.before {
		switch is := r.names[user] > 0; {
		case is && !was:
			joined = append(joined, user)
		case was && !is:
			left = append(left, user)
		}
	}
	clear(r.before)
	whole, r.whole = r.whole, false
	return joined, left, whole
}

// some returns the names of all users, or any maxNames of them: choosing particular ones would mean visiting all.
func (r *roster) some() (names []string, truncated bool) {
	names = make([]string, 0, min(len(r.names), maxNames)) // never null in JSON
	for user := range r.names {
		if len(names) == maxNames {
			return names, true
		}
		names = append(names, user)
	}
	return names, false
}
