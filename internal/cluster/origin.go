package cluster

import "time"

// origin is what a node knows of the frames that one other node sends in a room: the state of a merge. Frames are numbered from 1
// within an epoch; a later epoch of a node has a higher number.
type origin struct {
	known bool
	epoch uint64
	next  uint64 // number of the next frame
}

// place says where frames belong: the first number, within an epoch that has begun some time ago.
type place struct {
	epoch, first uint64
	age          time.Duration // of the epoch
}

// sure is how much younger than the own room an epoch has to be to say that this node should have received all of it.
const sure = 2 * time.Second

// take accepts count frames, and returns how many of them to drop, because they have come before, and how many are missing before
// them. With no frames it takes note that the frames before the place have been sent. open is for how long this node has been in
// the room: of an unknown origin it can't tell what was sent before that.
func (o *origin) take(at place, count uint64, open time.Duration) (drop, missed uint64) {
	switch {
	case !o.known:
		o.known, o.epoch, o.next = true, at.epoch, at.first
		if at.age+sure < open {
			o.next = 1
		}
	case at.epoch < o.epoch:
		return count, 0
	case at.epoch > o.epoch:
		o.epoch, o.next = at.epoch, 1
	}
	end := at.first + count
	switch {
	case end <= o.next:
		return count, 0
	case at.first < o.next:
		drop = o.next - at.first
	default:
		missed = at.first - o.next
	}
	o.next = end
	return drop, missed
}
