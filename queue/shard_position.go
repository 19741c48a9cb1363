package queue

import "github.com/tidewire/tidewire/stream"

// A queue with priorities or partitions has one number for each of its messages, by
// which producers, consumers and the functions for dead letters know it: the
// position in its stream times the number of streams, plus the number of that
// stream. Of one priority or partition the numbers grow with the positions.

// outward returns the position by which a message of that member is known.
func (q *Queue) outward(index int, position int64) int64 {
	return position*int64(len(q.members)) + int64(index)
}

// inward returns the member and the position in its stream.
func (q *Queue) inward(position int64) (index int, inner int64) {
	n := int64(len(q.members))
	return int(position % n), position / n
}

// outward returns the message as it is known outside.
func (n *shardNode) outward(m stream.Message) stream.Message {
	m.Position = n.node.queue.outward(n.queue.index, m.Position)
	return m
}

// priority is that of the part's messages.
func (n *shardNode) priority() int {
	if n.node.queue.opts.Priorities == 0 {
		return 0
	}
	return n.queue.index
}
