package gateway

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/engine"
)

// Limits of one request.
const (
	maxBatch    = 1000           // messages or deliveries
	maxCredits  = 1 << 30        // of a subscription
	maxPrefetch = 10_000         // of a consumption
	maxDelay    = 24 * time.Hour // of an enqueue or nack
	maxReason   = 1024           // bytes
	maxAttempts = 1 << 20        // of a queue's message
	maxUnique   = 10 * time.Minute

	maxPriorities      = 10 // of a queue, as package queue has it
	maxQueuePartitions = 64 // likewise

	defaultPrefetch = 100
)

// asked has the fields of a request that its answer needs.
type asked struct {
	Type string          `json:"type"`
	ID   json.RawMessage `json:"id"`
}

// request is a client's request, a message on /ws or an HTTP body. Unknown
// fields are ignored.
type request struct {
	asked

	Stream       string `json:"stream"`
	Queue        string `json:"queue"`
	Group        string `json:"group"`
	Subscription string `json:"subscription"`

	messageFields
	Messages []messageFields `json:"messages"`
	Client   string          `json:"client"`
	Sequence *int64          `json:"sequence"`

	After    *int64     `json:"after"`
	At       *time.Time `json:"at"`
	From     string     `json:"from"`
	Position *int64     `json:"position"`

	Credits *int64 `json:"credits"`
	N       int64  `json:"n"`

	Delivery   *string  `json:"delivery"`
	Deliveries []string `json:"deliveries"`
	DelayMS    int64    `json:"delay_ms"`
	Priority   int64    `json:"priority"`
	UniqueKey  *string  `json:"unique_key"`
	UniqueMS   int64    `json:"unique_ms"`
	LeaseMS    int64    `json:"lease_ms"`
	Reason     string   `json:"reason"`

	Store     string              `json:"store"`
	Events    []eventFields       `json:"events"`
	Condition *conditionFields    `json:"condition"`
	Query     *engine.EventQuery  `json:"query"`
	Queries   []engine.EventQuery `json:"queries"`
	Before    int64               `json:"before"`
	Limit     *int64              `json:"limit"`
	Backwards bool                `json:"backwards"`

	// Options of streams and queues to create; HTTP only.
	Keyed       *bool  `json:"keyed"`
	Partitions  *int   `json:"partitions"`
	Priorities  *int64 `json:"priorities"`
	MaxAttempts *int64 `json:"max_attempts"`
	RetryMinMS  *int64 `json:"retry_min_ms"`
	RetryMaxMS  *int64 `json:"retry_max_ms"`
}

// messageFields are a message to be stored.
type messageFields struct {
	Key           string          `json:"key"`
	Headers       json.RawMessage `json:"headers"`
	Payload       *string         `json:"payload"`
	PayloadBase64 *string         `json:"payload_base64"`
}

// parseRequest parses one message. With a problem, the request still has its ID
// and type if they could be read, so that it can be answered.
func parseRequest(text []byte) (*request, *problem) {
	r := requestMemory.Get().(*request)
	why := decodeRequest(text, r)
	if why == nil {
		return r, checkID(&r.ID)
	}
	return identify(text), why
}

// requestMemory is a pool of requests. One takes 1 KiB.
var requestMemory = sync.Pool{New: func() any { return new(request) }}

// recycle returns the request to the pool. Its strings and slices may still be
// in use.
func (r *request) recycle() {
	*r = request{}
	requestMemory.Put(r)
}

func decodeRequest(text []byte, r *request) *problem {
	switch {
	case !bytes.HasPrefix(trimSpace(text), []byte{'{'}):
		return errNoObject
	case !utf8.Valid(text):
		return errNoUTF8
	case len(text) >= largeText && tooRich(text):
		return errTooRich
	}
	if err := json.Unmarshal(text, r); err != nil {
		return undecodable(text, err)
	}
	return nil
}

// identify returns a request with only its type and ID. If a field occurs several
// times, the last one counts, as in encoding/json.
func identify(object []byte) *request {
	r := new(request)
	eachField(object, func(key, value []byte) {
		switch strings.ToLower(text(key)) {
		case "type":
			r.Type = ""
			json.Unmarshal(value, &r.Type)
		case "id":
			r.ID = bytes.Clone(value)
		}
	})
	if checkID(&r.ID) != nil || !json.Valid(r.ID) || !utf8.Valid(r.ID) {
		r.ID = nil
	}
	return r
}

// validName reports whether name is a valid name.
func validName(name string) bool {
	return name != "" && len(name) <= maxNameBytes && strings.IndexByte(name, 0) < 0 && utf8.ValidString(name)
}

// usable reports whether a client may use a stream, queue, group or event store of
// that name.
func usable(name string) bool { return validName(name) && !engine.Reserved(name) }

