package engine

import "fmt"

// Code names an error on the wire.
type Code string

// Error is an error that clients see. The errors of an engine wrap one of those below; for any other error
// clients learn only that the request failed.
type Error struct {
	Code Code
	Text string // for clients
}

func (e *Error) Error() string { return "engine: " + e.Text }

// Is makes errors with the same code the same to errors.Is: one may have a text for a special case.
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	return ok && other.Code == e.Code
}

// newError returns an *Error and adds it to Errors. Its result type is error, not *Error, so that a nil
// *Error never becomes a non-nil error.
func newError(code Code, text string) error {
	e := &Error{code, text}
	Errors = append(Errors, e)
	return e
}

// Errors are all of those below, one for each code.
var Errors []*Error

// The errors of engines.
var (
	// ErrNotFound: there is no stream, group, queue, event store or schedule of that name, or it was
	// dropped.
	ErrNotFound = newError(CodeNotFound, "there is no stream, group, queue, event store or schedule of that name")
	// ErrNoEventStore is ErrNotFound for an event store.
	ErrNoEventStore error = &Error{CodeNotFound, "there is no event store of that name: create it, or name another one"}
	// ErrInvalid: a name, key, header or number is outside of the store's limits.
	ErrInvalid = newError(CodeInvalid, "a name, key, header or number is outside of the documented limits")
	// ErrExists: one of that name exists, with other options; or a queue cannot be
	// created because a stream of its name has messages, groups or partitions.
	ErrExists = newError(CodeExists, "the name is taken, by one with other options or by a stream that is in use: choose another name, or drop that one first")
	// ErrNotKeyed: the stream cannot be read by key.
	ErrNotKeyed = newError(CodeNotKeyed, "the stream was made without keyed, so it cannot be read by key")
	// ErrTooOld: the messages to be read were deleted by retention. See
	// TooOldError.
	ErrTooOld = newError(CodeTooOld, "the next messages after this position were dropped: continue after oldest - 1")
	// ErrTooLarge: the next message is larger than the server reads. See TooLargeError.
	ErrTooLarge = newError(CodeMessageTooLarge, "the next message is larger than this server reads, see position and size: continue after position, or raise --max-message")
	// ErrHistoryLost: the position is after the end, or belongs to messages or events that a failover has
	// lost. See HistoryLostError.
	ErrHistoryLost = newError(CodeHistoryLost, "the position is after the end, or a failover has lost it: discard what you have after last, and continue there")
	// ErrLeaseLost: the caller no longer holds the lease of the delivery.
	ErrLeaseLost = newError(CodeLeaseLost, "the leases of some deliveries have ended, or were never this caller's: see lost")
	// ErrFenced: the caller does not own the partition, or no longer.
	ErrFenced = newError(CodeFenced, "this connection does not own the partition, or no longer: its owner gets what is not committed, so discard it")
	// ErrConflict: an append's condition failed. See ConflictError.
	ErrConflict = newError(CodeConflict, "the condition does not hold: an event matches it, see position and event_type")
	// ErrDuplicateID: an event with that id is stored already.
	ErrDuplicateID = newError(CodeDuplicateID, "another append has stored an event with this id")
	// ErrTooExpensive: checking the append condition took too long.
	ErrTooExpensive = newError(CodeTooExpensive, "checking the condition took too long, and nothing was stored: give a higher after, or a tag that fewer events have")
	// ErrQueryTooExpensive is ErrTooExpensive for a query.
	ErrQueryTooExpensive error = &Error{CodeTooExpensive, "the query took too long: give a higher after, fewer items, or a tag that fewer events have"}
	// ErrBusy: the store is at its limit of concurrent requests of this kind.
	ErrBusy = newError(CodeBusy, "too many requests of this kind are at work; try again")
	// ErrSequenceTooOld: it is no longer known whether the client's request was
	// stored earlier; it was not stored now.
	ErrSequenceTooOld = newError(CodeSequence, "the record of this sequence is gone, so it may have been stored earlier; it was not stored now: check, and continue with a higher sequence")
	// ErrCrossPartition: the messages' keys belong to several partitions.
	ErrCrossPartition = newError(CodeCrossPartition, "the keys of these messages belong to several partitions: send one request for each partition")
	// ErrAhead: the position is after the end of the stream.
	ErrAhead = newError(CodeAhead, "nothing is stored at this position: commit only what you have received")
	// ErrIncomplete: the database was restored without the group's offset.
	ErrIncomplete = newError(CodeIncomplete, "the group has no offset: the database was restored from a backup without it; an operator has to set it")
	// ErrJournalLost: the database was restored without the queue's journal.
	ErrJournalLost = newError(CodeJournalLost, "the queue has lost its journal: the database was restored from a backup that lacks it; an operator restores one that has it, or begins a new one with SELECT tidewire.restart_queue(queue, after)")
	// ErrPartitioned: the operation needs one partition, not the whole stream.
	ErrPartitioned = newError(CodePartitioned, "the stream has partitions: name one of them, such as name/0")
	// ErrQueueStream: the stream holds a queue's messages; only the queue may
	// write to it, drop it, or have offsets in it.
	ErrQueueStream = newError(CodeQueueStream, "this stream holds the messages of a queue: it can be read; to write, use the requests of queues")
	// ErrRefused: the database rejects the request until an operator has changed
	// something, such as permissions or missing tables. Nothing was stored.
	ErrRefused = newError(CodeRefused, "the database refuses this permanently: the operator finds the reason in the log of the server")
	// ErrOutcomeUnknown: the request may have been stored or not.
	ErrOutcomeUnknown = newError(CodeUnknownOutcome, "it is not known whether this was stored: check, or repeat it with the same client and sequence, which stores it once")
)

