package queue

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tidewire/tidewire/stream"
)

// DueHeader is the header that holds when a delayed message is due, as text in RFC
// 3339 format. A program that appends to the queue's stream by other means may set
// it.
const DueHeader = "tidewire_due"

// withDues returns the messages as the stream stores them, to be given back.
func withDues(msgs []Message) (*plainMessages, error) {
	plain := lendPlain(len(msgs))
	for i := range msgs {
		var err error
		if plain.messages[i], err = msgs[i].withDue(); err != nil {
			plain.giveBack()
			return nil, err
		}
	}
	return plain, nil
}

// lastDue is the latest time that RFC 3339 can express.
var lastDue = time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)

// withDue writes Due into the headers.
func (m Message) withDue() (stream.Message, error) {
	if m.Due.IsZero() {
		return m.plain(), nil
	}
	if m.Due.After(lastDue) {
		return stream.Message{}, fmt.Errorf("%w due time: %v, want %v at the latest", ErrInvalid, m.Due, lastDue)
	}
	return withHeader(m.plain(), DueHeader, m.Due.UTC().Format(time.RFC3339Nano))
}

// withHeader adds a header.
func withHeader(m stream.Message, name, value string) (stream.Message, error) {
	headers := make(map[string]json.RawMessage)
	if len(m.Headers) > 0 {
		if err := json.Unmarshal(m.Headers, &headers); err != nil {
			return stream.Message{}, fmt.Errorf("%w headers: %w", ErrInvalid, err)
		}
	}
	text, err := json.Marshal(value)
	if err != nil {
		return stream.Message{}, err
	}
	if headers == nil { // they were null
		return stream.Message{}, fmt.Errorf("%w headers: not a JSON object", ErrInvalid)
	}
	headers[name] = text
	if m.Headers, err = json.Marshal(headers); err != nil {
		return stream.Message{}, err
	}
	return m, nil
}

// dueTime returns when the message is due, or the zero time. It is in UTC, and
// at most lastDue: RFC 3339 has time zones that PostgreSQL does not accept.
func dueTime(headers json.RawMessage) time.Time {
	if !bytes.Contains(headers, []byte(DueHeader)) {
		return time.Time{}
	}
	var in struct {
		Due time.Time `json:"tidewire_due"`
	}
	if json.Unmarshal(headers, &in) != nil {
		return time.Time{} // not in our format: deliver it at once
	}
	if in.Due.After(lastDue) {
		return lastDue
	}
	return in.Due.UTC()
}
