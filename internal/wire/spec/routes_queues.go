package spec

import "github.com/tidewire/tidewire/internal/wire"

var settleCodes = []string{"not_found", "lease_lost", "not_settled", "invalid_duration", "too_many_messages", "queue_gone"}

func queueName() *Schema { return objectOf(false, required("queue", text("its name"))) }

// changeable are the options of a queue that can be changed.
var changeable = wire.Of(wire.FieldMaxAttempts, wire.FieldRetryMinMS, wire.FieldRetryMaxMS)

func queueOptions() *Schema {
	return objectOf(false,
		required("queue", text("its name")),
		required("max_attempts", atLeast(1, "after so many attempts a message is a dead letter")),
		required("retry_min_ms", atLeast(0, "how long a message waits after the first nack, in milliseconds")),
		required("retry_max_ms", atLeast(0, "how long it waits at most, in milliseconds")),
		optional("priorities", atLeast(2, "how many priorities it has, if it has some")),
		optional("partitions", atLeast(1, "how many partitions it has, if it has some")))
}

func paused(kind string) *Schema {
	return objectOf(false, required(kind, text("its name")), required("paused", boolean("it is paused")))
}

func consumer() *Schema {
	return objectOf(false,
		optional("node", text("its server, in a cluster")),
		optional("connection", text("its connection; HTTP clients have none")),
		optional("user", text("its user, if there are tokens")),
		optional("client", text("what its client has said it is")),
		required("began", moment("since when")),
		required("credits", atLeast(0, "how many unsettled messages it may have now. HTTP clients: those that they have and wait for, 0 while none waits")),
		required("unsettled", atLeast(0, "how many it has")))
}

func queueRoutes() []Route {
	count := objectOf(false, required("count", atLeast(0, "how many messages")))
	return []Route{
		{Method: "GET", Path: "/v1/queues", Name: "listQueues", Summary: "Lists the queues that the caller may see.", Right: "none; queues on which the caller has no right are left out",
			Answer: objectOf(false, required("queues", listOf(queueName(), 0, 0, "the queues")))},
		{Method: "POST", Path: "/v1/queues/{queue}", Name: "createQueue", Summary: "Creates a queue if there is none. Without options, any queue of that name will do; with some, one that has others is an error (exists), and so is a stream of that name that is in use.", Right: "admin queue:NAME, and admin stream:NAME for its streams",
			Body: objectOf(true, append(bodyIgnores(0), fieldsOf(wire.QueueOptions, nil)...)...), NoBody: true, Answer: queueName(),
			Codes: []string{"exists", "invalid_duration", "not_found", "partitioned"}},
		{Method: "GET", Path: "/v1/queues/{queue}", Name: "getQueue", Summary: "The statistics of a queue. Numbers of messages are numbers of positions, including gaps.", Right: "inspect queue:NAME",
			Answer: objectOf(false,
				required("queue", text("its name")),
				required("ready", atLeast(0, "not claimed yet, without those in delayed")),
				required("leased", atLeast(0, "claimed by a server: delivered and not settled, or about to be")),
				required("delayed", atLeast(0, "delayed, nacked or redriven: due later, or due and not claimed yet")),
				required("dead", atLeast(0, "dead letters")),
				required("head", atLeast(0, "enqueued ever; for computing rates")),
				required("oldest_ms", atLeast(0, "the age of the oldest message that is neither done nor dead, in milliseconds")),
				required("nodes", atLeast(0, "servers that consume the queue")),
				required("paused", boolean("it is paused"))),
			Codes: []string{"not_found", "journal_lost"}},
		{Method: "DELETE", Path: "/v1/queues/{queue}", Name: "dropQueue", Summary: "Drops a queue, with its messages.", Right: "admin queue:NAME", Answer: queueName(), Codes: []string{"not_found"}},
		{Method: "GET", Path: "/v1/queues/{queue}/options", Name: "getQueueOptions", Summary: "The options of a queue.", Right: "inspect queue:NAME", Answer: queueOptions(), Codes: []string{"not_found"}},
		{Method: "PATCH", Path: "/v1/queues/{queue}/options", Name: "setQueueOptions", Summary: "Changes some options of a queue. Servers take them within seconds.", Right: "admin queue:NAME",
			Body: objectOf(true, append(bodyIgnores(0), fieldsOf(changeable, nil)...)...), Answer: queueOptions(), Codes: []string{"not_found", "invalid_duration"}},
		{Method: "GET", Path: "/v1/queues/{queue}/consumers", Name: "listConsumers", Summary: "Who consumes a queue through the servers, on all of them: the connections, and for each user its HTTP clients as one. The 500 that began first. Programs that consume in the database itself are not listed.", Right: "inspect queue:NAME",
			Answer: objectOf(false, thisServer(),
				required("queue", text("its name")),
				required("consumers", listOf(consumer(), 0, 500, "the oldest first")),
				required("total", atLeast(0, "how many there are")),
				silent("their consumers are missing")),
			Codes: []string{"not_found"}},
		{Method: "POST", Path: "/v1/queues/{queue}/pause", Name: "pauseQueue", Summary: "Stops deliveries on all servers, within seconds.", Right: "admin queue:NAME", Answer: paused("queue"), Codes: []string{"not_found"}},
		{Method: "POST", Path: "/v1/queues/{queue}/resume", Name: "resumeQueue", Summary: "Continues deliveries.", Right: "admin queue:NAME", Answer: paused("queue"), Codes: []string{"not_found"}},
		{Method: "POST", Path: "/v1/queues/{queue}/purge", Name: "purgeQueue", Summary: "Removes all messages that no server has claimed.", Right: "admin queue:NAME",
			Body: objectOf(true, optional("dead", boolean("dead letters too").byDefault(false))), NoBody: true, Answer: count, Codes: []string{"not_found", "journal_lost"}},
	}
}

