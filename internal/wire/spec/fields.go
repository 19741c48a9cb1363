package spec

import (
	"fmt"

	"github.com/tidewire/tidewire/internal/wire"
)

// Limits of fields. The tests of internal/gateway compare them with what a server says in its hello, and accepts.
const (
	nameBytes   = 128
	maxList     = 1000
	maxCredits  = 1 << 30
	maxPrefetch = 10_000
	dayMS       = 24 * 60 * 60 * 1000
	maxAttempts = 1 << 20
)

// requestFields describes the fields of requests, of /ws and of /v1. What differs from request to request is in Request.Fields.
var requestFields = map[wire.Field]*Schema{
	wire.FieldID: {Type: []string{"string", "number"}, Description: "names the request: its one answer has the same id. A string or number of at most 128 bytes as it is encoded. " +
		"Without an id there is no answer"},
	wire.FieldType: text("what the message is"),

	wire.FieldStream:       name("the stream"),
	wire.FieldQueue:        name("the queue"),
	wire.FieldGroup:        name("a named reader of the stream"),
	wire.FieldSubscription: textUpTo(0, nameBytes, "the name of the subscription on this connection; by default that of the stream"),
	wire.FieldStore:        textUpTo(0, nameBytes, "the event store; without it the default one"),

	wire.FieldKey:           textUpTo(0, 1024, "the key of the message: at most 1,024 bytes without NUL"),
	wire.FieldHeaders:       anyObject("headers of the message, as PostgreSQL stores them: at most 64 KiB, nested at most 64 deep, no NUL, numbers up to 10^308"),
	wire.FieldPayload:       text("the payload: its UTF-8 bytes are stored"),
	wire.FieldPayloadBase64: base64("the payload in place of payload: any bytes"),
	wire.FieldMessages:      listOf(ref("newMessage", ""), 1, maxList, "messages that are stored all or none, at consecutive positions"),

	wire.FieldClient: textUpTo(0, nameBytes, "a name that no other client has, beside sequence: then the request can be repeated"),
	wire.FieldSequence: atLeast(0, "a number that is higher for each new request of the client. A request with the same client and sequence is stored once. "+
		"It is remembered for at least 10 minutes"),
	wire.FieldPosition: {Description: "not used: a message that was read can be sent as it is"},
	wire.FieldTime:     {Description: "not used: a message that was read can be sent as it is"},

	wire.FieldAfter:     atLeast(0, "start after this position; 0 is the beginning"),
	wire.FieldAt:        moment("start at this time"),
	wire.FieldFrom:      oneOfTexts("start: at the oldest message that is kept; end: with the next one", "start", "end"),
	wire.FieldCredits:   between(0, maxCredits, "how many messages the server may send until it gets more credit; without it there is no limit"),
	wire.FieldShare:     boolean("true: the members of the group share the partitions of the stream; with group"),
	wire.FieldPartition: atLeast(0, "the partition of the messages"),
	wire.FieldKeys:      listOf(textUpTo(0, 1024, "a key"), 1, 100, "only messages with one of these keys"),
	wire.FieldN:         atLeast(1, "how many more messages the server may send"),

	wire.FieldDelivery:   text("the delivery, as the server has named it"),
	wire.FieldDeliveries: listOf(text("a delivery"), 1, maxList, "several deliveries, in place of delivery"),
	wire.FieldDelayMS:    between(0, dayMS, "deliver after this many milliseconds, with the header tidewire_due"),
	wire.FieldPriority:   between(0, 9, "the priority, in a queue that has priorities; 0 is the lowest. One that the queue does not have is rejected"),
	wire.FieldUniqueKey:  textUpTo(1, 1024, "stores the message once in a period of unique_ms, which begins with the first one, and once in each priority or partition. Else the answer has the position of the one that is stored, and duplicate"),
	wire.FieldUniqueMS:   between(1000, 600_000, "the period of unique_key in milliseconds"),
	wire.FieldLeaseMS:    between(1, dayMS, "the lease ends this many milliseconds from now"),
	wire.FieldReason:     textUpTo(0, 1024, "why it failed: at most 1,024 bytes. A dead letter keeps it"),
	wire.FieldBegin:      boolean("true: the client sends begin before it begins the work of a delivery. Until then the delivery is no attempt").byDefault(false),
	wire.FieldDead:       boolean("true: the messages become dead letters at once; not with delay_ms").byDefault(false),

	wire.FieldEvents:    listOf(ref("newEvent", ""), 1, maxList, "events that are stored all or none"),
	wire.FieldCondition: ref("condition", "nothing is stored if an event after the position matches the query"),
	wire.FieldQuery:     ref("query", "which events; without it all"),
	wire.FieldQueries:   listOf(ref("query", ""), 1, 100, "the queries whose events are counted"),
	wire.FieldBefore:    atLeast(0, "only events before this position; 0 is no limit"),
	wire.FieldLimit:     between(1, maxList, "how many at most; large ones make a page shorter").byDefault(100),
	wire.FieldBackwards: boolean("the newest first").byDefault(false),

	wire.FieldToken: text("a token, or an API key"),

	wire.FieldRoom:     textUpTo(0, nameBytes, "the room").byDefault("public"),
	wire.FieldUser:     textUpTo(0, nameBytes, "the name of the sender. In closed mode: the sub of the token, or nothing"),
	wire.FieldText:     text("what is said"),
	wire.FieldOnLag:    oneOfTexts("what happens to a member that reads too slowly: it misses messages (gap), or its connection is closed (disconnect). The default is gap, and disconnect in a stored room", "gap", "disconnect", ""),
	wire.FieldPresence: boolean("send who is in the room, and then each change").byDefault(false),
	wire.FieldHistory:  atLeast(0, "send the last chats of a stored room first: at most 1,000"),
	wire.FieldTS:       {Description: "any JSON; a pong repeats it"},

	wire.FieldKeyed:       boolean("the stream can be read by key").byDefault(false),
	wire.FieldPartitions:  atLeast(0, "how many partitions: up to 64, or --max-partitions for a stream; 0 is none. A queue with partitions keeps the order of each key"),
	wire.FieldPriorities:  between(0, 10, "how many priorities, from 2 on; 0 is none. Not beside partitions"),
	wire.FieldMaxAttempts: between(0, maxAttempts, "after so many attempts a message is a dead letter").byDefault(10),
	wire.FieldRetryMinMS:  between(0, dayMS, "how long a message waits at most after the first nack, in milliseconds, and at least half of it; doubled with each further one, up to retry_max_ms").byDefault(1000),
	wire.FieldRetryMaxMS:  between(0, dayMS, "how long it waits at most, in milliseconds; at least retry_min_ms").byDefault(300_000),
}

func name(description string) *Schema {
	return textUpTo(1, nameBytes, description+": 1 to 128 bytes without NUL. Names that begin with tidewire. are reserved")
}

func base64(description string) *Schema {
	return &Schema{Type: "string", Encoding: "base64", Description: description}
}

// fieldOf describes a field of a request. It panics if there is no description, so that no field is without.
func fieldOf(f wire.Field) *Schema {
	s := requestFields[f]
	if s == nil {
		panic(fmt.Sprintf("internal/wire/spec/fields.go: describe the field %q in requestFields", f))
	}
	return s
}

// fieldsOf describes a set of fields, in the order of wire.Field. changed replaces some of them.
func fieldsOf(set wire.Fields, changed Fields) (all Fields) {
	for f := wire.FieldType + 1; set>>f != 0; f++ {
		if !set.Has(f) {
			continue
		}
		one := optional(f.String(), fieldOf(f))
		for _, c := range changed {
			if c.Name == one.Name {
				one = c
			}
		}
		all = append(all, one)
	}
	return all
}
