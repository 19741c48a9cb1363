package wire

import (
	"math/bits"
	"slices"
)

// Field is a field of a request.
type Field uint8

// The fields of requests. FieldID has to be first and FieldType second.
const (
	FieldID Field = iota
	FieldType
	FieldStream
	FieldQueue
	FieldGroup
	FieldSubscription
	FieldStore
	FieldKey
	FieldHeaders
	FieldPayload
	FieldPayloadBase64
	FieldMessages
	FieldClient
	FieldSequence
	FieldPosition
	FieldTime
	FieldAfter
	FieldAt
	FieldFrom
	FieldCredits
	FieldN
	FieldDelivery
	FieldDeliveries
	FieldDelayMS
	FieldPriority
	FieldUniqueKey
	FieldUniqueMS
	FieldLeaseMS
	FieldReason
	FieldDead
	FieldEvents
	FieldCondition
	FieldQuery
	FieldQueries
	FieldBefore
	FieldLimit
	FieldBackwards
	FieldToken
	FieldRoom
	FieldUser
	FieldText
	FieldOnLag
	FieldPresence
	FieldHistory
	FieldTS
	FieldKeyed
	FieldPartitions
	FieldPriorities
	FieldMaxAttempts
	FieldRetryMinMS
	FieldRetryMaxMS
	FieldShare
	FieldPartition
	FieldKeys
	FieldBegin

	fieldCount
)

// fieldNames are the names on the wire.
var fieldNames = [fieldCount]string{
	FieldID: "id", FieldType: "type",
	FieldStream: "stream", FieldQueue: "queue", FieldGroup: "group", FieldSubscription: "subscription", FieldStore: "store",
	FieldKey: "key", FieldHeaders: "headers", FieldPayload: "payload", FieldPayloadBase64: "payload_base64", FieldMessages: "messages",
	FieldClient: "client", FieldSequence: "sequence", FieldPosition: "position", FieldTime: "time",
	FieldAfter: "after", FieldAt: "at", FieldFrom: "from", FieldCredits: "credits", FieldN: "n",
	FieldDelivery: "delivery", FieldDeliveries: "deliveries", FieldDelayMS: "delay_ms", FieldPriority: "priority",
	FieldUniqueKey: "unique_key", FieldUniqueMS: "unique_ms", FieldLeaseMS: "lease_ms", FieldReason: "reason", FieldDead: "dead",
	FieldEvents: "events", FieldCondition: "condition", FieldQuery: "query", FieldQueries: "queries",
	FieldBefore: "before", FieldLimit: "limit", FieldBackwards: "backwards", FieldToken: "token",
	FieldRoom: "room", FieldUser: "user", FieldText: "text", FieldOnLag: "on_lag", FieldPresence: "presence", FieldHistory: "history", FieldTS: "ts",
	FieldKeyed: "keyed", FieldPartitions: "partitions", FieldPriorities: "priorities",
	FieldMaxAttempts: "max_attempts", FieldRetryMinMS: "retry_min_ms", FieldRetryMaxMS: "retry_max_ms",
	FieldShare: "share", FieldPartition: "partition", FieldKeys: "keys", FieldBegin: "begin",
}

func (f Field) String() string { return fieldNames[f] }

// FieldNames returns the names of all fields of requests, in the order of the fields.
func FieldNames() []string { return slices.Clone(fieldNames[:]) }

// fieldOf has the field of each name.
var fieldOf = func() map[string]Field {
	fields := make(map[string]Field, fieldCount)
	for f, name := range fieldNames {
		fields[name] = Field(f)
	}
	return fields
}()

// Fields is a set of fields.
type Fields uint64

// Compiles only if a set has a bit for each field.
const _ = uint(64 - fieldCount)

// Of returns the set of these fields.
func Of(fields ...Field) (s Fields) {
	for _, f := range fields {
		s |= 1 << f
	}
	return s
}

// Has reports whether the set has a field.
func (s Fields) Has(f Field) bool { return s&(1<<f) != 0 }

// first returns the first field of a set that is not empty.
func (s Fields) first() Field { return Field(bits.TrailingZeros64(uint64(s))) }
