package wire

import "github.com/tidewire/tidewire/internal/engine"

// Answer is what a server sends on /ws: the answer to a request, a message, a delivery or an event, or the end of a
// subscription or consumption. Fields that it does not know are ignored. Its texts are parts of the message that it was
// read from.
type Answer struct {
	Type string
	// ID is that of the request, 0 if there is none, or one that is no number.
	ID int64

	Code, Message       string
	Subscription, Queue string

	Position, Last int64
	Count          int64
	Duplicate      bool
	Positions      []int64
	Counts         []int64
	Condition      []byte // JSON
	Lost, Failed   []string
	Delivery       string
	Attempt        int64
	Payload        []byte
	Event          engine.Event
	Events         []engine.Event
	Oldest         int64
	RetryAfterMS   int64
	Retryable      bool
}

// DecodeAnswer reads a message of a server into an empty Answer. The message must not change as long as the Answer is used.
func (d *Decoder) DecodeAnswer(message []byte, e Encoding, a *Answer) *Error {
	in := d.reader(message, e)
	if in.object() {
		for {
			name, ok := in.name()
			if !ok {
				break
			}
			if in.null() {
				continue
			}
			a.field(in, textOf(name))
		}
		in.end()
	}
	return in.failed()
}

func (a *Answer) field(in reader, name string) {
	if to := a.texts(name); to != nil {
		text, _ := in.text()
		*to = textOf(text)
		return
	}
	if to := a.integers(name); to != nil {
		*to, _ = in.integer()
		return
	}
	switch name {
	case "id":
		id, _ := in.scalar()
		a.ID = idNumber(in, id)
	case "payload":
		a.Payload, _ = in.data()
	case "payload_base64":
		a.Payload = readBase64(in)
	case "positions":
		a.Positions = readIntegers(in)
	case "counts":
		a.Counts = readIntegers(in)
	case "condition":
		a.Condition, _ = in.json()
	case "lost":
		a.Lost = readTexts(in)
	case "failed":
		a.Failed = readTexts(in)
	case "event":
		readEvent(in, &a.Event)
	case "events":
		a.Events = readEvents(in)
	case "duplicate":
		a.Duplicate, _ = in.boolean()
	case "retryable":
		a.Retryable, _ = in.boolean()
	default:
		in.skip()
	}
}

func (a *Answer) texts(name string) *string {
	switch name {
	case "type":
		return &a.Type
	case "code":
		return &a.Code
	case "message":
		return &a.Message
	case "subscription":
		return &a.Subscription
	case "queue":
		return &a.Queue
	case "delivery":
		return &a.Delivery
	}
	return nil
}

func (a *Answer) integers(name string) *int64 {
	switch name {
	case "position":
		return &a.Position
	case "last":
		return &a.Last
	case "count":
		return &a.Count
	case "attempt":
		return &a.Attempt
	case "oldest":
		return &a.Oldest
	case "retry_after_ms":
		return &a.RetryAfterMS
	}
	return nil
}

// idNumber returns the number that an ID is, or 0.
func idNumber(in reader, id []byte) int64 {
	if len(id) == 0 {
		return 0
	}
	if _, isJSON := in.(*jsonReader); isJSON {
		if id[0] == '"' {
			return 0
		}
		n, _ := parseInteger(id)
		return n
	}
	r := cborReader{state: state{message: id, limits: Limits{1, 2}}}
	n, _ := r.integer()
	return n
}

func readIntegers(in reader) []int64 {
	return readList(in, func(n *int64) { *n, _ = in.integer() })
}
