package queue

import "github.com/tidewire/tidewire/stream"

// The position of a message in a queue with priorities or partitions, which
// producers, consumers and the functions for dead letters use, is the position in
// its stream times the number of streams, plus the index of that stream. Within one
// priority or partition these positions grow with those in the stream.

// outward returns the position in the queue of a message of that member.
func (q *Queue) outward(index int, position int64) int64 {
	return position*int64(len(q.members)) + int64(index)
}

// inward returns the member and the position in its stream.
func (q *Queue) inward(position int64) (index int, inner int64) {
	n := int64(len(q.members))
	return int(position % n), position / n
}

// outward returns the message with its position in the queue.
func (n *shardNode) outward(m stream.Message) stream.Message {
	m.Position = n.node.queue.outward(n.queue.index, m.Position)
	return m
}

// priority returns the priority of the part's messages.
func (n *shardNode) priority() int {
	if n.node.queue.opts.Priorities == 0 {
		return 0
	}
	return n.queue.index
}
