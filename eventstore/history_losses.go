package eventstore

import (
	"context"
	"sync/atomic"
)

// lastStored is the last event that a Store has stored, and the last one in a history before. Safe for concurrent use.
type lastStored struct {
	// head is the position of the last event stored from here, or 0. ghost is the same in a history before, if head has left that,
	// until somebody has looked whether it was lost.
	head, ghost atomic.Int64
}

// stored notes that an event was stored at head, the last of so many positions.
func (l *lastStored) stored(head int64, positions int) {
	if before := l.head.Swap(head); before>>historyBits != (head-int64(positions))>>historyBits {
		l.ghost.Store(max(before, l.ghost.Load())) // another history may have begun in between
	}
}

// takeGhost returns the last event that was stored from here before the history with that base began, once, or 0.
func (l *lastStored) takeGhost(base int64) int64 {
	ghost := l.ghost.Swap(0)
	if head := l.head.Load(); head <= base {
		ghost = max(ghost, head)
	}
	return ghost
}

// FindLost looks whether a failover has lost events that this Store has stored, which nobody else may ever ask for. It logs
// those, and returns how many positions they had; a loss is found once. It is meant to be called after a failover, and costs two queries. If the error is not nil,
// call it again.
func (s *Store) FindLost(ctx context.Context) (positions int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	e, err := s.askPrimary(ctx)
	if err != nil {
		return 0, s.explain("look for losses of", err)
	}
	ghost := s.last.takeGhost(e.history)
	if ghost == 0 || ghost <= s.told.Load() {
		return 0, nil
	}
	var last *int64
	var base int64 // of the history in which the ghost was stored: those before have lost what they have lost
	if err := s.pool.QueryRow(ctx, s.sql.lostFrom, ghost, max(e.head, e.history)).Scan(&last, &base); err != nil {
		s.last.ghost.Store(max(ghost, s.last.ghost.Load()))
		return 0, s.explain("look for losses of", err)
	}
	if last == nil {
		return 0, nil
	}
	s.told.Store(ghost)
	positions = ghost - max(*last, base)
	s.cfg.Log.Error("events that were committed are lost: the standby that took over did not have them", "store", s.name, "after", *last, "up to", ghost, "positions", positions)
	return positions, nil
}
