package room

import "time"

// watchedFor is for how long other nodes are told who is in a room on this node, after one of them has asked for that.
const watchedFor = 7 * time.Second

// Presence is who is in a room on one node: all of them, or what has changed.
type Presence struct {
	// Whole means that Joined has all names, in place of those that came before.
	Whole bool
	// Truncated means that there are more names than Joined has.
	Truncated bool
	// Count is the number of connections, with those that have no name.
	Count        int
	Joined, Left []string
}

// census tells other nodes who is in a room on this one, at most four times a second. It exists while they ask for it.
type census struct {
	room *Room
	wake chan struct{} // one slot: somebody came or left, or another node asks

	// Guarded by room.mu.
	roster
	until time.Time // for so long other nodes are told
	fresh bool      // another node needs all names
}

// Watched says that members on another node watch who is in the room. With whole, that node needs all names. It has to be repeated every few seconds.
func (in *Inlet) Watched(whole bool) {
	r := in.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.members) == 0 {
		return
	}
	if r.census == nil {
		r.census = &census{room: r, wake: make(chan struct{}, 1), roster: newRoster(), fresh: true}
		for _, m := range r.members {
			r.census.joined(m.user)
		}
		r.hub.flushers.Go(r.census.run)
	}
	c := r.census
	c.until, c.fresh = time.Now().Add(watchedFor), c.fresh || whole
	c.nudge()
}

func (c *census) nudge() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run tells other nodes until none has asked for a while, or the room has ended.
func (c *census) run() {
	pause, expiry := stoppedTimer(), time.NewTimer(watchedFor)
	defer pause.Stop()
	defer expiry.Stop()
	wake := c.wake
	for {
		select {
		case <-wake:
			c.room.outlet.to.Present(c.take())
			wake = nil
			pause.Reset(batchPause)
		case <-pause.C:
			wake = c.wake
		case <-expiry.C:
			left := c.retire()
			if left <= 0 {
				return
			}
			expiry.Reset(left)
		case <-c.room.done:
			return
		}
	}
}

// retire ends the census if its time is over, or returns how much is left.
func (c *census) retire() (left time.Duration) {
	c.room.mu.Lock()
	defer c.room.mu.Unlock()
	if left = time.Until(c.until); left <= 0 {
		c.room.census = nil
	}
	return left
}

// take returns what has changed since the last time; also nothing, which says that the node and the room are still there.
func (c *census) take() (p Presence) {
	c.room.mu.Lock()
	defer c.room.mu.Unlock()
	p.Count = len(c.room.members)
	p.Joined, p.Left, p.Whole = c.changes()
	if p.Whole = p.Whole || c.fresh; p.Whole {
		p.Left = nil
		p.Joined, p.Truncated = c.some()
	}
	c.fresh = false
	return p
}

// others are the members of a room on one other node, as that node has told.
type others struct {
	count     int
	names     map[string]bool
	truncated bool
}

// Present takes who is in the room on another node. It is ignored if nobody on this node watches.
func (in *Inlet) Present(node uint64, p Presence) {
	r := in.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.presence == nil {
		return
	}
	o := r.presence.elsewhere[node]
	if o == nil && !p.Whole {
		return // all names are on their way
	}
	if o == nil {
		o = &others{names: make(map[string]bool)}
		r.presence.elsewhere[node] = o
	}
	o.apply(p, &r.presence.roster)
	r.presence.nudge()
}

// apply applies a change to the names of the node, and to those of all nodes.
func (o *others) apply(p Presence, all *roster) {
	if p.Whole {
		stay := make(map[string]bool, len(p.Joined))
		for _, user := range p.Joined {
			stay[user] = true
		}
		for user := range o.names {
			if !stay[user] {
				o.leave(user, all)
			}
		}
		o.truncated = p.Truncated
	}
	for _, user := range p.Joined {
		if user != "" && !o.names[user] {
			o.names[user] = true
			all.joined(user)
		}
	}
	for _, user := range p.Left {
		o.leave(user, all)
	}
	o.count = p.Count
}

func (o *others) leave(user string, all *roster) {
	if o.names[user] {
		delete(o.names, user)
		all.left(user)
	}
}

// Gone says that nothing is known any more of who is in the room on another node.
func (in *Inlet) Gone(node uint64) {
	r := in.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.presence == nil || r.presence.elsewhere[node] == nil {
		return
	}
	r.presence.elsewhere[node].apply(Presence{Whole: true}, &r.presence.roster)
	delete(r.presence.elsewhere, node)
	r.presence.nudge()
}
