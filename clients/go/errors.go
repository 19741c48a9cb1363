package tidewire

import (
	"errors"
	"fmt"
	"time"
)

// Error is the base of all errors of this package: errors.As finds it in each of them.
type Error struct {
	Code       string        // what is wrong, for programs: it does not change
	Message    string        // what is wrong, for people
	Retryable  bool          // the same call can be made again later, and has no effect twice
	RetryAfter time.Duration // wait so long first; 0 if the server has not said
	RequestID  string        // the id of the request on the wire; empty if none was sent
	Field      string        // the path of the field that is wrong, if it is one

	cause error
}

func (e *Error) Error() string {
	if e.RequestID == "" {
		return fmt.Sprintf("tidewire: %s: %s", e.Code, e.Message)
	}
	return fmt.Sprintf("tidewire: %s: %s (request %s)", e.Code, e.Message, e.RequestID)
}

// Is reports whether target is the error of the same code, such as ErrNotFound.
func (e *Error) Is(target error) bool {
	code, ok := target.(errorCode)
	return ok && string(code) == e.Code
}

// Unwrap returns what has caused the error: that of a context, or of the program's own code.
func (e *Error) Unwrap() error { return e.cause }

// errorCode is an error that stands for all errors of one code, for errors.Is.
type errorCode string

func (c errorCode) Error() string { return "tidewire: " + string(c) }

// Errors for errors.Is. A code that is not here is in Error.Code.
const (
	ErrConflict        = errorCode("conflict")          // see ConflictError
	ErrForbidden       = errorCode("forbidden")         // see ForbiddenError
	ErrNotFound        = errorCode("not_found")         // there is no stream, queue, group or store of that name
	ErrTooOld          = errorCode("too_old")           // see TooOldError
	ErrMessageTooLarge = errorCode("message_too_large") // see MessageTooLargeError
	ErrHistoryLost     = errorCode("history_lost")      // see HistoryLostError
	ErrStreamGone      = errorCode("stream_gone")       // the stream was dropped
	ErrQueueGone       = errorCode("queue_gone")        // the queue was dropped
	ErrLeaseLost       = errorCode("lease_lost")        // another consumer has the message, or will get it
	ErrFenced          = errorCode("fenced")            // another member owns the partition
	ErrOutcomeUnknown  = errorCode("outcome_unknown")   // it may have happened: check
	ErrTimeout         = errorCode("timeout")           // it was not sent in time, and has not happened
	ErrClosed          = errorCode("closed")            // the client was closed. It is ErrOutcomeUnknown, too, if the request may have happened
	ErrCancelled       = errorCode("cancelled")         // the context has ended, and it has not happened
	ErrTooBig          = errorCode("too_big")           // a message is larger than the server takes
	ErrInvalidMessage  = errorCode("invalid_message")   // see InvalidMessageError
	ErrAlready         = errorCode("already_consuming") // this client works on that queue
	ErrAlreadyJoined   = errorCode("already_joined")    // this client is in that room
	ErrStillRunning    = errorCode("still_running")     // handlers ignore that their context has ended
	ErrUnauthorized    = errorCode("unauthenticated")   // the server wants a token
	ErrNotStored       = errorCode("room_not_stored")   // the room keeps no chats
	ErrDuplicateID     = errorCode("duplicate_id")      // another event has this id
	ErrCrossPartition  = errorCode("cross_partition")   // the messages belong to several partitions
)

// ConflictError says that an event which the condition excludes is stored. Read, decide again, append again.
type ConflictError struct {
	Err       *Error
	Position  int64  // of the first event that matches the condition
	EventType string // of that event
}

// ForbiddenError says which right is missing.
type ForbiddenError struct {
	Err    *Error
	Verb   string // what was refused, such as publish
	Kind   string // of what, such as stream
	Object string // its name
}

// TooOldError says that messages were dropped. Continue after Oldest - 1.
type TooOldError struct {
	Err       *Error
	Oldest    int64 // the first position that may still be kept
	Partition int   // of a group that shares partitions; else -1
}

// MessageTooLargeError says that the server does not read a message, which another program has stored. Continue after Position.
type MessageTooLargeError struct {
	Err       *Error
	Position  int64 // of the message
	Size      int64 // the bytes of its payload
	Partition int   // of a group that shares partitions; else -1
}

// HistoryLostError says that a failover has lost messages. Discard what came after Last, and continue there.
type HistoryLostError struct {
	Err  *Error
	Last int64 // the last position before the loss
}

