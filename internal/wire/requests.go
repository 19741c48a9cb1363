package wire

import "slices"

// message are the fields of a message to be stored. Position and time are those of a message that was read before: they
// are not used.
var message = Of(FieldKey, FieldHeaders, FieldPayload, FieldPayloadBase64, FieldMessages, FieldPosition, FieldTime)

// repeatable are the fields that name a request, so that it can be repeated.
var repeatable = Of(FieldClient, FieldSequence)

// Requests are the types of messages that clients send on /ws, with their fields besides type and id.
var Requests = map[string]Fields{
	"publish":     Of(FieldStream) | message | repeatable,
	"subscribe":   Of(FieldStream, FieldSubscription, FieldCredits, FieldAfter, FieldAt, FieldFrom, FieldGroup, FieldQuery, FieldStore, FieldShare, FieldKeys, FieldHeaders),
	"unsubscribe": Of(FieldSubscription, FieldStream),
	"credit":      Of(FieldSubscription, FieldQueue, FieldStream, FieldN),
	"commit":      Of(FieldStream, FieldGroup, FieldPosition, FieldPartition),
	"enqueue":     Of(FieldQueue, FieldDelayMS, FieldPriority, FieldUniqueKey, FieldUniqueMS) | message | repeatable,
	"consume":     Of(FieldQueue, FieldCredits, FieldBegin),
	"cancel":      Of(FieldQueue),
	"begin":       Of(FieldQueue, FieldDelivery, FieldDeliveries),
	"ack":         Of(FieldQueue, FieldDelivery, FieldDeliveries),
	"nack":        Of(FieldQueue, FieldDelivery, FieldDeliveries, FieldDelayMS, FieldReason, FieldDead),
	"extend":      Of(FieldQueue, FieldDelivery, FieldDeliveries, FieldLeaseMS),
	"append":      Of(FieldStore, FieldEvents, FieldCondition) | repeatable,
	"query":       Of(FieldStore, FieldQuery, FieldAfter, FieldBefore, FieldLimit, FieldBackwards),
	"project":     Of(FieldStore, FieldQueries),
	"auth":        Of(FieldToken),

	// Rooms have a reader of their own, because others get a chat as it was sent.
	"join":  everything,
	"leave": everything,
	"chat":  everything,
	"ping":  everything,
	"pong":  everything,
}

// everything is for requests whose fields are not checked here.
const everything = ^Fields(0)

// names are the types, so that a type that was read is one of these strings.
var names = func() map[string]string {
	all := make(map[string]string, len(Requests))
	for name := range Requests {
		all[name] = name
	}
	return all
}()

// Types returns the types of Requests, sorted.
func Types() []string {
	all := make([]string, 0, len(Requests))
	for name := range Requests {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// StreamOptions and QueueOptions are the fields of requests that create a stream or queue.
var (
	StreamOptions = Of(FieldKeyed, FieldPartitions)
	QueueOptions  = Of(FieldPartitions, FieldPriorities, FieldMaxAttempts, FieldRetryMinMS, FieldRetryMaxMS)
)
