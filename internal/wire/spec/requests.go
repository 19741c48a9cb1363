package spec

import "github.com/tidewire/tidewire/internal/wire"

// Request is a message of a client on /ws.
type Request struct {
	Type    string
	Summary string
	// Fields are those that are described in another way than in fields.go, or that it needs.
	Fields Fields
	// Either are fields of which it has exactly one.
	Either []string
	// Answer are the fields of its ok, besides type and id.
	Answer Fields
	// Starts are the types of Pushes that it starts.
	Starts []string
	// Right is what a caller needs in closed mode, "" if nothing.
	Right string
	// Rooms: it is a message of rooms, which /ws/chat takes too. It may have any other fields.
	Rooms bool
}

var (
	okPosition  = required("position", atLeast(0, "where it is stored; of several the first"))
	okPlace     = required("position", atLeast(0, "where it is stored; of several the first. In a queue with priorities or partitions, the position of each further one is higher by the number of these"))
	okCount     = optional("count", atLeast(1, "how many messages were stored; missing for a single one"))
	okPartition = optional("partition", atLeast(0, "the partition to which they went, if there are some"))
	okDuplicate = optional("duplicate", boolean("true: it is a repetition, and the rest is the answer to the first one"))
	okSettled   = required("count", atLeast(1, "how many deliveries were settled or extended"))
	okBegun     = required("count", atLeast(1, "how many deliveries have begun"))

	storedPosition = optional("position", atLeast(0, "of a stored room: where the chat is stored"))

	needStream = required("stream", fieldOf(wire.FieldStream))
	needQueue  = required("queue", fieldOf(wire.FieldQueue))
)

// chatFields are those of a chat that the server looks at.
func chatFields() Fields {
	return Fields{
		required("type", &Schema{Type: "string", Const: "chat", Description: fieldOf(wire.FieldType).Description}),
		optional("room", fieldOf(wire.FieldRoom)),
		optional("user", fieldOf(wire.FieldUser)),
		required("text", fieldOf(wire.FieldText)),
	}
}

// Requests are all messages of clients, in the order in which a reader wants them.
func Requests() []Request {
	all := append(streamRequests(), queueRequests()...)
	all = append(all, eventRequests()...)
	return append(all, roomRequests()...)
}

func streamRequests() []Request {
	return []Request{
		{Type: "auth", Summary: "Sends a token, as the first message or to renew it before it ends. In open mode it changes nothing.",
			Fields: Fields{required("token", fieldOf(wire.FieldToken))},
			Answer: Fields{
				optional("user", text("who the caller is")), optional("role", text("its role")),
				optional("expires", atLeast(0, "until when the token is good, in seconds since 1970, with the leeway; missing if it has no end")),
				optional("now", atLeast(0, "the server's clock, in seconds since 1970")),
				optional("hello", ref("server", "what the server is; only with a subprotocol")),
			}},
		{Type: "publish", Summary: "Stores messages in a stream. The answer comes after the commit.", Right: "publish stream:NAME",
			Fields: Fields{needStream}, Either: []string{"payload", "payload_base64", "messages"},
			Answer: Fields{okPosition, okCount, okPartition, okDuplicate}},
		{Type: "subscribe", Summary: "Sends the messages of a stream, those that are stored and then those to come; or, with query and without stream, events. " +
			"Give at most one of after, at, from and group. Without them a subscription of a stream starts at its end, and one of events at the beginning.",
			Right: "read stream:NAME, and with group commit stream:NAME; or query events:STORE",
			Fields: Fields{
				optional("stream", fieldOf(wire.FieldStream)),
				optional("group", name("start after the committed offset of this group; at the oldest message, if it has committed nothing. If it does not exist, this creates it")),
				optional("subscription", textUpTo(0, nameBytes, "the name of the subscription on this connection; by default that of the stream. Events need one")),
				optional("from", oneOfTexts("start: at the oldest message that is kept; end: with the next one", "start", "end", "")),
				optional("headers", anyObject("only messages that have all of these 1 to 10 headers, with these texts as values")),
				optional("query", ref("query", "which events to send, in place of stream")),
			},
			Answer: Fields{optional("position", atLeast(0, "the position after which it starts; missing with share: see assigned"))},
			Starts: []string{"message", "position", "assigned", "revoked", "parked", "event", "error"}},
		{Type: "unsubscribe", Summary: "Ends a subscription. After the answer nothing more of it comes.",
			Fields: Fields{
				optional("subscription", textUpTo(0, nameBytes, "the name of the subscription")),
				optional("stream", textUpTo(0, nameBytes, "in place of subscription: the stream, if the subscription has its name"))}},
		{Type: "credit", Summary: "Allows a subscription to send more messages, or changes how many deliveries a consumer may have that are not settled.",
			Either: []string{"subscription", "queue"},
			Fields: Fields{
				required("n", integer("how many more: 1 or more for a subscription; for a consumer also negative, down to 0 credits")),
				optional("subscription", textUpTo(0, nameBytes, "the name of the subscription")),
				optional("stream", textUpTo(0, nameBytes, "not used"))}},
		{Type: "commit", Summary: "Moves the offset of a group forward, never back. If the group does not exist, this creates it. The answer comes after the commit. Without an id it costs less, and may be lost.",
			Right: "commit stream:NAME",
			Fields: Fields{needStream, required("group", fieldOf(wire.FieldGroup)),
				required("position", atLeast(0, "the position up to which the group has processed the stream")),
				optional("partition", atLeast(0, "of a member of a group that shares partitions, which has to give it: the partition of the position"))},
			Answer: Fields{required("position", atLeast(0, "the offset, which may be higher")), optional("partition", atLeast(0, "as in the request"))}},
	}
}

