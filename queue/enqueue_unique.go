package queue

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/tidewire/tidewire/stream"
)

// Unique has a message stored once in a period: Enqueue of another with the same
// key and period, by any process, stores nothing. Messages of different
// priorities, or with keys of different partitions, do not count as the same.
//
// Some 100 bytes are kept for each key as long as the queue.
type Unique struct {
	// Key names the job, 1 byte to stream.MaxKey. None: the message is not unique.
	Key string
	// Period, 1 s to stream.KeepRequests. Periods follow one another by
	// PostgreSQL's clock, from multiples of their length on: of two messages a
	// moment apart both are stored if one period ends between them.
	Period time.Duration
}

// ErrDuplicate is what a DuplicateError is: a message with that unique key is
// stored in this period already, perhaps done.
var ErrDuplicate = errors.New("queue: duplicate of a unique message")

// DuplicateError tells the position of the message that is stored.
type DuplicateError struct{ Position int64 }

func (e *DuplicateError) Error() string { return fmt.Sprintf("%v at %d", ErrDuplicate, e.Position) }
func (e *DuplicateError) Unwrap() error { return ErrDuplicate }

// noneUnique refuses unique messages where they cannot be had.
func noneUnique(msgs []Message) error {
	for i := range msgs {
		if msgs[i].Unique != (Unique{}) {
			return fmt.Errorf("%w unique message: want a SubmitUnique or Enqueue of its own, with a key", ErrInvalid)
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

// client is who stores messages with that key, request by request. The period
// is a part of the name, for sequences of another would be lower.
func (u Unique) client() string {
	return fmt.Sprintf("unique/%d/%x", u.Period.Microseconds(), sha256.Sum256([]byte(u.Key)))
}
