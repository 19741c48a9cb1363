package stream

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrSequenceTooOld: the request may have been stored, and nobody knows any
// more. It was not stored now. Errors that wrap it say what the client is to
// do: go on with higher sequences.
var ErrSequenceTooOld = errors.New("stream: sequence is too old")

// KeepRequests is for how long requests that carried a RequestID can be
// repeated, at least: their records go when they are between this and some
// twice this old, and stay longer while nobody appends with a RequestID. Of a
// time in which PostgreSQL was away, two minutes count. In a shared stream a writer that
// takes longer than a minute from its record to its commit has its record for less.
const KeepRequests = 10 * time.Minute

// RequestID names one request to append, so that it can be repeated: for a
// stream, or a partition of one, there is only ever one request with this Client and Sequence.
type RequestID struct {
	// Client names the program that appends, 1 to MaxName bytes of valid UTF-8 without NUL. A process that
	// goes on with the sequences of an earlier one takes its name; others choose
	// one that nobody has, such as a UUID. Of each, some 100 bytes are kept as long as the stream.
	Client string
	// Sequence is the client's number for the request, at least 0. They should
	// grow; gaps, and another order than that of the numbers, are allowed. But
	// once the record of a sequence was given up, a lower one gets
	// ErrSequenceTooOld, also if it was never used.
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

// AppendAs is Append as the request of that name: it can be repeated, in any
// process and as often as one likes, at the same time as well. The messages are
// stored once, and each of the calls returns where, and whether an earlier one
// stored them. Only the Client and Sequence count: the answer to a
// repetition with other messages is about those of the first.
//
// This holds for KeepRequests. An older repetition, or what might be one, is not
// stored, and the error is ErrSequenceTooOld. All other errors are as with
// Append; after any of them the request can be repeated, and one that was
// refused is looked at anew.
func (a *Appender) AppendAs(ctx context.Context, request RequestID, msgs ...Message) (Appended, error) {
	if err := a.runs(); err != nil {
		return Appended{}, err
	}
	return await(ctx, func(done func(Appended, error)) error { return a.SubmitAs(ctx, request, msgs, done) })
}

// SubmitAs is Submit as the request of that name: see AppendAs. A repetition is
// called back among the others, with a position that may be lower than theirs.
func (a *Appender) SubmitAs(ctx context.Context, request RequestID, msgs []Message, done func(Appended, error)) error {
	if err := request.validate(); err != nil {
		return err
	}
	return a.submit(ctx, msgs, call{request: request, done: done})
}
