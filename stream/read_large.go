package stream

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// ErrTooLarge is wrapped by TooLargeError.
var ErrTooLarge = errors.New("stream: the next message is larger than what this reader takes")

// TooLargeError is the error of a read whose next message has a larger payload than WithMaxMessage permits. The payload was not
// fetched. Reading after Position goes on after that message.
type TooLargeError struct {
	Position int64
	Size     int64 // of the payload, in bytes
	Time     time.Time
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%v: that at %d has %d bytes", ErrTooLarge, e.Position, e.Size)
}

func (e *TooLargeError) Unwrap() error { return ErrTooLarge }

// WithMaxMessage returns the stream for a reader with limited memory: ReadPage, ReadRangePage and ReadKeyPage end before a message whose
// payload has more bytes, and return a TooLargeError if it would be the first. 0 is no bound. For subscriptions see HubConfig.
func (s *Stream) WithMaxMessage(bytes int) *Stream {
	other := *s
	other.largest = bytes
	return &other
}

// mostBytes is the largest payload to be fetched.
func (s *Stream) mostBytes() int64 {
	if s.largest <= 0 {
		return math.MaxInt64
	}
	return int64(s.largest)
}

// oversized returns the error for a message that was read without its payload, because that is too large: see pageColumns.
func oversized(m *Message) *TooLargeError {
	if m.Payload != nil {
		return nil
	}
	size, _ := strconv.ParseInt(string(m.Headers), 10, 64) // to_jsonb of an int
	return &TooLargeError{m.Position, size, m.Time}
}
