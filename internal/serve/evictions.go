package serve

import (
	"log/slog"
	"time"

	"github.com/tidewire/tidewire/internal/budget"
)

// evictionsEvery is how often evictions are logged.
const evictionsEvery = 5 * time.Second

// logEvictions logs how many connections and requests were ended because they held the
// most while memory was short: one line for all since the last line, until done is
// closed.
func logEvictions(b *budget.Budget, log *slog.Logger, every time.Duration, done <-chan struct{}) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	told := int64(0)
	look := func() {
		s := b.Stats()
		if n := s.Evictions - told; n > 0 {
			log.Warn("memory is short: connections that held the most were ended", "ended", n, "limit_bytes", s.Limit,
				"more", "/metrics, tidewire_memory_…; raise --max-memory if the machine has it")
			told = s.Evictions
		}
	}
	for {
		select {
		case <-tick.C:
			look()
		case <-done:
			look()
			return
		}
	}
}
