package eventstore

import (
	"errors"
	"fmt"
)

var (
	// ErrConflict: an event matches an append's condition. Errors that wrap it
	// are ConflictErrors.
	ErrConflict = errors.New("eventstore: append condition failed")
	// ErrInvalid: an argument is outside of the documented limits; nothing was
	// stored. Errors that wrap it are InvalidErrors.
	ErrInvalid = errors.New("eventstore: invalid")
	// ErrDuplicateID: an event with one of the ids is already stored, and this append
	// is not a repetition of the append that stored it; nothing was stored. Errors
	// that wrap it are DuplicateErrors.
	ErrDuplicateID = errors.New("eventstore: event id exists")
	// ErrHistoryLost: a failover has lost events up to a position, because the promoted standby did not have them, or the
	// position is past the end of the store; nothing was stored. Errors that wrap it are HistoryLostErrors.
	ErrHistoryLost = errors.New("eventstore: the position is after the end, or a failover has lost it")
	// ErrNotFound: there is no store of that name, or it was dropped.
	ErrNotFound = errors.New("eventstore: not found")
	// ErrClosed: the Store is closed; nothing was stored.
	ErrClosed = errors.New("eventstore: closed")
	// ErrOutcomeUnknown: it is unknown whether the events are stored.
	ErrOutcomeUnknown = errors.New("eventstore: outcome unknown")
	// errAbandoned: Close gave up waiting. It is an ErrOutcomeUnknown.
	errAbandoned = fmt.Errorf("%w: abandoned without an answer of PostgreSQL", ErrOutcomeUnknown)
	// ErrTooExpensive: PostgreSQL needs longer than Config.CheckTimeout to check a
	// condition; nothing was stored. A condition is cheaper with a higher After, or
	// with tags that few events have.
	ErrTooExpensive = errors.New("eventstore: too expensive")
	// ErrTooSlow: PostgreSQL did not write an append within Config.Timeout, in
	// several attempts, although it was alone in its batch; nothing was stored.
	ErrTooSlow = errors.New("eventstore: not written in time")
	// ErrIsolation: a transaction is not READ COMMITTED. At any other level a
	// condition would be checked against the snapshot that the transaction took
	// first, and not against the state when it got the store's lock.
	ErrIsolation = errors.New("eventstore: transaction must be READ COMMITTED")
	// ErrTooManyProjections: MaxConcurrentProjections are running.
	ErrTooManyProjections = errors.New("eventstore: too many projections at once")
)

// ConflictError names the first stored event that matches an append's
// condition.
type ConflictError struct {
	Position int64
	Type     string
	// Events are the matching events in order of position, at most
	// Condition.WantEvents; the first is the one named above.
	Events []Event
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%v: event %q at position %d matches", ErrConflict, e.Type, e.Position)
}

func (e *ConflictError) Unwrap() error { return ErrConflict }

// HistoryLostError says where the lost history diverges from the current one: Last is the position of the last event that
// both have. The caller has to read the events after Last again, and to repeat decisions that relied on them.
type HistoryLostError struct{ Last int64 }

func (e *HistoryLostError) Error() string {
	return fmt.Sprintf("%v: the last event before is at %d", ErrHistoryLost, e.Last)
}

func (e *HistoryLostError) Unwrap() error { return ErrHistoryLost }

// InvalidError says what is wrong with an argument.
type InvalidError struct {
	// Field as a path, such as "events[2].tags" or "condition.items[0].types".
	Field   string
	Problem string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("%v %s: %s", ErrInvalid, e.Field, e.Problem)
}

func (e *InvalidError) Unwrap() error { return ErrInvalid }

// DuplicateError names a stored event that has the same id as an event of the append.
type DuplicateError struct {
	ID       string
	Position int64
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("%v: %q is that of another append's event at position %d", ErrDuplicateID, e.ID, e.Position)
}

func (e *DuplicateError) Unwrap() error { return ErrDuplicateID }

func invalid(field, format string, args ...any) error {
	return &InvalidError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

func invalidAt(list string, i int, field, problem string) error {
	return &InvalidError{Field: fmt.Sprintf("%s[%d].%s", list, i, field), Problem: problem}
}