func deliveryRoutes() []Route {
	settled := objectOf(false, okSettled)
	settle := func(kind, summary string) Route {
		return Route{Method: "POST", Path: "/v1/queues/{queue}/" + kind, Name: kind, Summary: summary + " Any server of a cluster takes it.", Right: "consume queue:NAME",
			Body: bodyOf(kind, wire.Of(wire.FieldQueue)), Answer: settled, Codes: settleCodes}
	}
	return []Route{
		{Method: "POST", Path: "/v1/queues/{queue}/messages", Name: "enqueue", Summary: "Stores messages, as enqueue does on /ws. The answer comes after the commit.", Right: "enqueue queue:NAME",
			Query: Fields{rawBody, rawKey}, Headers: Fields{idempotencyKey}, Raw: true,
			Body: bodyOf("enqueue", wire.Of(wire.FieldQueue)), Answer: placed(okPlace), Codes: append([]string{"invalid_duration"}, publishCodes...)},
		{Method: "GET", Path: "/v1/queues/{queue}/messages", Name: "peekQueue", Summary: "Reads the next messages, which stay in the queue. Those that getQueue counts as delayed are not among them.", Right: "inspect queue:NAME",
			Query: Fields{pageSize(1000, 100)}, Answer: objectOf(false, required("messages", listOf(ref("storedMessage", ""), 0, 1000, "the messages"))), Codes: []string{"not_found", "journal_lost"}},
		{Method: "POST", Path: "/v1/queues/{queue}/receive", Name: "receive", Summary: "Leases messages to the client for 30 s, which it settles with ack, nack or extend. The answer comes when there are some, or after wait_ms. The first receive at a server may take longer than 100 ms: give wait_ms.", Right: "consume queue:NAME",
			Query: Fields{
				optional("max", between(1, 1000, "how many at most").byDefault(1)),
				optional("wait_ms", between(0, 20_000, "how long to wait for a message, and at least 100 ms").byDefault(0))},
			Answer: objectOf(false, required("deliveries", listOf(objectOf(false, append(Fields{required("queue", text("the queue"))}, delivery()...)...), 0, 1000, "the deliveries; none if there is nothing to do"))),
			Codes:  []string{"not_found", "too_many_deliveries", "half_closed", "queue_gone", "journal_lost", "queue_stream"}},
		settle("ack", "The work is done: the messages leave the queue. The answer comes after the commit."),
		settle("nack", "The work failed: the messages are delivered again after a delay, or become dead letters."),
		settle("extend", "The work takes longer: the leases end later."),
	}
}

// deadFilter are the fields that select dead letters.
func deadFilter() Fields {
	return Fields{
		optional("key", text("only those with this key")),
		optional("reason", text("only those whose reason contains this")),
		optional("min_attempts", between(0, maxAttempts, "only those with at least so many attempts")),
		optional("max_attempts", between(0, maxAttempts, "only those with at most so many attempts; 0 is no limit")),
		optional("since", moment("only those that died then or later")),
		optional("until", moment("only those that died before that")),
	}
}

