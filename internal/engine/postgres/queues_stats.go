package postgres

import "github.com/tidewire/tidewire/queue"

// stats returns the sum of all nodes, including those of closed queues.
func (s *queues) stats() queue.NodeStats {
	s.gone.Lock()
	defer s.gone.Unlock()
	sum := s.gone.stats
	for _, o := range s.open.all() {
		if !o.counted {
			sum = sum.Add(o.node.Stats())
		}
	}
	return sum
}

// count keeps the statistics of a closing queue's node, so that no counter
// decreases.
func (s *queues) count(o *openQueue) {
	s.gone.Lock()
	defer s.gone.Unlock()
	if !o.counted {
		o.counted = true
		done := o.node.Stats()
		done.JournalRows = 0
		s.gone.stats = s.gone.stats.Add(done)
	}
}
