package spec

import "github.com/tidewire/tidewire/internal/wire"

var (
	readCodes    = []string{"not_found", "too_old", "message_too_large", "history_lost", "partitioned"}
	publishCodes = []string{"not_found", "cross_partition", "queue_stream", "sequence_too_old", "too_many_messages", "not_stored", "outcome_unknown", "journal_lost", "partitioned"}
)

// stream are the fields that describe a stream.
func stream(more ...Field) *Schema {
	return objectOf(false, append(Fields{
		required("stream", text("its name")),
		required("keyed", boolean("it can be read by key")),
		optional("partitions", atLeast(1, "how many partitions it has, if it has some: the streams name/0, name/1 and so on")),
	}, more...)...)
}

// placed is the answer to a request that stores messages, and says with these fields where they are.
func placed(where ...Field) *Schema {
	return objectOf(false, append(where, optional("count", atLeast(1, "how many messages were stored")), okDuplicate)...)
}

func streamRoutes() []Route {
	created := required("created", moment("when it was created"))
	follow := Fields{
		afterPosition("start after this position; 0 is the beginning"),
		optional("from", oneOfTexts("start: at the oldest message that is kept; end: with the next one", "start", "end").byDefault("end")),
	}
	return []Route{
		{Method: "GET", Path: "/v1/streams", Name: "listStreams", Summary: "Lists the streams that the caller may see.", Right: "none; streams on which the caller has no right are left out",
			Answer: objectOf(false, required("streams", listOf(stream(created), 0, 0, "the streams")))},
		{Method: "POST", Path: "/v1/streams/{stream}", Name: "createStream", Summary: "Creates a stream if there is none. Without options, any stream of that name will do; with some, one that has others is an error (exists).", Right: "admin stream:NAME",
			Body: objectOf(true, append(bodyIgnores(0), fieldsOf(wire.StreamOptions, nil)...)...), NoBody: true, Answer: stream(), Codes: []string{"exists", "queue_stream", "not_found"}},
		{Method: "GET", Path: "/v1/streams/{stream}", Name: "getStream", Summary: "Describes a stream.", Right: "read stream:NAME",
			Answer: stream(created, required("head", atLeast(0, "the position of the last message"))), Codes: []string{"not_found"}},
		{Method: "DELETE", Path: "/v1/streams/{stream}", Name: "dropStream", Summary: "Drops a stream, with its messages.", Right: "admin stream:NAME",
			Answer: objectOf(false, required("stream", text("its name"))), Codes: []string{"not_found", "queue_stream", "partitioned"}},
		{Method: "POST", Path: "/v1/streams/{stream}/messages", Name: "publish", Summary: "Stores messages, as publish does on /ws. The answer comes after the commit.", Right: "publish stream:NAME",
			Query: Fields{rawBody, rawKey}, Headers: Fields{idempotencyKey}, Raw: true,
			Body: bodyOf("publish", wire.Of(wire.FieldStream)), Answer: placed(okPosition, okPartition), Codes: publishCodes},
		{Method: "GET", Path: "/v1/streams/{stream}/messages", Name: "readStream", Summary: "Reads a page of messages. If there are none, the answer comes when there are some, or after wait_ms.", Right: "read stream:NAME",
			Query: Fields{
				afterPosition("after this position").withDefault(0), pageSize(1000, 100),
				optional("key", text("only messages with this key, of a keyed stream")),
				optional("wait_ms", between(0, 20_000, "how long to wait for a message; not beside key").byDefault(0))},
			Answer: objectOf(false, required("messages", listOf(ref("storedMessage", ""), 0, 1000, "the messages; none after the last one")), next),
			Codes:  append([]string{"not_keyed", "invalid"}, readCodes...)},
		searchRoute(),
		{Method: "GET", Path: "/v1/streams/{stream}/follow", Name: "followStream", Summary: "Sends the messages of a stream as server-sent events, those that are stored and then those to come.", Right: "read stream:NAME",
			Query: follow, Headers: Fields{lastEventID}, Events: ref("storedMessage", ""), EventName: "message",
			Codes: append([]string{"invalid_start", "stream_gone"}, readCodes...)},
		{Method: "GET", Path: "/v1/streams/{stream}/retention", Name: "getRetention", Summary: "What the stream keeps.", Right: "read stream:NAME",
			Answer: objectOf(false, retention(true)...), Codes: []string{"not_found", "queue_stream"}},
		{Method: "PUT", Path: "/v1/streams/{stream}/retention", Name: "setRetention", Summary: "Sets what the stream keeps. A limit that is missing is removed.", Right: "admin stream:NAME",
			Body: objectOf(true, retention(false)...), NoBody: true, Answer: objectOf(false, retention(true)...), Codes: []string{"not_found", "queue_stream", "invalid_duration"}},
	}
}