func queueRequests() []Request {
	return []Request{
		{Type: "enqueue", Summary: "Stores messages in a queue. The answer comes after the commit.", Right: "enqueue queue:NAME",
			Fields: Fields{needQueue, optional("unique_ms", between(0, 600_000, fieldOf(wire.FieldUniqueMS).Description+": from 1,000 on, beside unique_key"))},
			Either: []string{"payload", "payload_base64", "messages"},
			Answer: Fields{okPlace, okCount, okDuplicate}},
		{Type: "consume", Summary: "Sends deliveries of a queue, as many as there are credits.", Right: "consume queue:NAME",
			Fields: Fields{needQueue, optional("credits", between(0, maxPrefetch, "how many deliveries may be with the client that are not settled").byDefault(100))},
			Starts: []string{"delivery", "error"}},
		{Type: "begin", Summary: "The work begins: the deliveries are attempts from now on, as every delivery is of a consumer without begin. ack and nack imply it, extend does not. Usually sent without an id, together with other messages.",
			Right: "consume queue:NAME", Fields: Fields{needQueue}, Either: []string{"delivery", "deliveries"}, Answer: Fields{okBegun}},
		{Type: "ack", Summary: "The work is done: the messages leave the queue. The answer comes after the commit. Without an id it costs less, and may be lost.", Right: "consume queue:NAME",
			Fields: Fields{needQueue}, Either: []string{"delivery", "deliveries"}, Answer: Fields{okSettled}},
		{Type: "nack", Summary: "The work failed: the messages are delivered again after a delay, or become dead letters.", Right: "consume queue:NAME",
			Fields: Fields{needQueue, optional("delay_ms", between(0, dayMS, "how long they wait, in milliseconds. Without it, or with 0, half to all of the queue's retry_min_ms, doubled with each attempt, up to retry_max_ms"))},
			Either: []string{"delivery", "deliveries"}, Answer: Fields{okSettled}},
		{Type: "extend", Summary: "The work takes longer: the leases end later.", Right: "consume queue:NAME",
			Fields: Fields{needQueue, required("lease_ms", fieldOf(wire.FieldLeaseMS))}, Either: []string{"delivery", "deliveries"}, Answer: Fields{okSettled}},
		{Type: "cancel", Summary: "Ends a consumer. Deliveries that are not settled go back to the queue, and then comes the answer.",
			Fields: Fields{needQueue}},
	}
}

func eventRequests() []Request {
	return []Request{
		{Type: "append", Summary: "Stores events, all or none, and with a condition only if that holds at their positions. The answer comes after the commit.",
			Right:  "append events:STORE, and with a condition query events:STORE",
			Fields: Fields{required("events", fieldOf(wire.FieldEvents))},
			Answer: Fields{required("positions", listOf(atLeast(1, "a position"), 1, maxList, "where the events are, in their order")), okDuplicate}},
		{Type: "query", Summary: "Reads a page of events, all as of one moment.", Right: "query events:STORE",
			Fields: Fields{optional("after", atLeast(0, "only events after this position; 0 is the beginning"))},
			Answer: pageOfEvents()},
		{Type: "project", Summary: "Counts the events that match each query.", Right: "query events:STORE",
			Fields: Fields{required("queries", fieldOf(wire.FieldQueries))},
			Answer: projection()},
	}
}

