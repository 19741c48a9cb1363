package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/wire"
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

// asked has what the answer to a request needs of it.
type asked struct {
	Type     string
	ID       []byte // as the client has encoded it
	Encoding wire.Encoding
	object   object
}

// object is what a request is about. It may be in use after the request is recycled.
type object struct{ stream, queue, store, group string }

// missing says that there is no such object.
func (o object) missing() string {
	kind, name := "stream", o.stream
	switch {
	case o.queue != "":
		kind, name = "queue", o.queue
	case o.store != "":
		kind, name = "event store", o.store
	case o.stream == "":
		return publicErrors[engine.CodeNotFound]
	}
	if o.group != "" {
		return fmt.Sprintf("there is no %s %q, or no group %q of it", kind, name, o.group)
	}
	return fmt.Sprintf("there is no %s %q", kind, name)
}

// request is a client's request, a message on /ws or an HTTP body.
type request struct{ wire.Request }

func (r *request) asked() asked {
	return asked{r.Type, r.ID, r.Encoding, object{r.Stream, r.Queue, r.Store, r.Group}}
}

// requestMemory is a pool of requests. One takes 1 KiB.
var requestMemory = sync.Pool{New: func() any { return new(request) }}

// recycle returns the request to the pool. Its strings and slices may still be
// in use.
func (r *request) recycle() {
	*r = request{}
	requestMemory.Put(r)
}

// parseRequest parses one message. With a problem, the request still has its ID
// and type if they could be read, so that it can be answered.
func parseRequest(d *wire.Decoder, message []byte, e wire.Encoding) (*request, *problem) {
	r := requestMemory.Get().(*request)
	err := d.Decode(message, e, &r.Request)
	if err == nil {
		return r, nil
	}
	*r = request{}
	identifyInto(d, message, e, r)
	return r, unreadable(err)
}

// identifyInto reads the type and the ID. JSON is also read after a place where it is broken: the ID may come later.
func identifyInto(d *wire.Decoder, message []byte, e wire.Encoding, r *request) {
	if e == wire.JSON {
		*r = *identify(message)
		return
	}
	d.Identify(message, e, &r.Request)
}

// unreadable returns the problem of a message that could not be read.
func unreadable(err *wire.Error) *problem {
	if err.Unknown {
		return &problem{code: codeUnknownField, text: err.Error(), field: err.Path}
	}
	return &problem{code: codeMalformed, text: err.Error()}
}

// unknown returns why a request has a field that it should not have, or nil. Fields that others may have are those of HTTP.
func (r *request) unknownField(fields wire.Fields, of string) *problem {
	err := r.Unknown(fields)
	if err == nil {
		return nil
	}
	return &problem{code: codeUnknownField, text: fmt.Sprintf("%s: %s has no such field", err.Path, of), field: err.Path}
}

// identify returns a request with only its type and ID. If a field occurs several
// times, the last one counts.
func identify(object []byte) *request {
	r := new(request)
	eachField(object, func(key, value []byte) {
		switch string(key[1 : len(key)-1]) {
		case "type":
			r.Type = ""
			json.Unmarshal(value, &r.Type)
		case "id":
			id := json.RawMessage(bytes.Clone(value))
			checkID(&id)
			r.ID = id
		}
	})
	if !json.Valid(r.ID) || !utf8.Valid(r.ID) {
		r.ID = nil
	}
	return r
}

// ownNames gives the names memory of their own: a subscription keeps them longer than the rest of the message.
func (r *request) ownNames() {
	for _, name := range []*string{&r.Stream, &r.Queue, &r.Group, &r.Subscription, &r.Store} {
		*name = strings.Clone(*name)
	}
}

// ofEvents reports whether a subscribe is one of events.
func (r *request) ofEvents() bool { return r.Stream == "" && r.Has(wire.FieldQuery) }

// condition returns the condition of an append, or nil.
func (r *request) condition() *engine.EventCondition {
	if !r.Conditional {
		return nil
	}
	return &r.Condition
}

// validName reports whether name is a valid name.
func validName(name string) bool {
	return name != "" && len(name) <= maxNameBytes && strings.IndexByte(name, 0) < 0 && utf8.ValidString(name)
}

// usable reports whether a client may use a stream, queue, group or event store of
// that name.
func usable(name string) bool { return validName(name) && !engine.Reserved(name) }

// messages returns the messages that a request stores, many or one, which is then in one.
func (r *request) messages(one *[1]engine.Message) ([]engine.Message, *problem) {
	switch {
	case !r.Has(wire.FieldMessages):
		if err := wire.CheckPayload(r.Given); err != nil {
			return nil, unreadable(err)
		}
		one[0] = r.One
		return one[:], nil
	case len(r.Messages) == 0:
		return nil, malformed("messages", fmt.Sprintf("1 to %d messages", maxBatch))
	case r.Has(wire.FieldPayload) || r.Has(wire.FieldPayloadBase64):
		return nil, malformed("messages", "either messages or a payload, not both")
	case len(r.Messages) > maxBatch:
		return nil, because(codeTooManyMessages)
	}
	return r.Messages, nil
}

