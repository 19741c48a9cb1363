package spec

// replayFields are where a replay writes, and which messages.
func replayFields() Fields {
	return Fields{
		optional("to_stream", name("the stream that gets the messages")),
		optional("to_queue", name("the queue that gets them")),
		optional("key", text("only messages with this key, of a keyed stream")),
	}
}

func replayJob() *Schema {
	spot := func(name, description string) Field {
		return optional(name, objectOf(false, required("position", atLeast(0, "its position")), required("time", moment("its time"))).said(description))
	}
	return jobOf(required("stream", text("the stream that is read")), []string{"replay"}, "how many messages it has stored; in a dry run, how many it would store", append(replayFields(),
		required("replay", text("the name of the replay, to go on with")),
		required("dry_run", boolean("it stores nothing")),
		required("begin", atLeast(0, "the position after which it began")),
		required("until", atLeast(0, "the last position that it looks at")),
		required("repeated", atLeast(0, "messages that an earlier job of the same replay has stored already: they were not stored again")),
		required("bytes", atLeast(0, "the bytes of the keys, headers and payloads")),
		spot("first", "the first message"),
		spot("last", "the last one so far"))...)
}

func replayRoutes() []Route {
	body := objectOf(true, append(replayFields(),
		optional("after", atLeast(0, "the messages after this position").byDefault(0)),
		optional("until", atLeast(0, "up to this position; if it is missing, those that there are now")),
		optional("dry_run", boolean("count the messages, and store none").byDefault(false)),
		optional("replay", text("the name of an earlier replay of this stream, to go on with it: what it has stored in this target is not stored again. A name is told by a job")))...)
	body.withExactly("to_stream", "to_queue")
	return []Route{
		{Method: "POST", Path: "/v1/streams/{stream}/replay", Name: "replayStream", Right: "read stream:NAME, and publish or enqueue on the target",
			Summary: "Starts a job that stores a part of a stream in another stream or a queue, in its order, with keys, headers and payloads. The job stores each message once, also if it is started again with its replay: within 10 minutes repeated messages are told from others; after that, those up to the last one that was stored are refused (sequence_too_old), so continue after it. If a job fails, after is the position up to which all messages are stored, and up to 500 after it may be.",
			Body:    body, Answer: replayJob(), Codes: append([]string{"not_keyed", "invalid", "too_many_jobs", "queue_stream"}, readCodes...)},
		{Method: "GET", Path: "/v1/streams/{stream}/jobs", Name: "listReplays", Summary: "Lists the jobs of this server that replay parts of the stream, without those whose target the caller may not see.", Right: "read stream:NAME",
			Answer: objectOf(false, required("jobs", listOf(replayJob(), 0, 100, "the jobs, oldest first")))},
		{Method: "GET", Path: "/v1/streams/{stream}/jobs/{job}", Name: "getReplay", Summary: "How far a job is.", Right: "read stream:NAME", Answer: replayJob(), Codes: []string{"not_found"}},
		{Method: "DELETE", Path: "/v1/streams/{stream}/jobs/{job}", Name: "stopReplay", Summary: "Stops a job after the messages that it is storing now. What it has stored stays.", Right: "read stream:NAME, and publish or enqueue on the target", Answer: replayJob(), Codes: []string{"not_found"}},
	}
}
