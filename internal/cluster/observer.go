package cluster

// Observer is told about the other nodes. Its functions must not block, or call the node.
type Observer struct {
	// Heard and Lost are called when another node is heard for the first time, and when it has not been heard for long.
	Heard, Lost func(node string)
	// Differs is called when another node has other settings.
	Differs func(node string)
}

// Observe sets the observer, and a number for those settings that all nodes should have in common, such as a hash. Call it before Run.
func (n *Node) Observe(settings uint64, o Observer) {
	n.peersMu.Lock()
	defer n.peersMu.Unlock()
	n.settings, n.observer = settings, o
	clear(n.peers) // who was heard before is heard again, and the observer told
	n.others.Store(0)
}