// messages returns the messages that a request stores, one or many.
func (r *request) messages() ([]engine.Message, *problem) {
	fields := r.Messages
	switch {
	case fields == nil:
		m, why := r.messageFields.message()
		if why != nil {
			return nil, why
		}
		return []engine.Message{m}, nil
	case len(fields) == 0:
		return nil, malformed("messages", fmt.Sprintf("1 to %d messages", maxBatch))
	case r.Payload != nil || r.PayloadBase64 != nil:
		return nil, malformed("messages", "either messages or a payload, not both")
	case len(fields) > maxBatch:
		return nil, because(codeTooManyMessages)
	}
	out := make([]engine.Message, len(fields))
	for i, f := range fields {
		m, why := f.message()
		if why != nil {
			return nil, &problem{code: why.code, text: fmt.Sprintf("messages[%d].%s", i, why.text)}
		}
		out[i] = m
	}
	return out, nil
}

// message returns the message. It needs a payload in exactly one of the two
// forms.
func (f messageFields) message() (m engine.Message, why *problem) {
	m.Key = f.Key
	if h := f.Headers; len(h) > 0 && !bytes.Equal(h, []byte("null")) {
		if h[0] != '{' {
			return m, malformed("headers", "an object")
		}
		m.Headers = h
	}
	switch {
	case f.Payload == nil && f.PayloadBase64 == nil:
		return m, malformed("payload", "a string here, or in payload_base64")
	case f.Payload != nil && f.PayloadBase64 != nil:
		return m, malformed("payload", "either payload or payload_base64, not both")
	case f.Payload != nil:
		m.Payload = []byte(*f.Payload)
	default:
		payload, err := base64.StdEncoding.DecodeString(*f.PayloadBase64)
		if err != nil {
			return m, malformed("payload_base64", "base64, with its padding")
		}
		m.Payload = payload
	}
	return m, nil
}

// requestID returns the RequestID of the caller's request, or nil. The two fields go
// together.
func (r *request) requestID(c *auth.Caller) (*engine.RequestID, *problem) {
	switch {
	case r.Client == "" && r.Sequence == nil:
		return nil, nil
	case !validName(r.Client):
		return nil, wrong(engine.CodeInvalid, "client", "a name of 1 to 128 bytes beside sequence")
	case r.Sequence == nil || *r.Sequence < 0:
		return nil, wrong(engine.CodeInvalid, "sequence", "a number, 0 or more, beside client")
	}
	return &engine.RequestID{Client: ownName(c, r.Client, maxClientBytes), Sequence: *r.Sequence}, nil
}

// commitPosition returns the position that a request commits.
func (r *request) commitPosition() (int64, *problem) {
	if r.Position == nil || *r.Position < 0 {
		return 0, malformed("position", "a whole number, 0 or more")
	}
	return *r.Position, nil
}

// start returns where a subscription begins; by default after the last message.
func (r *request) start() (from engine.Start, why *problem) {
	given := 0
	for _, is := range []bool{r.After != nil, r.At != nil, r.From != "", r.Group != ""} {
		if is {
			given++
		}
	}
	switch {
	case given > 1:
		return from, because(codeStart)
	case r.After != nil && *r.After < 0:
		return from, wrong(codeStart, "after", "a position, 0 or more")
	case r.After != nil:
		return engine.Start{After: *r.After}, nil
	case r.At != nil:
		return engine.Start{At: *r.At}, nil
	case r.Group != "" && !usable(r.Group):
		return from, because(codeName)
	case r.Group != "":
		return engine.Start{Group: r.Group}, nil
	case r.From == "start":
		return engine.Start{}, nil
	case r.From == "end", r.From == "":
		return engine.Start{End: true}, nil
	default:
		return from, wrong(codeStart, "from", "start or end")
	}
}

// tokens returns the tokens of the deliveries that a request settles.
func (r *request) tokens() ([]string, *problem) {
	switch {
	case r.Delivery != nil && r.Deliveries == nil:
		return []string{*r.Delivery}, nil
	case r.Delivery != nil:
		return nil, malformed("delivery", "either delivery or deliveries, not both")
	case len(r.Deliveries) == 0:
		return nil, malformed("delivery", fmt.Sprintf("a string here, or 1 to %d of them in deliveries", maxBatch))
	case len(r.Deliveries) > maxBatch:
		return nil, because(codeTooManyMessages)
	default:
		return r.Deliveries, nil
	}
}

