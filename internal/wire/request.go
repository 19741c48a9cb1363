package wire

import (
	"time"

	"github.com/tidewire/tidewire/internal/engine"
)

// Request is a message of a client on /ws, or the body of an HTTP request. A field that is null counts as missing.
//
// Its texts are parts of the message that it was read from.
type Request struct {
	Type string
	// ID is as the client has encoded it: nil without one.
	ID       []byte
	Encoding Encoding

	// Given are the fields that are there.
	Given Fields
	// unknown is the first field that does not exist, in no request.
	unknown *Error

	Stream, Queue, Group, Subscription, Store string

	// One is the message to be stored, of a request without a list of them.
	One      engine.Message
	Messages []engine.Message
	Client   string
	Sequence int64

	Position, After, Before int64
	At                      time.Time
	From                    string

	Credits, N int64

	// Share says that the members of the group share the partitions, of which Partition is one.
	Share     bool
	Partition int64
	Keys      []string

	Delivery   string
	Deliveries []string
	DelayMS    int64
	Priority   int64
	UniqueKey  string
	UniqueMS   int64
	LeaseMS    int64
	Reason     string
	Dead       bool
	// Begin says that the client of a consume says which deliveries it begins.
	Begin bool

	Events    []engine.Event
	Condition engine.EventCondition
	// Conditional: the condition has a query.
	Conditional bool
	Query       engine.EventQuery
	Queries     []engine.EventQuery
	Limit       int64
	Backwards   bool

	Token string

	// Options of streams and queues; HTTP only.
	Keyed                               bool
	Partitions, Priorities              int64
	MaxAttempts, RetryMinMS, RetryMaxMS int64
}

// Has reports whether the request has a field.
func (r *Request) Has(f Field) bool { return r.Given.Has(f) }

// Decoder decodes requests of both encodings. It is not safe for concurrent use.
type Decoder struct {
	Limits Limits
	json   jsonReader
	cbor   cborReader
}

func (d *Decoder) reader(message []byte, e Encoding) reader {
	if e == CBOR {
		d.cbor.reset(message, d.Limits)
		return &d.cbor
	}
	d.json.reset(message, d.Limits)
	return &d.json
}

// Decode reads a message into an empty request. The message must not change as long as the request, or anything of
// it, is used. With an error the request has what was read before.
func (d *Decoder) Decode(message []byte, e Encoding, r *Request) *Error {
	r.Encoding = e
	in := d.reader(message, e)
	if in.object() {
		r.fields(in)
		in.end()
	}
	r.unknown = in.ignored()
	err := in.failed()
	if err != nil && !err.Broken && e == JSON {
		return d.json.orBroken(err)
	}
	return err
}

// Identify reads the type and the ID of a message as far as it can: of one that is broken, those before that place.
func (d *Decoder) Identify(message []byte, e Encoding, r *Request) {
	*r = Request{Encoding: e}
	in := d.reader(message, e)
	if !in.object() {
		return
	}
	for {
		name, ok := in.name()
		if !ok {
			return
		}
		switch string(name) {
		case "type":
			if text, ok := in.text(); ok {
				r.setType(text)
			}
		case "id":
			r.ID = readID(in)
		default:
			in.skip()
		}
	}
}

// maxIDBytes is how many bytes an ID may have, as it is encoded.
const maxIDBytes = 128

// readID reads the ID of a request. A bad one is none.
func readID(in reader) []byte {
	id, ok := in.scalar()
	if ok && len(id) <= maxIDBytes {
		return id
	}
	if e := in.failed(); e == nil || !e.Broken {
		const want = "want a string or number of at most 128 bytes"
		in.wants("")
		in.failed().Text = want
	}
	return nil
}

func (r *Request) setType(text []byte) {
	name, known := names[string(text)]
	if !known {
		name = textOf(text)
	}
	r.Type = name
}

// fields reads the fields of the message.
func (r *Request) fields(in reader) {
	for {
		name, ok := in.name()
		if !ok {
			return
		}
		f, known := fieldOf[string(name)]
		switch {
		case !known:
			in.ignore(name)
			continue
		case in.null():
			continue
		case r.Given.Has(f):
			in.wants("this field once")
		default:
			r.Given |= 1 << f
			clean := in.ignored() == nil
			r.field(in, f)
			nameUnknown(in, clean, f.String())
		}
		if e := in.failed(); e != nil {
			e.within(f.String())
			return
		}
	}
}

// nameUnknown adds the name of the value that was read to the path of an unknown field that was found in it: clean says that there was none
// before.
func nameUnknown(in reader, clean bool, name string) {
	if e := in.ignored(); clean && e != nil {
		e.within(name)
	}
}

