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
	// MaxKey is the longest key in bytes: an entry of a B-tree has to fit a
	// third of a page.
	MaxKey = 1024
	// MaxHeaders is the longest text of a message's headers in bytes.
	MaxHeaders = 64 << 10
	// MaxAppend is the most that the messages of one Append may hold together,
	// in bytes: PostgreSQL takes no value of more than 1 GiB.
	MaxAppend = 256 << 20
)

// ErrInvalid is what a name, message or argument outside of the documented
// limits gets. The text of an error that wraps it says which and why.
var ErrInvalid = errors.New("stream: invalid")

// Message is one entry of a stream.
type Message struct {
	// Position in the stream, from 1 on, in the order of commits, with gaps.
	// Assigned by PostgreSQL; not looked at in a message to be appended.
	Position int64
	// Key the message belongs to, valid UTF-8 without NUL, at most MaxKey
	// bytes. An empty key is none: it is stored as NULL.
	Key string
	// Headers is a JSON object, or empty for none. It is stored as jsonb: it
	// comes back with the same meaning, not the same spelling. Not allowed, for
	// jsonb cannot hold it: the character U+0000, half a surrogate pair, numbers
	// beyond float64 or of more than 400 characters; nor nesting deeper than 64.
	Headers json.RawMessage
	// Payload, any bytes.
	Payload []byte
	// Time at which the transaction began that stored the message. Of messages
	// from several nodes, the one with the higher position may have the earlier
	// time, by as long as it waited for the stream's lock. Of a message appended
	// with AppendTx it is the time of the commit. Not looked at in a message to
	// be appended.
	Time time.Time
}

// size is what m takes in a rowBatch.
func (m *Message) size() int {
	return rowPayload + len(m.Payload) + 4 + len(m.Key) + 5 + len(m.Headers)
}

// validate refuses what PostgreSQL would: a message shares its batch with
// those of other callers, which must not fail because of it.
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
		return fmt.Errorf("%w key: %d bytes, want at most %d", ErrInvalid, len(key), MaxKey)
	case !isText(key):
		return fmt.Errorf("%w key: want UTF-8 without NUL", ErrInvalid)
	}
	return nil
}

// isText reports whether PostgreSQL's text can hold s.
func isText(s string) bool {
	return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0
}
