package eventstore

import (
	"context"
	"sync/atomic"

	"github.com/tidewire/tidewire/internal/pg"
)

// lastStored is the last event that a Store has stored, and the last one in each history before. Safe for concurrent use.
type lastStored struct {
	// head is the position of the last event that was stored from here, or 0. ghosts are the same in histories before, which head has left.
	head   atomic.Int64
	ghosts pg.Ghosts
}

// stored notes that an event was stored at head, the last of so many positions.
func (l *lastStored) stored(head int64, positions int) {
	if before := l.head.Swap(head); before>>historyBits != (head-int64(positions))>>historyBits {
		l.ghosts.Add(before) // another history may have begun in between
	}
}

// takeGhosts returns the last event that was stored from here in each history before the one with that base, once, from the lowest on.
func (l *lastStored) takeGhosts(base int64) []int64 {
	if head := l.head.Load(); head <= base {
		l.ghosts.Add(head)
	}
	return l.ghosts.Take()
}

// FindLost looks whether a failover has lost events that this Store has stored, which nobody else may ever ask for. It logs
// those, and returns how many positions they had; a loss is found once. It is meant to be called after a failover, and costs two queries. If the error is not nil,
// some may have been found, and it is to be called again.
func (s *Store) FindLost(ctx context.Context) (positions int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	e, err := s.askPrimary(ctx)
	if err != nil {
		return 0, s.explain("look for losses of", err)
	}
	ghosts := s.last.takeGhosts(e.history)
	for i, ghost := range ghosts {
		if ghost <= s.told.Load() {
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

// lostUpTo returns how many positions up to that of an event are lost, and logs that.
func (s *Store) lostUpTo(ctx context.Context, ghost int64, e ends) (positions int64, err error) {
	var last *int64
	var base int64 // of the history in which the ghost was stored: those before have lost what they have lost
	if err := s.pool.QueryRow(ctx, s.sql.lostFrom, ghost, max(e.head, e.history)).Scan(&last, &base); err != nil || last == nil {
		return 0, err
	}
	s.told.Store(ghost)
	positions = ghost - max(*last, base)
	s.cfg.Log.Error("events that were committed are lost: the standby that took over did not have them", "store", s.name, "after", *last, "up to", ghost, "positions", positions)
	return positions, nil
}