// Unknown returns the first field that a request with these fields, besides type and id, does not have; or nil.
func (r *Request) Unknown(fields Fields) *Error {
	if fields == everything {
		return nil
	}
	if extra := r.Given &^ (fields | Of(FieldID, FieldType)); extra != 0 {
		return &Error{Path: extra.first().String(), Text: "there is no such field here"}
	}
	return r.unknown
}

// field reads the value of a field.
func (r *Request) field(in reader, f Field) {
	if to := r.texts(f); to != nil {
		text, _ := in.text()
		*to = textOf(text)
		return
	}
	if to := r.integers(f); to != nil {
		*to, _ = in.integer()
		return
	}
	switch f {
	case FieldID:
		r.ID = readID(in)
	case FieldType:
		text, _ := in.text()
		r.setType(text)
	case FieldHeaders, FieldPayload, FieldPayloadBase64, FieldKey:
		readMessageField(in, &r.One, f)
	case FieldMessages:
		r.Messages = readMessages(in)
	case FieldAt:
		r.At = readTime(in)
	case FieldDeliveries:
		r.Deliveries = readTexts(in)
	case FieldEvents:
		r.Events = readEvents(in)
	case FieldCondition:
		r.readCondition(in)
	case FieldQuery:
		readQuery(in, &r.Query)
	case FieldQueries:
		r.Queries = readList(in, func(q *engine.EventQuery) { readQuery(in, q) })
	case FieldBackwards:
		r.Backwards, _ = in.boolean()
	case FieldKeyed:
		r.Keyed, _ = in.boolean()
	case FieldShare:
		r.Share, _ = in.boolean()
	case FieldBegin:
		r.Begin, _ = in.boolean()
	case FieldDead:
		r.Dead, _ = in.boolean()
	case FieldKeys:
		r.Keys = readTexts(in)
	default: // of rooms, which read it themselves; or of a message that was read before
		in.skip()
	}
}

// texts returns where a field that is a text goes, nil for another field.
func (r *Request) texts(f Field) *string {
	switch f {
	case FieldStream:
		return &r.Stream
	case FieldQueue:
		return &r.Queue
	case FieldGroup:
		return &r.Group
	case FieldSubscription:
		return &r.Subscription
	case FieldStore:
		return &r.Store
	case FieldClient:
		return &r.Client
	case FieldFrom:
		return &r.From
	case FieldDelivery:
		return &r.Delivery
	case FieldUniqueKey:
		return &r.UniqueKey
	case FieldReason:
		return &r.Reason
	case FieldToken:
		return &r.Token
	}
	return nil
}

// integers returns where a field that is a number goes, nil for another field.
func (r *Request) integers(f Field) *int64 {
	switch f {
	case FieldSequence:
		return &r.Sequence
	case FieldPosition:
		return &r.Position
	case FieldAfter:
		return &r.After
	case FieldBefore:
		return &r.Before
	case FieldCredits:
		return &r.Credits
	case FieldN:
		return &r.N
	case FieldDelayMS:
		return &r.DelayMS
	case FieldPriority:
		return &r.Priority
	case FieldUniqueMS:
		return &r.UniqueMS
	case FieldLeaseMS:
		return &r.LeaseMS
	case FieldLimit:
		return &r.Limit
	case FieldPartition:
		return &r.Partition
	case FieldPartitions:
		return &r.Partitions
	case FieldPriorities:
		return &r.Priorities
	case FieldMaxAttempts:
		return &r.MaxAttempts
	case FieldRetryMinMS:
		return &r.RetryMinMS
	case FieldRetryMaxMS:
		return &r.RetryMaxMS
	}
	return nil
}

// readTime reads a time as RFC 3339 has it.
func readTime(in reader) (at time.Time) {
	const want = "a time as RFC 3339 writes it, such as 2027-01-31T12:00:00Z"
	text, ok := in.text()
	if !ok {
		in.failed().Text = "want " + want
		return at
	}
	at, err := time.Parse(time.RFC3339, textOf(text))
	if err != nil {
		in.wants(want)
	}
	return at
}

// readTexts reads an array of texts.
func readTexts(in reader) []string {
	return readList(in, func(to *string) {
		text, _ := in.text()
		*to = textOf(text)
	})
}

// readList reads an array, whose elements read reads. It is not nil.
func readList[T any](in reader, read func(*T)) []T {
	list := make([]T, 0, 4) // most lists are short
	if !in.array() {
		return nil
	}
	for in.element() {
		var one T
		clean := in.ignored() == nil
		read(&one)
		if e := in.ignored(); clean && e != nil {
			e.withinNth(len(list))
		}
		if e := in.failed(); e != nil {
			e.withinNth(len(list))
			return nil
		}
		list = append(list, one)
	}
	return list
}
