package stream

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of a message and of one Append.
const (
	// MaxKey is the longest key in bytes: a B-tree entry must not exceed a third of
	// a page.
	MaxKey = 1024
	// MaxHeaders is the longest text of a message's headers in bytes.
	MaxHeaders = 64 << 10
	// MaxAppend is the largest total size of the messages of one Append in bytes:
	// PostgreSQL accepts no value of more than 1 GiB.
	MaxAppend = 256 << 20
)

// ErrInvalid: a name, message or argument is outside of the documented limits. The
// text of an error that wraps it says which and why; for a message it is an InvalidError.
var ErrInvalid = errors.New("stream: invalid")

// InvalidError says what is wrong with a message.
type InvalidError struct {
	Field   string // "key" or "headers"
	Problem string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("%v %s: %s", ErrInvalid, e.Field, e.Problem)
}

func (e *InvalidError) Unwrap() error { return ErrInvalid }

func invalid(field, format string, args ...any) error {
	return &InvalidError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

// Message is one entry of a stream.
type Message struct {
	// Position in the stream, from 1 on, in the order of commits, with gaps.
	// Assigned by PostgreSQL; ignored in a message to be appended.
	Position int64
	// Key the message belongs to, valid UTF-8 without NUL, at most MaxKey bytes. An
	// empty key means no key: it is stored as NULL.
	Key string
	// Headers is a JSON object, or empty for none. It is stored as jsonb: it is
	// read back with the same meaning, but not the same spelling. Not allowed,
	// because jsonb cannot hold them: the character U+0000, half a surrogate pair,
	// numbers beyond float64 or of more than 400 characters, and nesting deeper
	// than 64.
	Headers json.RawMessage
	// Payload, any bytes.
	Payload []byte
	// Time is when the transaction began that stored the message. With several
	// nodes, a message with a higher position may have an earlier time, by as long
	// as its writer waited for the stream's lock. For a message appended with
	// AppendTx it is the time of the commit. Ignored in a message to be appended.
	Time time.Time
}

// size is the size of m in a rowBatch, in bytes.
func (m *Message) size() int {
	return rowPayload + len(m.Payload) + 4 + len(m.Key) + 5 + len(m.Headers)
}

// validate rejects messages that PostgreSQL would reject: a message shares its
// batch with those of other callers, which must not fail because of it.
func (m *Message) validate() error {
	if err := validKey(m.Key); err != nil {
		return err
	}
	if len(m.Headers) == 0 {
		return nil
	}
	return validHeaders(m.Headers)
}

func validKey(key string) error {
	switch {
	case len(key) > MaxKey:
		return invalid("key", "%d bytes, want at most %d", len(key), MaxKey)
	case !isText(key):
		return invalid("key", "want UTF-8 without NUL")
	}
	return nil
}

// isText reports whether PostgreSQL's text can hold s.
func isText(s string) bool {
	return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0
}
