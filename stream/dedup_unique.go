package stream

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"
)

// Unique stores a message once in a period, which begins when the first one is stored: an append of another one with the
// same key and period to the stream, or to the same partition, by any process, stores nothing.
//
// About 100 bytes are kept for each key, as long as the stream exists.
type Unique struct {
	// Key is 1 byte to MaxKey. Empty: the message is not unique.
	Key string
	// Period, by PostgreSQL's clock, is 1 s to KeepRequests.
	Period time.Duration
}

func (u Unique) validate() error {
	switch {
	case u.Key == "":
		return fmt.Errorf("%w unique message: no key", ErrInvalid)
	case len(u.Key) > MaxKey:
		return fmt.Errorf("%w unique key: %d bytes, want at most %d", ErrInvalid, len(u.Key), MaxKey)
	case u.Period < time.Second || u.Period > KeepRequests:
		return fmt.Errorf("%w unique period: %v, want %v to %v", ErrInvalid, u.Period, time.Second, KeepRequests)
	}
	return nil
}

// UniquePrefix begins the clients as which unique messages are recorded: no program may use such a name in a stream that has some.
const UniquePrefix = "unique/"

// request returns the request as which the messages with that key and period are recorded: see tidewire.open_requests. No
// caller has a negative sequence, and so none has this request.
func (u Unique) request() RequestID {
	return RequestID{Client: fmt.Sprintf("%s%d/%x", UniquePrefix, u.Period.Microseconds(), sha256.Sum256([]byte(u.Key))), Sequence: -u.Period.Microseconds()}
}

// SubmitUnique is Submit of one message that is unique. If an earlier one is stored in this period, the result is that
// one's, with Duplicate. With a RequestID that has a Client it is SubmitAs as well: a repetition gets the result of the first
// call, also after the end of the period.
func (a *Appender) SubmitUnique(ctx context.Context, request RequestID, unique Unique, m Message, done func(Appended, error)) error {
	if err := unique.validate(); err != nil {
		return err
	}
	if request != (RequestID{}) {
		if err := request.validate(); err != nil {
			return err
		}
	}
	return a.submit(ctx, []Message{m}, call{request: request, unique: unique.request(), done: done})
}
