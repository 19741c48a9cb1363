package spec

import "github.com/tidewire/tidewire/internal/wire"

// eventQuery are the parameters that select events.
func eventQuery() Fields {
	return Fields{
		optional("type", listOf(text("a type"), 0, 0, "the event has one of these types; several times")),
		optional("tag", listOf(text("a tag"), 0, 0, "the event has all of these tags; several times")),
		optional("store", textUpTo(0, nameBytes, "the event store; without it the default one")),
	}
}

func eventRoutes() []Route {
	readCodes := []string{"not_found", "history_lost", "invalid", "busy"}
	queryCodes := append([]string{"too_expensive"}, readCodes...)
	inBody := optional("store", textUpTo(0, nameBytes, "the event store, if the body does not name it"))
	return []Route{
		{Method: "POST", Path: "/v1/events", Name: "append", Summary: "Stores events, as append does on /ws. The answer comes after the commit.", Right: "append events:STORE, and with a condition query events:STORE",
			Query: Fields{inBody}, Headers: Fields{idempotencyKey}, Body: bodyOf("append", 0),
			Answer: objectOf(false, required("positions", listOf(atLeast(1, "a position"), 1, maxList, "where the events are, in their order")), okDuplicate),
			Codes:  []string{"not_found", "conflict", "duplicate_id", "too_expensive", "history_lost", "sequence_too_old", "busy", "not_stored", "outcome_unknown"}},
		{Method: "GET", Path: "/v1/events", Name: "readEvents", Summary: "Reads a page of events, all as of one moment.", Right: "query events:STORE",
			Query: append(eventQuery(), afterPosition("only events after this position").withDefault(0),
				optional("before", atLeast(0, "only events before this position; 0 is no limit").byDefault(0)), pageSize(maxList, 100),
				optional("backwards", oneOfTexts("true: the newest first", "true", "false", "").byDefault("false"))),
			Answer: objectOf(false, pageOfEvents()...), Codes: queryCodes},
		{Method: "POST", Path: "/v1/events/query", Name: "query", Summary: "Reads a page of events, as query does on /ws.", Right: "query events:STORE",
			Query: Fields{inBody}, Body: bodyOf("query", 0), Answer: objectOf(false, pageOfEvents()...), Codes: queryCodes},
		{Method: "POST", Path: "/v1/events/project", Name: "project", Summary: "Counts events, as project does on /ws.", Right: "query events:STORE",
			Query: Fields{inBody}, Body: bodyOf("project", 0), Answer: objectOf(false, projection()...), Codes: readCodes},
		{Method: "GET", Path: "/v1/events/types", Name: "listTypes", Summary: "Lists the types of the events, sorted by their bytes. It costs one look into an index for each type.", Right: "query events:STORE, of all its events",
			Query: Fields{optional("store", textUpTo(0, nameBytes, "the event store; without it the default one")), optional("prefix", text("only types that begin with this")),
				optional("after", text("only types after this one")), pageSize(maxList, 100)},
			Answer: objectOf(false, required("types", listOf(text("a type"), 0, maxList, "the types")), required("next", text("the after to continue with"))), Codes: []string{"not_found", "invalid"}},
		{Method: "GET", Path: "/v1/events/follow", Name: "followEvents", Summary: "Sends the events that match as server-sent events, those that are stored and then those to come.", Right: "query events:STORE",
			Query: append(eventQuery(), afterPosition("start after this position; 0 is the beginning"),
				optional("from", oneOfTexts("start: at the first event; end: with the next one", "start", "end").byDefault("end"))),
			Headers: Fields{lastEventID}, Events: ref("event", ""), EventName: "event", Codes: append([]string{"invalid_start", "stream_gone"}, readCodes...)},
	}
}

