package postgres

import "github.com/tidewire/tidewire/queue"

// stats is what all nodes have done, those of queues that are gone among them.
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

// count keeps what the node of a queue did that is gone, so that no counter falls.
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