// within returns a field that is a number of milliseconds from low to high.
func within(field string, ms int64, low, high time.Duration) (time.Duration, *problem) {
	if ms < low.Milliseconds() || ms > high.Milliseconds() {
		return 0, wrong(codeDuration, field, between(low.Milliseconds(), high.Milliseconds()))
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// creditsWithin checks the initial credits of a request.
func (r *request) creditsWithin(most int64) *problem {
	if r.Credits != nil && (*r.Credits < 0 || *r.Credits > most) {
		return wrong(codeCredits, "credits", between(0, most))
	}
	return nil
}

// settlement is how a request settles deliveries.
type settlement struct {
	kind   string // ack, nack or extend
	delay  time.Duration
	reason string
	lease  time.Duration
}

// settlement returns the settlement of a request of that kind.
func (r *request) settlement(kind string) (s settlement, why *problem) {
	s.kind = kind
	switch kind {
	case "nack":
		s.reason = r.Reason
		s.delay, why = within("delay_ms", r.DelayMS, 0, maxDelay)
	case "extend":
		s.lease, why = within("lease_ms", r.LeaseMS, time.Millisecond, maxDelay)
	}
	if len(s.reason) > maxReason {
		why = wrong(engine.CodeInvalid, "reason", fmt.Sprintf("at most %d bytes", maxReason))
	}
	return s, why
}

// optional returns the value of a field, or zero if it is nil.
func optional[T any](field *T) (value T) {
	if field != nil {
		value = *field
	}
	return value
}

// streamOptions returns the options for creating a stream, nil if the request has
// none.
func (r *request) streamOptions() *engine.StreamOptions {
	if r.Keyed == nil && r.Partitions == nil {
		return nil
	}
	return &engine.StreamOptions{Keyed: optional(r.Keyed), Partitions: optional(r.Partitions)}
}

// queueOptions returns the options for creating a queue, nil if the request has
// none; 0 is the store's default.
func (r *request) queueOptions() (*engine.QueueOptions, *problem) {
	if r.MaxAttempts == nil && r.RetryMinMS == nil && r.RetryMaxMS == nil && r.Priorities == nil && r.Partitions == nil {
		return nil, nil
	}
	low, whyLow := within("retry_min_ms", optional(r.RetryMinMS), 0, maxDelay)
	high, whyHigh := within("retry_max_ms", optional(r.RetryMaxMS), 0, maxDelay)
	attempts, priorities, partitions := optional(r.MaxAttempts), optional(r.Priorities), optional(r.Partitions)
	switch {
	case whyLow != nil:
		return nil, whyLow
	case whyHigh != nil:
		return nil, whyHigh
	case attempts < 0 || attempts > maxAttempts:
		return nil, wrong(engine.CodeInvalid, "max_attempts", between(1, maxAttempts))
	case priorities < 0 || priorities > maxPriorities || priorities == 1:
		return nil, wrong(engine.CodeInvalid, "priorities", between(2, maxPriorities))
	case partitions < 0 || partitions > maxQueuePartitions:
		return nil, wrong(engine.CodeInvalid, "partitions", between(1, maxQueuePartitions))
	case priorities > 0 && partitions > 0:
		return nil, wrong(engine.CodeInvalid, "partitions", "either priorities or partitions, not both")
	}
	return &engine.QueueOptions{
		MaxAttempts: int(attempts), RetryMin: low, RetryMax: high, Priorities: int(priorities), Partitions: partitions,
	}, nil
}

// enqueueOptions returns the options for enqueuing the messages of a caller's request;
// unique is nil without a unique_key.
func (r *request) enqueueOptions(c *auth.Caller) (opts engine.EnqueueOptions, unique *engine.Unique, why *problem) {
	delay, why := within("delay_ms", r.DelayMS, 0, maxDelay)
	switch {
	case why != nil:
		return opts, nil, why
	case r.Priority < 0 || r.Priority >= maxPriorities:
		return opts, nil, wrong(engine.CodeInvalid, "priority", between(0, maxPriorities-1))
	case r.Client != "" || r.Sequence != nil:
		return opts, nil, wrong(engine.CodeInvalid, "client", "none here: unique_key is for messages that are enqueued again")
	}
	opts = engine.EnqueueOptions{Delay: delay, Priority: int(r.Priority)}
	if r.UniqueKey == nil && r.UniqueMS == 0 {
		return opts, nil, nil
	}
	period, why := within("unique_ms", r.UniqueMS, time.Second, maxUnique)
	switch {
	case r.UniqueKey == nil || *r.UniqueKey == "":
		return opts, nil, malformed("unique_key", "a string that is not empty")
	case why != nil:
		return opts, nil, why
	case r.Messages != nil:
		return opts, nil, wrong(engine.CodeInvalid, "messages", "one message beside unique_key")
	}
	return opts, &engine.Unique{Key: ownName(c, *r.UniqueKey, maxUniqueKeyBytes), Period: period}, nil
}
