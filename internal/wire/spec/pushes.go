package spec

// Push is a message of a server that is no ok.
type Push struct {
	Type    string
	Summary string
	Fields  Fields
	// Chat and Session: it comes on /ws/chat, and on /ws.
	Chat, Session bool
}

// ErrorType is the type of errors.
const ErrorType = "error"

// Pushes are the messages of a server that are no ok: those that no request has asked for, those that a request has started, and errors.
func Pushes() []Push {
	return []Push{
		{Type: "hello", Session: true, Summary: "Comes first on a connection with a subprotocol: what the server is.", Fields: helloFields},
		{Type: ErrorType, Session: true, Chat: true, Summary: "A request had no effect; or a subscription, a consumer or a membership has ended, which the error names.", Fields: errorFields()},
		{Type: "message", Session: true, Summary: "A message of a subscription.",
			Fields: append(append(ofSubscription(), optional("partition", ofMember)), stored...)},
		{Type: "position", Session: true, Summary: "How far the server has read a subscription with a filter, at most once a second. The group may commit it.",
			Fields: append(ofSubscription(), optional("partition", ofMember), required("position", atLeast(0, "all messages up to it were sent, or have not passed the filter")))},
		{Type: "assigned", Session: true, Summary: "The connection, a member of a group that shares partitions, has come to own partitions. Their messages follow.",
			Fields: append(ofSubscription(), required("partitions", listOf(atLeast(0, "a partition"), 1, 0, "the new ones, beside those that it has")),
				required("positions", listOf(atLeast(0, "a position"), 1, 0, "for each of them, the committed offset: its messages begin after it")))},
		{Type: "revoked", Session: true, Summary: "The connection does not own partitions any more: discard their messages, which another member gets. A commit of them is fenced.",
			Fields: append(ofSubscription(), required("partitions", listOf(atLeast(0, "a partition"), 1, 0, "those that it has lost")))},
		{Type: "parked", Session: true, Summary: "The next messages of a partition were dropped before the group has processed them, or the next one is too large: its messages go on after a commit of oldest - 1.",
			Fields: append(ofSubscription(), required("partition", ofMember), required("code", oneOfTexts("why", "too_old", "message_too_large")),
				required("oldest", atLeast(1, "the oldest message that is kept, or the position after the large message")),
				optional("position", atLeast(1, "of message_too_large: which message")),
				optional("size", atLeast(1, "of message_too_large: the bytes of its payload")))},
		{Type: "event", Session: true, Summary: "An event of a subscription.",
			Fields: Fields{required("subscription", text("the name of the subscription")), required("event", ref("event", "the event"))}},
		{Type: "delivery", Session: true, Summary: "A message of a queue, which the client settles with ack or nack before its lease ends (30 s).",
			Fields: append(Fields{required("queue", text("the queue"))}, delivery()...)},
		{Type: "chat", Session: true, Chat: true, Summary: "A chat of another member, or of a program: the bytes that were sent, without the id. It may have any other fields.",
			Fields: append(chatFields()[1:],
				optional("ts", &Schema{Description: "as it was sent"}),
				optional("time", &Schema{Description: "of a stored room: when the server took it, by its own clock; RFC 3339"}),
				optional("position", &Schema{Description: "of a stored room: where it is; a whole number"}))},
		{Type: "gap", Session: true, Chat: true, Summary: "A member that read too slowly has missed messages of the room.",
			Fields: Fields{required("room", text("the room")), required("missed", atLeast(1, "how many messages"))}},
		{Type: "presence", Session: true, Chat: true, Summary: "The users in a room: first all of them (members), which replace everything before, and later the changes (joined, left).",
			Fields: Fields{
				required("room", text("the room")),
				required("count", atLeast(0, "how many connections are in the room, including this one")),
				optional("members", listOf(text("a user"), 0, maxList, "all users, sorted by their bytes")),
				optional("truncated", boolean("true: there are more users than the list has")),
				optional("joined", listOf(text("a user"), 1, 0, "users that have joined, sorted")),
				optional("left", listOf(text("a user"), 1, 0, "users that have left, sorted"))}},
		{Type: "history_lost", Session: true, Chat: true, Summary: "A failover has lost chats of a stored room that members have: discard those after last, up to up_to.",
			Fields: Fields{
				required("room", text("the room")),
				required("last", atLeast(0, "the last position before the loss")),
				required("up_to", atLeast(0, "the last position that was lost"))}},
		{Type: "notice", Session: true, Chat: true, Summary: "A message of a program to the user of the connection. It is not stored.",
			Fields: Fields{required("message", anyObject("what the program has sent"))}},
		{Type: "expiring", Session: true, Chat: true, Summary: "The token of the connection ends soon: send auth with a new one.",
			Fields: Fields{required("expires_in_ms", atLeast(0, "how long it is still good, in milliseconds"))}},
		{Type: "pong", Session: true, Chat: true, Summary: "Answers a ping.",
			Fields: Fields{optional("ts", &Schema{Description: "as the ping had it, or null"})}},
		{Type: "ping", Chat: true, Summary: "Comes every 30 s, on /ws/chat alone. It needs no answer: the WebSocket pings are what counts.",
			Fields: Fields{required("ts", atLeast(0, "the server's clock, in milliseconds since 1970"))}},
	}
}

// pushOf is the push of a type. There is one.
func pushOf(kind string) *Push {
	for _, p := range Pushes() {
		if p.Type == kind {
			return &p
		}
	}
	panic("no push " + kind + " in pushes.go")
}

// ofMember is a partition, as a member of a group that shares partitions gets it.
var ofMember = atLeast(0, "for a member of a group that shares partitions: the partition; 0 if the stream has none")

// ofSubscription are the fields that the messages of a subscription of a stream have.
func ofSubscription() Fields {
	return Fields{required("stream", text("the stream")), required("subscription", text("the name of the subscription"))}
}

// errorFields are those of an error on a connection.
func errorFields() Fields {
	all := Fields{
		optional("id", fieldOf(0).said("that of the request; missing if no request has asked for it")),
		optional("subscription", text("the subscription that has ended")),
		optional("queue", text("the queue whose consumer has ended")),
		optional("room", text("the room of which the connection is no member any more, or whose presence it may not see")),
	}
	return append(all, problem...)
}

// delivery are the fields of a delivery, besides its queue.
func delivery() Fields {
	return append(Fields{
		required("delivery", text("names the delivery in ack, nack and extend")),
		required("attempt", atLeast(1, "the attempt that the delivery is, or will be once it begins: 1 is the first")),
	}, stored...)
}

// Schema is that of the message.
func (p *Push) Schema() *Schema {
	s := objectOf(false, append(Fields{required("type", &Schema{Type: "string", Const: p.Type, Description: "what the message is"})}, p.Fields...)...)
	s.Description = p.Summary
	if p.Type == "chat" {
		s.opened()
	}
	return s
}