func storeRoutes() []Route {
	store := objectOf(false, required("store", text("its name")))
	return []Route{
		{Method: "GET", Path: "/v1/events/stores", Name: "listStores", Summary: "Lists the event stores that the caller may see.", Right: "none; stores on which the caller has no right are left out",
			Answer: objectOf(false, required("stores", listOf(store, 0, 0, "the event stores")))},
		{Method: "POST", Path: "/v1/events/stores/{store}", Name: "createStore", Summary: "Creates an event store if there is none.", Right: "admin events:STORE", Answer: store},
		{Method: "GET", Path: "/v1/events/stores/{store}", Name: "getStore", Summary: "Describes an event store.", Right: "admin events:STORE",
			Answer: objectOf(false, required("store", text("its name")), required("head", atLeast(0, "the position of the last event"))), Codes: []string{"not_found"}},
		{Method: "DELETE", Path: "/v1/events/stores/{store}", Name: "dropStore", Summary: "Drops an event store, with its events.", Right: "admin events:STORE", Answer: store, Codes: []string{"not_found"}},
	}
}

// scheduleFields are what a client says about a schedule. An answer has them too.
func scheduleFields() Fields {
	return Fields{
		optional("cron", text("when: an expression with five fields. Either this or at")),
		optional("time_zone", text("the IANA name of the zone of cron").byDefault("UTC")),
		optional("at", moment("when: once, at this time")),
		optional("queue", text("the queue into which the message goes. Either this or stream")),
		optional("stream", text("the stream to which it goes")),
		optional("key", fieldOf(wire.FieldKey)),
		optional("headers", fieldOf(wire.FieldHeaders)),
		optional("payload", fieldOf(wire.FieldPayload)),
		optional("payload_base64", fieldOf(wire.FieldPayloadBase64)),
		optional("priority", between(0, 9, "the priority, in a queue that has priorities")),
		optional("catch_up", oneOfTexts("which due times that were missed get a message", "latest", "none", "all", "").byDefault("latest")),
	}
}

func schedule() *Schema {
	fields := append(Fields{required("schedule", text("its name"))}, scheduleFields()...)
	return objectOf(false, append(fields,
		required("paused", boolean("it is paused")),
		optional("due", moment("its next due time")),
		optional("last", moment("the last due time that has a message")),
		optional("error", text("why the last attempt failed")))...)
}

func scheduleRoutes() []Route {
	const right = "schedules server:*"
	body := objectOf(true, append(scheduleFields(), optional("paused", boolean("it begins paused").byDefault(false)))...)
	body.withExactly("payload", "payload_base64")
	return []Route{
		{Method: "GET", Path: "/v1/schedules", Name: "listSchedules", Summary: "Lists schedules, sorted by name.", Right: right,
			Query:  Fields{optional("after", text("after the schedule of this name")), pageSize(100, 50)},
			Answer: objectOf(false, required("schedules", listOf(schedule(), 0, 100, "the schedules")), required("next", text("the after to continue with")))},
		{Method: "PUT", Path: "/v1/schedules/{schedule}", Name: "putSchedule", Summary: "Creates a schedule, or replaces the one of its name.", Right: right + ", and the right to write to its target",
			Body: body, Answer: schedule(), Codes: []string{"not_found"}},
		{Method: "GET", Path: "/v1/schedules/{schedule}", Name: "getSchedule", Summary: "Describes a schedule.", Right: right, Answer: schedule(), Codes: []string{"not_found"}},
		{Method: "DELETE", Path: "/v1/schedules/{schedule}", Name: "dropSchedule", Summary: "Removes a schedule.", Right: right, Answer: objectOf(false, required("schedule", text("its name"))), Codes: []string{"not_found"}},
		{Method: "POST", Path: "/v1/schedules/{schedule}/pause", Name: "pauseSchedule", Summary: "Pauses a schedule. Due times during a pause have no messages.", Right: right, Answer: paused("schedule"), Codes: []string{"not_found"}},
		{Method: "POST", Path: "/v1/schedules/{schedule}/resume", Name: "resumeSchedule", Summary: "Resumes a schedule.", Right: right, Answer: paused("schedule"), Codes: []string{"not_found"}},
	}
}