func job() *Schema {
	return jobOf(required("queue", text("the queue")), []string{"redrive", "purge"}, "how many dead letters it has changed",
		optional("per_second", atLeast(1, "how many it changes in a second at most")))
}

func jobOf(of Field, acts []string, changed string, more ...Field) *Schema {
	return objectOf(false, append(Fields{
		required("job", text("its name")),
		of,
		required("act", oneOfTexts("what it does", acts...)),
		required("state", oneOfTexts("how far it is", "running", "done", "stopped", "failed")),
		required("changed", atLeast(0, changed)),
		required("after", atLeast(0, "the position up to which all is done")),
		required("started", moment("when it began")),
		optional("ended", moment("when it ended")),
		optional("error", text("why it failed: a code"))}, more...)...)
}

func deadRoutes() []Route {
	change := func(kind, summary string) Route {
		body := objectOf(true,
			optional("positions", listOf(integer("a position"), 1, 1000, "the dead letters at these positions. The answer comes after the commit")),
			optional("filter", objectOf(true, deadFilter()...).said("the dead letters that it selects, by at least one field: a job")),
			optional("all", boolean("true: all dead letters, a job")),
			optional("per_second", between(1, 100_000, "of a job: how many it changes in a second at most; by default as many as it can")))
		body.withExactly("positions", "filter", "all")
		answer := &Schema{AnyOf: []*Schema{objectOf(false, required("count", atLeast(0, "with positions: how many were changed"))), job()}}
		return Route{Method: "POST", Path: "/v1/queues/{queue}/dead/" + kind, Name: kind + "Dead", Summary: summary, Right: "admin queue:NAME",
			Body: body, Answer: answer, Codes: []string{"not_found", "too_many_jobs", "journal_lost"}}
	}
	replacement := objectOf(true, append(bodyIgnores(0), fieldsOf(wire.Of(wire.FieldPayload, wire.FieldPayloadBase64, wire.FieldKey, wire.FieldHeaders, wire.FieldPriority, wire.FieldDelayMS), nil)...)...)
	replacement.withExactly("payload", "payload_base64")
	return []Route{
		{Method: "GET", Path: "/v1/queues/{queue}/dead", Name: "listDead", Summary: "Reads a page of dead letters, which may be empty before the last one.", Right: "inspect queue:NAME",
			Query: append(Fields{afterPosition("after this position").withDefault(0), pageSize(1000, 100)}, deadFilter()...),
			Answer: objectOf(false,
				required("dead", listOf(objectOf(false, append(stored[:len(stored):len(stored)],
					required("attempts", atLeast(0, "how many attempts there were")),
					optional("reason", text("the reason of its last nack")),
					optional("died", moment("when it became a dead letter")))...), 0, 1000, "the dead letters")),
				optional("next", atLeast(1, "the after to continue with; missing if there are no more"))),
			Codes: []string{"not_found", "journal_lost"}},
		change("redrive", "Delivers dead letters again, and counts their attempts from 1 on."),
		change("purge", "Removes dead letters."),
		{Method: "POST", Path: "/v1/queues/{queue}/dead/{position}/replace", Name: "replaceDead", Summary: "Removes a dead letter and enqueues a message, both or neither, in one transaction. The message has a new position, and its attempts count from 1 on. If the outcome is unknown, look whether the dead letter is gone.", Right: "admin queue:NAME and enqueue queue:NAME",
			Body: replacement, Answer: objectOf(false),
			Codes: []string{"not_found", "invalid_duration", "not_stored", "outcome_unknown", "journal_lost"}},
		{Method: "GET", Path: "/v1/queues/{queue}/jobs", Name: "listJobs", Summary: "Lists the jobs of this server that change many dead letters.", Right: "inspect queue:NAME",
			Answer: objectOf(false, required("jobs", listOf(job(), 0, 100, "the jobs, oldest first")))},
		{Method: "GET", Path: "/v1/queues/{queue}/jobs/{job}", Name: "getJob", Summary: "How far a job is.", Right: "inspect queue:NAME", Answer: job(), Codes: []string{"not_found"}},
		{Method: "DELETE", Path: "/v1/queues/{queue}/jobs/{job}", Name: "stopJob", Summary: "Stops a job. What it has changed stays so.", Right: "admin queue:NAME", Answer: job(), Codes: []string{"not_found"}},
	}
}
