package queue

// NodeStats is what a Node has done so far, and what it knows: numbers of
// messages unless it says otherwise.
type NodeStats struct {
	Claimed      int64 // positions claimed, also those where nothing was written yet
	Released     int64 // of these, given back before they were done, for any node to claim
	Delivered    int64 // delivered to Consumers, each time
	DeadLettered int64 // made dead letters for they were delivered too often
	Rotations    int64 // how often this Node began a journal anew
	Vacuums      int64 // how often it had the deleted rows of journals removed, of all queues
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

// Stats returns what the Node has done so far. It asks nothing of PostgreSQL and
// costs next to nothing.
func (n *Node) Stats() NodeStats {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.stats
	for _, p := range n.parts {
		out.JournalRows += p.state.rows
	}
	return out
}