// requestID returns the RequestID of the caller's request, or nil. The two fields go
// together.
func (r *request) requestID(c *auth.Caller) (*engine.RequestID, *problem) {
	switch {
	case r.Client == "" && !r.Has(wire.FieldSequence):
		return nil, nil
	case !validName(r.Client):
		return nil, wrong(engine.CodeInvalid, "client", "a name of 1 to 128 bytes beside sequence")
	case !r.Has(wire.FieldSequence) || r.Sequence < 0:
		return nil, wrong(engine.CodeInvalid, "sequence", "a number, 0 or more, beside client")
	}
	return &engine.RequestID{Client: ownName(c, strings.Clone(r.Client), maxClientBytes), Sequence: r.Sequence}, nil
}

// commitPosition returns the position that a request commits.
func (r *request) commitPosition() (int64, *problem) {
	if !r.Has(wire.FieldPosition) || r.Position < 0 {
		return 0, malformed("position", "a whole number, 0 or more")
	}
	if r.Partition < 0 || r.Partition > math.MaxInt32 {
		return 0, malformed("partition", "a whole number, 0 or more")
	}
	return r.Position, nil
}

// start returns where a subscription begins; by default after the last message.
func (r *request) start() (from engine.Start, why *problem) {
	given := 0
	for _, is := range []bool{r.Has(wire.FieldAfter), r.Has(wire.FieldAt), r.From != "", r.Group != ""} {
		if is {
			given++
		}
	}
	switch {
	case given > 1:
		return from, because(codeStart)
	case r.After < 0:
		return from, wrong(codeStart, "after", "a position, 0 or more")
	case r.Has(wire.FieldAfter):
		return engine.Start{After: r.After}, nil
	case r.Has(wire.FieldAt):
		return engine.Start{At: r.At}, nil
	case r.Group != "" && !usable(r.Group):
		return from, unusable("group", r.Group)
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
	case r.Has(wire.FieldDelivery) && !r.Has(wire.FieldDeliveries):
		return []string{r.Delivery}, nil
	case r.Has(wire.FieldDelivery):
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
	if r.Credits < 0 || r.Credits > most {
		return wrong(codeCredits, "credits", between(0, most))
	}
	return nil
}

// settlement is how a request settles deliveries.
type settlement struct {
	kind  string // begin, ack, nack or extend
	nack  engine.Nack
	lease time.Duration
}

// keeps reports whether the client still has the deliveries then.
func (s *settlement) keeps() bool { return s.kind == "begin" || s.kind == "extend" }

// settlement returns the settlement of a request of that kind.
func (r *request) settlement(kind string) (s settlement, why *problem) {
	s.kind = kind
	switch kind {
	case "nack":
		s.nack = engine.Nack{Reason: r.Reason, Dead: r.Dead}
		s.nack.Delay, why = within("delay_ms", r.DelayMS, 0, maxDelay)
	case "extend":
		s.lease, why = within("lease_ms", r.LeaseMS, time.Millisecond, maxDelay)
	}
	switch {
	case len(s.nack.Reason) > maxReason:
		why = wrong(engine.CodeInvalid, "reason", fmt.Sprintf("at most %d bytes", maxReason))
	case s.nack.Dead && s.nack.Delay > 0:
		why = wrong(engine.CodeInvalid, "dead", "no delay_ms beside it")
	}
	return s, why
}

// streamOptions returns the options for creating a stream, nil if the request has
// none.
func (r *request) streamOptions() *engine.StreamOptions {
	if !r.Has(wire.FieldKeyed) && !r.Has(wire.FieldPartitions) {
		return nil
	}
	return &engine.StreamOptions{Keyed: r.Keyed, Partitions: int(r.Partitions)}
}

// queueOptions returns the options for creating a queue, nil if the request has
// none; 0 is the store's default.
func (r *request) queueOptions() (*engine.QueueOptions, *problem) {
	if r.Given&wire.Of(wire.FieldMaxAttempts, wire.FieldRetryMinMS, wire.FieldRetryMaxMS, wire.FieldPriorities, wire.FieldPartitions) == 0 {
		return nil, nil
	}
	low, whyLow := within("retry_min_ms", r.RetryMinMS, 0, maxDelay)
	high, whyHigh := within("retry_max_ms", r.RetryMaxMS, 0, maxDelay)
	attempts, priorities, partitions := r.MaxAttempts, r.Priorities, r.Partitions
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
		MaxAttempts: int(attempts), RetryMin: low, RetryMax: high, Priorities: int(priorities), Partitions: int(partitions),
	}, nil
}

// enqueueOptions returns the options for enqueuing the messages of a caller's request.
func (r *request) enqueueOptions(c *auth.Caller) (opts engine.EnqueueOptions, why *problem) {
	delay, why := within("delay_ms", r.DelayMS, 0, maxDelay)
	switch {
	case why != nil:
		return opts, why
	case r.Priority < 0 || r.Priority >= maxPriorities:
		return opts, wrong(engine.CodeInvalid, "priority", between(0, maxPriorities-1))
	}
	opts = engine.EnqueueOptions{Delay: delay, Priority: int(r.Priority)}
	if !r.Has(wire.FieldUniqueKey) && r.UniqueMS == 0 {
		return opts, nil
	}
	period, why := within("unique_ms", r.UniqueMS, time.Second, maxUnique)
	switch {
	case r.UniqueKey == "":
		return opts, malformed("unique_key", "a string that is not empty")
	case why != nil:
		return opts, why
	case r.Has(wire.FieldMessages):
		return opts, wrong(engine.CodeInvalid, "messages", "one message beside unique_key")
	}
	opts.Unique = &engine.Unique{Key: ownName(c, strings.Clone(r.UniqueKey), maxUniqueKeyBytes), Period: period}
	return opts, nil
}
