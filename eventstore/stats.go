package eventstore

import "sync/atomic"

// Stats holds counters of a Store since it was opened.
type Stats struct {
	// Batches and Events count the committed batches, and the events in them.
	Batches, Events int64
	// Conflicts counts the appends whose condition failed.
	Conflicts int64
	// CheckedAhead counts the conditions that PostgreSQL checked while another batch
	// was committing.
	CheckedAhead int64
	// CheckedApart counts how often a condition was too expensive to be checked
	// together with others, so that it had to be checked alone.
	CheckedApart int64
	// DecidedInMemory counts the conflicts that were found without PostgreSQL.
	DecidedInMemory int64
	// ProjectionsRunning is the number of projections that run now,
	// ProjectionsBegun counts all that have started, and ProjectionsRefused those
	// that were rejected with ErrTooManyProjections.
	ProjectionsRunning, ProjectionsBegun, ProjectionsRefused int64
}

type counts struct {
	batches, events, conflicts           atomic.Int64
	checkedAhead, decidedInMemory        atomic.Int64
	undecided                            atomic.Int64
	projectionsBegun, projectionsRefused atomic.Int64
}

// Stats returns the current values.
func (s *Store) Stats() Stats {
	c := &s.counts
	return Stats{
		Batches: c.batches.Load(), Events: c.events.Load(), Conflicts: c.conflicts.Load(),
		CheckedAhead: c.checkedAhead.Load(), CheckedApart: c.undecided.Load(), DecidedInMemory: c.decidedInMemory.Load(),
		ProjectionsRunning: int64(len(s.projections)),
		ProjectionsBegun:   c.projectionsBegun.Load(), ProjectionsRefused: c.projectionsRefused.Load(),
	}
}