func pageOfEvents() Fields {
	return Fields{
		required("events", listOf(ref("event", ""), 0, maxList, "the events; none after the last one")),
		required("next", atLeast(0, "the after, or backwards the before, to continue with")),
	}
}

func projection() Fields {
	return Fields{
		required("counts", listOf(atLeast(0, "a number"), 1, 100, "how many events match each query")),
		required("condition", ref("condition", "as long as it holds, the counts do")),
	}
}

func roomRequests() []Request {
	return []Request{
		{Type: "join", Rooms: true, Summary: "Makes the connection a member of a room. A second join changes nothing, except that it may switch presence on.",
			Right: "join room:NAME, with after or history history room:NAME, with presence presence room:NAME",
			Fields: Fields{
				optional("room", fieldOf(wire.FieldRoom)), optional("user", fieldOf(wire.FieldUser)), optional("on_lag", fieldOf(wire.FieldOnLag)),
				optional("presence", fieldOf(wire.FieldPresence)), optional("history", fieldOf(wire.FieldHistory)),
				optional("batch", boolean("true: send several messages of the room as one array, on a connection with compression")),
				optional("after", atLeast(0, "send the chats of a stored room after this position first"))},
			Answer: Fields{
				optional("batch", boolean("if the join had it: whether batches come")),
				optional("position", atLeast(0, "of a stored room: up to here the member has everything")),
				optional("history", atLeast(0, "of a stored room: how many chats were sent before this answer"))},
			Starts: []string{"chat", "presence", "gap", "history_lost", "error"}},
		{Type: "chat", Rooms: true, Summary: "Sends a chat to all other members of a room, as the bytes that were sent, without the id. Without room it goes to public, and makes its sender a member.",
			Right: "chat room:NAME",
			Fields: append(chatFields()[1:],
				optional("ts", &Schema{Description: "any JSON, as any other field"}),
				optional("on_lag", fieldOf(wire.FieldOnLag)),
				optional("client", &Schema{Description: "in a stored room: a name of 1 to 128 bytes that no other client has, beside sequence: then the chat can be repeated. Elsewhere it belongs to the application"}),
				optional("sequence", &Schema{Description: "in a stored room: a number, 0 or more, that is higher for each new chat of the client. Elsewhere it belongs to the application"})),
			Answer: Fields{storedPosition, okDuplicate}},
		{Type: "leave", Rooms: true, Summary: "Leaves a room, or all. On /ws/chat the server closes the connection after the last one.",
			Fields: Fields{optional("room", textUpTo(0, nameBytes, "the room; without it all rooms"))}},
		{Type: "ping", Rooms: true, Summary: "Asks for a pong, which is its only answer.",
			Fields: Fields{optional("ts", fieldOf(wire.FieldTS))}, Starts: []string{"pong"}},
		{Type: "pong", Rooms: true, Summary: "Is a sign of life, as every other message is. It has no answer.",
			Fields: Fields{optional("ts", fieldOf(wire.FieldTS))}},
	}
}

// Fields besides type and id that a request may have.
func (r *Request) fields() Fields {
	if r.Rooms {
		return r.Fields
	}
	return fieldsOf(wire.Requests[r.Type], r.Fields)
}

// Schema is that of the request.
func (r *Request) Schema() *Schema {
	fields := append(Fields{
		required("type", &Schema{Type: "string", Const: r.Type, Description: fieldOf(wire.FieldType).Description}),
		optional("id", fieldOf(wire.FieldID)),
	}, r.fields()...)
	s := objectOf(true, fields...)
	if r.Rooms {
		s.opened()
	}
	if len(r.Either) > 0 {
		s.withExactly(r.Either...)
	}
	s.Description = r.Summary
	return s
}

// Ok is the schema of the answer, nil for a ping and a pong.
func (r *Request) Ok() *Schema {
	if r.Type == "ping" || r.Type == "pong" {
		return nil
	}
	s := objectOf(false, append(Fields{
		required("type", &Schema{Type: "string", Const: "ok", Description: "the request was carried out"}),
		required("id", fieldOf(wire.FieldID).said("that of the request")),
	}, r.Answer...)...)
	s.Description = "The answer to " + r.Type + "."
	return s
}