// LeaseLostError says which deliveries another consumer has, or will get.
type LeaseLostError struct {
	Err  *Error
	Lost []string
}

// InvalidMessageError holds a message that the codec refuses.
type InvalidMessageError struct {
	Err     *Error
	Message Message[[]byte]
}

func (e *ConflictError) Error() string        { return e.Err.Error() }
func (e *ConflictError) Unwrap() error        { return e.Err }
func (e *ForbiddenError) Error() string       { return e.Err.Error() }
func (e *ForbiddenError) Unwrap() error       { return e.Err }
func (e *TooOldError) Error() string          { return e.Err.Error() }
func (e *TooOldError) Unwrap() error          { return e.Err }
func (e *MessageTooLargeError) Error() string { return e.Err.Error() }
func (e *MessageTooLargeError) Unwrap() error { return e.Err }
func (e *HistoryLostError) Error() string     { return e.Err.Error() }
func (e *HistoryLostError) Unwrap() error     { return e.Err }
func (e *LeaseLostError) Error() string       { return e.Err.Error() }
func (e *LeaseLostError) Unwrap() error       { return e.Err }
func (e *InvalidMessageError) Error() string  { return e.Err.Error() }
func (e *InvalidMessageError) Unwrap() error  { return e.Err }

// wireError is an error as the server writes it.
type wireError struct {
	ID           any      `json:"id"`
	Subscription string   `json:"subscription"`
	Queue        string   `json:"queue"`
	Room         string   `json:"room"`
	Code         string   `json:"code"`
	Message      string   `json:"message"`
	Retryable    bool     `json:"retryable"`
	RetryAfterMS float64  `json:"retry_after_ms"`
	Position     int64    `json:"position"`
	EventType    string   `json:"event_type"`
	Oldest       int64    `json:"oldest"`
	Size         int64    `json:"size"`
	Partition    *int     `json:"partition"`
	Last         int64    `json:"last"`
	Field        string   `json:"field"`
	Lost         []string `json:"lost"`
	Failed       []string `json:"failed"`
	Verb         string   `json:"verb"`
	Kind         string   `json:"kind"`
	Name         string   `json:"name"`
}

func (w *wireError) partition() int {
	if w.Partition == nil {
		return -1
	}
	return *w.Partition
}

// base returns the Error of w.
func (w *wireError) base(id string) *Error {
	return &Error{
		Code: w.Code, Message: w.Message, Retryable: w.Retryable, RequestID: id, Field: w.Field,
		RetryAfter: milliseconds(w.RetryAfterMS),
	}
}

// typed returns the error of the type that belongs to the code.
func (w *wireError) typed(id string) error {
	e := w.base(id)
	switch w.Code {
	case "conflict":
		return &ConflictError{e, w.Position, w.EventType}
	case "forbidden":
		return &ForbiddenError{e, w.Verb, w.Kind, w.Name}
	case "too_old":
		return &TooOldError{e, w.Oldest, w.partition()}
	case "message_too_large":
		return &MessageTooLargeError{e, w.Position, w.Size, w.partition()}
	case "history_lost":
		return &HistoryLostError{e, w.Last}
	case "lease_lost":
		return &LeaseLostError{e, w.Lost}
	case "sequence_too_old":
		e.Code, e.Message = "outcome_unknown", "the record of this request is gone: it may have been stored long ago. Check whether it is"
		return e
	}
	return e
}

// closedError says that the client was closed, and why.
func closedError(cause error) error {
	text := "the client is closed"
	if cause != nil {
		text += ": " + cause.Error()
	}
	return &Error{Code: "closed", Message: text, cause: cause}
}

// closedUnanswered is closedError for what was sent and has no answer. It is ErrOutcomeUnknown, too.
func closedUnanswered(cause error) error {
	e := unknown("the client is closed before the answer came", cause)
	return &Error{Code: "closed", Message: closedError(cause).(*Error).Message + ". No answer has come: it may have happened. Check whether it has", cause: e}
}

// local returns an error that the library itself has found.
func local(code, format string, args ...any) error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Retryable reports whether the call that returned err can be made again later.
func Retryable(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Retryable
}

// Final marks an error of Options.Token as final: the client closes with it, and does not try again.
func Final(err error) error { return &finalError{err} }

type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }
func (e *finalError) Unwrap() error { return e.err }

// NewError returns an error with a code, for other implementations of the interfaces.
func NewError(code string, cause error) *Error {
	return &Error{Code: code, Message: cause.Error(), cause: cause}
}
