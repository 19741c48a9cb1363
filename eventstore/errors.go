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
	// ErrDuplicateID: an event with one of the ids is stored, and this append is
	// not a repetition of the one that stored it; nothing was stored. Errors that
	// wrap it are DuplicateErrors.
	ErrDuplicateID = errors.New("eventstore: event id exists")
	// ErrHistoryLost: a position is of events that were lost, as a standby that took over did not have them, or is past
	// the end of the store; nothing was stored. Errors that wrap it are HistoryLostErrors.
	ErrHistoryLost = errors.New("eventstore: the position is after the end, or a failover has lost it")
	// ErrNotFound: there is no store of that name, or it was dropped.
	ErrNotFound = errors.New("eventstore: not found")
	// ErrClosed: the Store is closed; nothing was stored.
	ErrClosed = errors.New("eventstore: closed")
	// ErrOutcomeUnknown: whether the events are stored is not known.
	ErrOutcomeUnknown = errors.New("eventstore: outcome unknown")
	// errAbandoned: Close gave up waiting. It is an ErrOutcomeUnknown.
	errAbandoned = fmt.Errorf("%w: abandoned without an answer of PostgreSQL", ErrOutcomeUnknown)
	// ErrTooExpensive: it takes PostgreSQL longer than Config.CheckTimeout to look
	// for what a condition excludes; nothing was stored. A condition with a higher
	// After is cheaper, and so is one by tags that few events have.
	ErrTooExpensive = errors.New("eventstore: too expensive")
	// ErrTooSlow: PostgreSQL has not written an append, alone in its batch, within
	// Config.Timeout, and so several times; nothing was stored.
	ErrTooSlow = errors.New("eventstore: not written in time")
	// ErrIsolation: a transaction is not READ COMMITTED. Under any other level a
	// condition would be checked against what was committed before the
	// transaction began to read, and not when it got the store's lock.
	ErrIsolation = errors.New("eventstore: transaction must be READ COMMITTED")
	// ErrTooManyProjections: MaxConcurrentProjections are running.
	ErrTooManyProjections = errors.New("eventstore: too many projections at once")
)

// ConflictError names the first stored event that matches an append's
// condition.
type ConflictError struct {
	Position int64
	Type     string
	// Events are the events that match, in order of position, if the condition
	// asked for them; the first is the one named above.
	Events []Event
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%v: event %q at position %d matches", ErrConflict, e.Type, e.Position)
}

func (e *ConflictError) Unwrap() error { return ErrConflict }

// HistoryLostError says where the history that was lost parts from the one that goes on: Last is the position of the last
// event that both have. Events that were read after it have to be read again, and decisions on them made again.
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

// DuplicateError names a stored event that has the id of one to be appended.
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
