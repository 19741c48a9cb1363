package stream

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrSequenceTooOld: the record of this request, if there was one, has expired, so
// it may have been stored earlier. It was not stored now. The client has to
// continue with higher sequences; the texts of errors that wrap this one say so.
var ErrSequenceTooOld = errors.New("stream: sequence is too old")

// KeepRequests is the minimum time for which a request with a RequestID can be repeated.
// Records are deleted at an age between this and about twice this, and stay longer while
// no one appends with a RequestID. An outage of PostgreSQL counts as at most two
// minutes. In a shared stream, if a writer takes longer than a minute from its record to
// its commit, its record is kept for less.
const KeepRequests = 10 * time.Minute

// RequestID is the idempotency key of one append, so that it can be repeated: a stream, or a
// partition of one, stores only one request with this Client and Sequence.
type RequestID struct {
	// Client names the program that appends, 1 to MaxName bytes of valid UTF-8 without NUL. A process that
	// continues the sequences of an earlier one uses its name; other processes choose a unique one, such
	// as a UUID. Each name takes some 100 bytes, which are kept as long as the stream exists.
	Client string
	// Sequence is the client's number for the request, at least 0. Sequences should
	// grow; gaps, and sending them out of order, are allowed. But once the record
	// of a sequence has expired, a lower one gets ErrSequenceTooOld, even if it was
	// never used.
	Sequence int64
}

func (request RequestID) validate() error {
	if err := validName("client", request.Client); err != nil {
		return err
	}
	if request.Sequence < 0 {
		return fmt.Errorf("%w sequence: %d, want at least 0", ErrInvalid, request.Sequence)
	}
	return nil
}

// AppendAs is Append with a RequestID (idempotent append): the call can be repeated
// in any process, any number of times, also concurrently. The messages are stored
// once, and each of the calls returns their positions, and whether an earlier call
// stored them. Only the Client and Sequence are compared: a repetition with other
// messages gets the result of the first call.
//
// This holds for KeepRequests. An older request, which may be a repetition, is not
// stored, and the error is ErrSequenceTooOld. All other errors are those of Append;
// after any of them the request can be repeated, and a rejected request is
// evaluated again.
func (a *Appender) AppendAs(ctx context.Context, request RequestID, msgs ...Message) (Appended, error) {
	if err := a.runs(); err != nil {
		return Appended{}, err
	}
	return await(ctx, func(done func(Appended, error)) error { return a.SubmitAs(ctx, request, msgs, done) })
}

// SubmitAs is Submit with a RequestID: see AppendAs. The callback of a repetition
// comes among the others, and its position may be lower than theirs.
func (a *Appender) SubmitAs(ctx context.Context, request RequestID, msgs []Message, done func(Appended, error)) error {
	if err := request.validate(); err != nil {
		return err
	}
	return a.submit(ctx, msgs, call{request: request, done: done})
}
