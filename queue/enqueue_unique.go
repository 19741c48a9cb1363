package queue

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/tidewire/tidewire/stream"
)

// Unique stores a message once in a period: Enqueue of another one with the same
// key and period, by any process, stores nothing. Messages of different
// priorities, or with keys of different partitions, are not duplicates of each
// other.
//
// About 100 bytes are kept for each key, until the queue is dropped.
type Unique struct {
	// Key names the job, 1 byte to stream.MaxKey. Empty: the message is not unique.
	Key string
	// Period, 1 s to stream.KeepRequests. Periods are consecutive, by
	// PostgreSQL's clock, and begin at multiples of their length: two messages
	// shortly after each other are both stored if a period ends between them.
	Period time.Duration
}

// ErrDuplicate is the error that a DuplicateError wraps: a message with that
// unique key is already stored in this period; it may be done.
var ErrDuplicate = errors.New("queue: duplicate of a unique message")

// DuplicateError has the position of the message that is stored.
type DuplicateError struct{ Position int64 }

func (e *DuplicateError) Error() string { return fmt.Sprintf("%v at %d", ErrDuplicate, e.Position) }
func (e *DuplicateError) Unwrap() error { return ErrDuplicate }

// noneUnique rejects unique messages where they are not supported.
func noneUnique(msgs []Message) error {
	for i := range msgs {
		if msgs[i].Unique != (Unique{}) {
			return fmt.Errorf("%w unique message: it needs a key, and a separate Enqueue or SubmitUnique", ErrInvalid)
		}
	}
	return nil
}

func (u Unique) validate() error {
	if len(u.Key) > stream.MaxKey {
		return fmt.Errorf("%w unique key: %d bytes, want at most %d", ErrInvalid, len(u.Key), stream.MaxKey)
	}
	if u.Period < time.Second || u.Period > stream.KeepRequests {
		return fmt.Errorf("%w unique period: %v, want %v to %v", ErrInvalid, u.Period, time.Second, stream.KeepRequests)
	}
	return nil
}

// uniquePrefix begins the client names of the requests of unique messages.
const uniquePrefix = "unique/"

// client returns the client name of the requests that store messages with that
// key (see stream.RequestID). The period is a part of the name, because
// sequences for a longer period would be lower.
func (u Unique) client() string {
	return fmt.Sprintf(uniquePrefix+"%d/%x", u.Period.Microseconds(), sha256.Sum256([]byte(u.Key)))
}
