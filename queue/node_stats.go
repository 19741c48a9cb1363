package queue

// NodeStats counts what a Node has done so far: numbers of messages unless it
// says otherwise.
type NodeStats struct {
	Claimed      int64 // positions claimed, including those that hold no message yet
	Released     int64 // of these, released before they were done, for any node to claim
	Delivered    int64 // delivered to Consumers, each time
	DeadLettered int64 // made dead letters: by a Nack, or after too many attempts
	Rotations    int64 // how often this Node compacted a journal
	Vacuums      int64 // how often it removed the deleted rows of the journals of all queues
	// JournalRows is how many rows the journals have, as far as the Node has read.
	JournalRows int64
}

// Add returns the sum of what two Nodes have done.
func (s NodeStats) Add(other NodeStats) NodeStats {
	s.Claimed += other.Claimed
	s.Released += other.Released
	s.Delivered += other.Delivered
	s.DeadLettered += other.DeadLettered
	s.Rotations += other.Rotations
	s.Vacuums += other.Vacuums
	s.JournalRows += other.JournalRows
	return s
}

// Stats returns what the Node has done so far. It is cheap, and does not contact
// PostgreSQL.
func (n *Node) Stats() NodeStats {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.stats
	for _, p := range n.parts {
		out.JournalRows += p.state.rows
	}
	return out
}
