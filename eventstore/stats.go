package eventstore

import "sync/atomic"

// Stats counts what a Store has done since it was opened.
type Stats struct {
	// Batches that were committed, and the events in them.
	Batches, Events int64
	// Conflicts is how many appends failed their condition.
	Conflicts int64
	// CheckedAhead is how many conditions PostgreSQL was asked about while
	// another batch was committed.
	CheckedAhead int64
	// CheckedApart is how often a condition was too expensive to be checked with
	// others, and was checked on its own.
	CheckedApart int64
	// DecidedInMemory is how many of the conflicts were found without
	// PostgreSQL.
	DecidedInMemory int64
	// Projections that run now, that were begun, and that were refused with
	// ErrTooManyProjections.
	ProjectionsRunning, ProjectionsBegun, ProjectionsRefused int64
}

type counts struct {
	batches, events, conflicts           atomic.Int64
	checkedAhead, decidedInMemory        atomic.Int64
	undecided                            atomic.Int64
	projectionsBegun, projectionsRefused atomic.Int64
}

// Stats returns the figures as they are now.
func (s *Store) Stats() Stats {
	c := &s.counts
	return Stats{
		Batches: c.batches.Load(), Events: c.events.Load(), Conflicts: c.conflicts.Load(),
		CheckedAhead: c.checkedAhead.Load(), CheckedApart: c.undecided.Load(), DecidedInMemory: c.decidedInMemory.Load(),
		ProjectionsRunning: int64(len(s.projections)),
		ProjectionsBegun:   c.projectionsBegun.Load(), ProjectionsRefused: c.projectionsRefused.Load(),
	}
}