// The codes of these errors.
const (
	CodeNotFound        Code = "not_found"
	CodeInvalid         Code = "invalid"
	CodeExists          Code = "exists"
	CodeNotKeyed        Code = "not_keyed"
	CodeTooOld          Code = "too_old"
	CodeMessageTooLarge Code = "message_too_large"
	CodeHistoryLost     Code = "history_lost"
	CodeLeaseLost       Code = "lease_lost"
	CodeFenced          Code = "fenced"
	CodeConflict        Code = "conflict"
	CodeDuplicateID     Code = "duplicate_id"
	CodeTooExpensive    Code = "too_expensive"
	CodeBusy            Code = "busy"
	CodeSequence        Code = "sequence_too_old"
	CodeCrossPartition  Code = "cross_partition"
	CodeAhead           Code = "position_ahead"
	CodeIncomplete      Code = "offset_missing"
	CodeJournalLost     Code = "journal_lost"
	CodePartitioned     Code = "partitioned"
	CodeQueueStream     Code = "queue_stream"
	CodeRefused         Code = "database_refused"
	CodeUnknownOutcome  Code = "outcome_unknown"
)

// TooOldError is ErrTooOld with the position of the oldest message kept.
type TooOldError struct{ Oldest int64 }

func (e *TooOldError) Error() string { return fmt.Sprintf("%v: the oldest is %d", ErrTooOld, e.Oldest) }
func (e *TooOldError) Unwrap() error { return ErrTooOld }

// TooLargeError is ErrTooLarge with the position of the message and the size of its payload.
type TooLargeError struct{ Position, Size int64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%v: that at %d has %d bytes", ErrTooLarge, e.Position, e.Size)
}
func (e *TooLargeError) Unwrap() error { return ErrTooLarge }

// HistoryLostError is ErrHistoryLost with the position of the last message or event before the lost ones.
type HistoryLostError struct{ Last int64 }

func (e *HistoryLostError) Error() string {
	return fmt.Sprintf("%v: the last before is %d", ErrHistoryLost, e.Last)
}
func (e *HistoryLostError) Unwrap() error { return ErrHistoryLost }

// ConflictError is ErrConflict with the first conflicting event.
type ConflictError struct {
	Position int64
	Type     string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%v: %s at %d", ErrConflict, e.Type, e.Position)
}
func (e *ConflictError) Unwrap() error { return ErrConflict }

// FieldError is ErrInvalid with the field and its problem, as text for clients.
type FieldError struct {
	Field   string // a path, such as "events[2].tags"
	Problem string
}

func (e *FieldError) Error() string { return fmt.Sprintf("%v: %s: %s", ErrInvalid, e.Field, e.Problem) }
func (e *FieldError) Unwrap() error { return ErrInvalid }

// NotReadyError is why a server is not ready. Clients of /readyz see Reason, one
// line without names or addresses; Err, if not nil, is for the log.
type NotReadyError struct {
	Reason string
	Err    error
}

func (e *NotReadyError) Error() string {
	if e.Err == nil {
		return e.Reason
	}
	return e.Reason + ": " + e.Err.Error()
}

func (e *NotReadyError) Unwrap() error { return e.Err }
