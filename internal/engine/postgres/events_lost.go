package postgres

import (
	"context"
	"time"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/migrate"
)

// historyEvery is how often watchHistory checks for a new history (a failover), while event stores are
// open.
const historyEvery = time.Second

// watchHistory finds, after each failover, the lost events that this server had stored, until ctx ends. It does not log
// errors: while PostgreSQL is away, others do.
func (s *events) watchHistory(ctx context.Context) {
	tick := time.NewTicker(historyEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if open := s.open.all(); len(open) > 0 {
			s.lookForLost(ctx, open)
		}
	}
}

// lookForLost looks for lost events if the history has changed since the last call. If that fails, the next call tries
// again.
func (s *events) lookForLost(ctx context.Context, open []*eventstore.Store) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	history, err := migrate.EnterHistory(ctx, s.pool)
	if err != nil || history == s.history {
		return
	}
	for _, store := range open {
		lost, err := store.FindLost(ctx)
		s.lost.Add(lost)
		if err != nil {
			return
		}
	}
	s.history = history
}