func searchRoute() Route {
	const most = 1024
	return Route{Method: "GET", Path: "/v1/streams/{stream}/search", Name: "searchStream", Right: "read stream:NAME",
		Summary: "Reads a part of a stream and answers with the messages that match: their key, headers or payload contains text, and their payload is JSON with a value at path. A request reads 10,000 messages or 8 MiB, and a last page: continue after next until done. A server reads for two requests at a time, the others wait.",
		Query: Fields{
			optional("text", textUpTo(0, most, "a text, whose UTF-8 is compared with the bytes of the key, of the payload, and of the headers as JSON. Text or path is needed")),
			optional("any_case", oneOfTexts("upper and lower case of text are the same", "true")),
			optional("path", textUpTo(0, most, "the path of a value in the payload: at most 16 names, or numbers in arrays, with dots between them, such as items.0.name, or a JSON pointer, such as /items/0/name")),
			optional("value", textUpTo(0, most, "what is at path: the text of a string, or anything else as it is written without spaces. If it is missing, any value will do")),
			afterPosition("after this position").withDefault(0),
			optional("until", atLeast(0, "up to this position; if it is missing, to the end")),
			optional("key", text("only messages with this key, of a keyed stream")),
			pageSize(1000, 100)},
		Answer: objectOf(false,
			required("messages", listOf(ref("storedMessage", ""), 0, 1000, "the messages that match, in order")),
			next,
			required("read", atLeast(0, "how many messages it has read")),
			required("bytes", atLeast(0, "how many bytes these take")),
			required("done", boolean("nothing is left in the range"))),
		Codes: append([]string{"not_keyed", "invalid"}, readCodes...)}
}

var (
	rawBody = optional("raw", text("with any value, or none: the body is the payload itself, with any Content-Type but a form's and text/plain"))
	rawKey  = optional("key", text("the key of a message with raw"))
)

// withDefault is a parameter with a default.
func (f Field) withDefault(v any) Field {
	f.Schema = f.Schema.byDefault(v)
	return f
}

// retention are what a stream keeps; an answer has all of them.
func retention(all bool) Fields {
	return Fields{
		{"max_age_ms", all, atLeast(0, "messages that are older are dropped, in milliseconds; 0 is no limit")},
		{"max_bytes", all, atLeast(0, "the oldest messages are dropped until the stream takes no more bytes on disk; 0 is no limit")},
		{"consumed", all, boolean("messages that all groups have committed are dropped; with a limit: only these")},
	}
}

func groupRoutes() []Route {
	return []Route{
		{Method: "GET", Path: "/v1/streams/{stream}/groups", Name: "listGroups", Summary: "Lists the groups of a stream, sorted by the bytes of their names.", Right: "read stream:NAME",
			Query: Fields{optional("after", textUpTo(0, nameBytes, "after the group of this name")), pageSize(1000, 100)},
			Answer: objectOf(false,
				required("groups", listOf(objectOf(false,
					required("group", text("its name")),
					required("offset", atLeast(0, "the position up to which it has processed the stream")),
					required("lag", atLeast(0, "positions between the offset and the last message, with gaps"))), 0, 1000, "the groups")),
				required("next", text("the after to continue with"))),
			Codes: []string{"not_found", "partitioned"}},
		{Method: "POST", Path: "/v1/streams/{stream}/groups/{group}/commit", Name: "commitGroup", Summary: "Moves the offset of a group forward, as commit does on /ws.", Right: "commit stream:NAME",
			Body: bodyOf("commit", wire.Of(wire.FieldStream, wire.FieldGroup, wire.FieldPartition)), Answer: objectOf(false, required("position", atLeast(0, "the offset, which may be higher"))),
			Codes: []string{"not_found", "position_ahead", "offset_missing", "queue_stream", "partitioned", "not_stored", "outcome_unknown", "history_lost"}},
		{Method: "POST", Path: "/v1/streams/{stream}/groups/{group}/seek", Name: "seekGroup", Summary: "Sets the offset of a group, also backwards. Subscriptions that are open go on where they are: end them first.", Right: "admin stream:NAME",
			Body: seekBody(), Answer: objectOf(false, required("position", atLeast(0, "the offset"))),
			Codes: []string{"not_found", "invalid_start", "position_ahead", "history_lost", "too_old", "queue_stream", "partitioned"}},
		{Method: "DELETE", Path: "/v1/streams/{stream}/groups/{group}", Name: "dropGroup", Summary: "Removes a group. A client that still commits makes it anew.", Right: "admin stream:NAME",
			Answer: objectOf(false, required("stream", text("the stream")), required("group", text("the group"))), Codes: []string{"not_found", "queue_stream", "partitioned"}},
	}
}

func seekBody() *Schema {
	return objectOf(true, append(bodyIgnores(0), fieldsOf(wire.Of(wire.FieldAfter, wire.FieldAt, wire.FieldFrom), nil)...)...).withExactly("after", "at", "from")
}
