package spec

import "github.com/tidewire/tidewire/internal/wire"

// Object is what several messages have.
type Object struct {
	Name   string
	Schema *Schema
}

// stored are the fields of a message that is stored.
var stored = Fields{
	required("position", atLeast(0, "where it is. Positions rise, with gaps")),
	optional("key", text("the key; missing if it has none")),
	optional("headers", anyObject("the headers; missing if it has none")),
	required("time", moment("when it was stored")),
	optional("payload", text("the payload, if it is UTF-8. In CBOR a byte string, whatever it is")),
	optional("payload_base64", base64("the payload, if it is not UTF-8; never in CBOR")),
}

// eventFields are the fields of an event that is stored.
var eventFields = Fields{
	required("position", atLeast(1, "where it is. Positions rise, with gaps")),
	required("time", moment("when it was stored")),
	required("type", text("its type")),
	required("tags", listOf(text("a tag"), 0, 0, "its tags")),
	optional("id", text("its id; missing if it has none")),
	optional("data", &Schema{Description: "any JSON; missing if it has none. In CBOR also a byte string"}),
	optional("data_base64", base64("data that was given so; never in CBOR")),
}

// problem are the fields of an error, besides the type and the id.
var problem = Fields{
	required("code", text("what is wrong, for programs: a code of the table of errors. It does not change")),
	required("message", text("what is wrong, for people. It may change")),
	required("retryable", boolean("the same request can be sent again later, and has no effect twice")),
	optional("retry_after_ms", atLeast(1, "wait this many milliseconds before that")),
	optional("position", atLeast(0, "of conflict: the first event that matches the condition. Of message_too_large: the message; continue after it")),
	optional("size", atLeast(1, "of message_too_large: the bytes of its payload")),
	optional("event_type", text("of conflict: the type of that event")),
	optional("count", atLeast(1, "of lease_lost and not_settled: how many deliveries were settled")),
	optional("oldest", atLeast(0, "of too_old: the first position that may still be kept. Continue after oldest - 1")),
	optional("last", atLeast(0, "of history_lost: the last position before the loss. Continue after it")),
	optional("field", text("the path of the field that is wrong, such as messages[2].paylod; of unknown_field, and of invalid for events")),
	optional("lost", listOf(text("a delivery"), 1, 0, "of lease_lost and not_settled: deliveries that another consumer has, or will get")),
	optional("failed", listOf(text("a delivery"), 1, 0, "of not_settled: deliveries whose outcome is not known. Send the request again for these")),
	optional("verb", text("of forbidden: the right that is missing")),
	optional("kind", text("of forbidden: of which kind of object")),
	optional("name", text("of forbidden: of which object; missing if there is only one")),
}

// Objects are the schemas that others refer to.
func Objects() []Object {
	return []Object{
		{"newMessage", newMessage()},
		{"storedMessage", objectOf(false, stored...)},
		{"newEvent", objectOf(true,
			required("type", textUpTo(1, 255, "its type: 1 to 255 bytes")),
			optional("tags", listOf(textUpTo(1, 1024, "a tag: 1 to 1,024 bytes"), 0, 100, "at most 100 tags")),
			optional("id", textUpTo(0, 255, "an event with the same id is stored once: 1 to 255 bytes")),
			optional("data", &Schema{Description: "any JSON. In CBOR a byte string is stored as bytes"}),
			optional("data_base64", base64("the data in place of data: any bytes")),
			optional("position", integer("not used: an event that was read can be appended as it is")),
			optional("time", &Schema{Description: "not used: an event that was read can be appended as it is"}))},
		{"event", objectOf(false, eventFields...)},
		{"queryItem", objectOf(true,
			optional("types", listOf(text("a type"), 0, 0, "the event has one of these types; without it any")),
			optional("tags", listOf(text("a tag"), 0, 0, "the event has all of these tags")))},
		{"query", objectOf(true, optional("items", listOf(ref("queryItem", ""), 0, maxList,
			"an event matches if it matches one of the items. Without items every event matches. Tags count once for each type of their item: at most 1 MiB in all")))},
		{"condition", objectOf(true,
			required("query", ref("query", "which events")),
			optional("after", atLeast(0, "only events after this position count").byDefault(0)))},
		{"problem", objectOf(false, problem...)},
		{"limits", objectOf(false,
			required("message_bytes", atLeast(1, "the size of a message")),
			required("depth", atLeast(1, "how deep JSON may be nested, with the braces of the message itself")),
			required("values", atLeast(1, "how many values a message may hold")),
			required("messages", atLeast(1, "messages of one publish or enqueue")),
			required("events", atLeast(1, "events of one append")),
			required("deliveries", atLeast(1, "deliveries of one ack, nack or extend")),
			required("subscriptions", atLeast(1, "subscriptions and consumers of a connection")),
			required("credits", atLeast(1, "credits of a subscription")),
			required("queue_credits", atLeast(1, "credits of a consumer")),
			required("rooms", atLeast(1, "rooms of a connection")),
			required("repeat_ms", atLeast(1, "for how long a request can be repeated, in milliseconds")))},
		{"server", objectOf(false, helloFields...)},
		{"storedChat", storedChat()},
	}
}

// helloFields are what a server says about itself.
var helloFields = Fields{
	optional("version", text("the version of the server; missing if it has none")),
	required("protocol", oneOfTexts("the subprotocol of the connection", "tidewire.v1", "tidewire.v1.cbor")),
	required("now_ms", atLeast(0, "the server's clock, in milliseconds since 1970")),
	required("authenticated", boolean("the handshake had a good token, or none is needed")),
	required("features", listOf(oneOfTexts("a feature", "rooms", "stored_rooms", "streams", "queues", "events"), 1, 0, "what the server can do")),
	required("limits", ref("limits", "the limits of one connection, and of one message")),
}

// newMessage is a message of a list of them.
func newMessage() *Schema {
	return objectOf(true, fieldsOf(wire.Of(wire.FieldKey, wire.FieldHeaders, wire.FieldPayload, wire.FieldPayloadBase64, wire.FieldPosition, wire.FieldTime), nil)...).
		withExactly("payload", "payload_base64")
}

// storedChat is a chat of a stored room, as members get it.
func storedChat() *Schema {
	return objectOf(false, append(chatFields(),
		optional("time", moment("when the server took it, by its own clock; missing only if another program has stored it")),
		required("position", atLeast(1, "where it is. Positions rise; those between belong to other rooms")))...).opened()
}

// withExactly returns the schema with exactly one of these fields. It says what there must not be, none or two of them: with oneOf, which is
// shorter, generators of clients make a body without fields.
func (s *Schema) withExactly(names ...string) *Schema {
	var each, pairs []*Schema
	for i, name := range names {
		each = append(each, &Schema{Required: []string{name}})
		for _, other := range names[:i] {
			pairs = append(pairs, &Schema{Required: []string{other, name}})
		}
	}
	s.Exactly = names
	s.Not = &Schema{AnyOf: append([]*Schema{{Not: &Schema{AnyOf: each}}}, pairs...)}
	return s
}
