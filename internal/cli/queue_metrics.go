package cli

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidewire/tidewire/queue"
)

// registerQueues tells what this server's nodes of all queues have done.
func registerQueues(metrics prometheus.Registerer, store *queueStore) {
	counter := func(name, help string, value func(queue.NodeStats) int64) {
		metrics.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help},
			func() float64 { return float64(value(store.stats())) }))
	}
	counter("tidewire_queue_claimed_positions_total", "Positions of queues claimed by this server, also where nothing was written yet.",
		func(s queue.NodeStats) int64 { return s.Claimed })
	counter("tidewire_queue_given_back_positions_total", "Positions claimed by this server and given back, for any server to claim.",
		func(s queue.NodeStats) int64 { return s.GivenBack })
	counter("tidewire_queue_exhausted_messages_total", "Messages that became dead letters because they were delivered too often without an answer.",
		func(s queue.NodeStats) int64 { return s.Buried })
	counter("tidewire_queue_rotations_total", "Journals of queues begun anew by this server.",
		func(s queue.NodeStats) int64 { return s.Rotations })
	counter("tidewire_queue_vacuums_total", "Journals of queues vacuumed by this server.",
		func(s queue.NodeStats) int64 { return s.Vacuums })
	metrics.MustRegister(prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "tidewire_queue_journal_rows", Help: "Rows in the journals of the queues that this server has open, as far as it has read."},
		func() float64 { return float64(store.stats().JournalRows) }))
}

// stats is what all nodes have done, those of queues that are gone among them.
func (s *queueStore) stats() queue.NodeStats {
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
func (s *queueStore) count(o *openQueue) {
	s.gone.Lock()
	defer s.gone.Unlock()
	if !o.counted {
		o.counted = true
		done := o.node.Stats()
		done.JournalRows = 0
		s.gone.stats = s.gone.stats.Add(done)
	}
}
