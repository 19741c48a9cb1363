package eventstore

import (
	"context"
	"sync/atomic"

	"github.com/tidewire/tidewire/internal/pg"
)

// lastStored holds the position of the last event that this Store has stored in the current history, and in each earlier
// history. Safe for concurrent use.
type lastStored struct {
	// head is the position of the last event that this Store has stored, or 0. ghosts are the last positions in earlier histories.
	head   atomic.Int64
	ghosts pg.Ghosts
}

// stored records that events were stored. head is the position of the last one, and positions their number with gaps.
func (l *lastStored) stored(head int64, positions int) {
	if before := l.head.Swap(head); before>>historyBits != (head-int64(positions))>>historyBits {
		l.ghosts.Add(before) // another history may have begun in between
	}
}

// takeGhosts returns, in ascending order, the position of the last event that this Store has stored in each history before
// the one with that base. It returns each position once.
func (l *lastStored) takeGhosts(base int64) []int64 {
	if head := l.head.Load(); head <= base {
		l.ghosts.Add(head)
	}
	return l.ghosts.Take()
}

// FindLost finds out whether a failover has lost events that this Store has stored. Such a loss may be noticed nowhere else.
// It logs the losses and returns their number of positions. Each loss is reported once. Call it after a failover; it costs
// two queries. If the error is not nil, some losses may have been found already: call it again.
func (s *Store) FindLost(ctx context.Context) (positions int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	e, err := s.askPrimary(ctx)
	if err != nil {
		return 0, s.explain("look for losses of", err)
	}
	ghosts := s.last.takeGhosts(e.history)
	for i, ghost := range ghosts {
		if ghost <= s.lossReported.Load() {
			continue
		}
		n, err := s.lostUpTo(ctx, ghost, e)
		if err != nil {
			s.last.ghosts.Add(ghosts[i:]...)
			return positions, s.explain("look for losses of", err)
		}
		positions += n
	}
	return positions, nil
}

// lostUpTo returns how many positions up to that of the ghost are lost, and logs the loss.
func (s *Store) lostUpTo(ctx context.Context, ghost int64, e ends) (positions int64, err error) {
	var last *int64
	var base int64 // of the history in which the ghost was stored: losses of earlier histories do not count
	if err := s.pool.QueryRow(ctx, s.sql.lostFrom, ghost, max(e.head, e.history)).Scan(&last, &base); err != nil || last == nil {
		return 0, err
	}
	s.lossReported.Store(ghost)
	positions = ghost - max(*last, base)
	s.cfg.Log.Error("events that were committed are lost: the standby that took over did not have them", "store", s.name, "after", *last, "up to", ghost, "positions", positions)
	return positions, nil
}
