package spec

// silent are servers of a cluster that did not answer.
func silent(of string) Field {
	return optional("silent", listOf(text("a server"), 1, 0, "servers of the cluster that did not answer within 5 s, or that are not heard and have not stopped, up to a minute after their last sign of life: "+of))
}

// chatBody is a chat over HTTP: it may have any other fields.
func chatBody() *Schema {
	return objectOf(false,
		optional("type", &Schema{Type: "string", Enum: []string{"chat", ""}, Description: "not needed"}),
		optional("room", text("not needed: that of the path or the list")),
		required("text", text("what is said")),
		optional("user", textUpTo(0, nameBytes, "the name of the sender. In closed mode: the sub of the token, or nothing"))).opened()
}

func roomRoutes() []Route {
	position := optional("position", atLeast(0, "in a stored room: where the chat is stored"))
	return []Route{
		{Method: "GET", Path: "/v1/rooms", Name: "listRooms", Summary: "Lists the rooms that have members or followers now, on all servers: the 500 with the most connections. Each server of a cluster names its own 500.", Right: "none; rooms on which no rule gives presence room:NAME are left out",
			Query: Fields{optional("find", textUpTo(0, nameBytes, "only rooms with this in their names"))},
			Answer: objectOf(false,
				required("rooms", listOf(objectOf(false,
					required("room", text("its name")),
					required("count", atLeast(0, "how many connections are in it")),
					required("chats", atLeast(0, "how many chats it has had since it has begun, for computing rates. A room that nobody is in ends, and later begins with 0")),
					required("stored", boolean("its chats are stored"))), 0, 500, "the rooms with the most connections first")),
				optional("truncated", boolean("true: there are more rooms than the list has")),
				silent("their rooms and members are missing")),
			Codes: []string{"name_too_long"}},
		{Method: "POST", Path: "/v1/rooms/{room}/kick", Name: "kick", Summary: "Removes a user from a room, on all servers: its connections are no members any more, and get an error with the room and the code kicked. They stay open, and may join again as long as their rights allow it: to keep a user out, take its right to join first. Followers over HTTP are no members, and stay. Chats that were sent before are not taken back.", Right: "admin room:NAME",
			Body: objectOf(true, required("user", textUpTo(1, nameBytes, "the user, as listMembers has it"))),
			Answer: objectOf(false, required("connections", atLeast(0, "how many connections were in the room")),
				silent("their connections may be in the room still")),
			Codes: []string{"name_too_long"}},
		{Method: "POST", Path: "/v1/rooms/{room}/chats", Name: "say", Summary: "Sends a chat to all members of a room, on all servers. In a stored room the answer comes after the commit.", Right: "chat room:NAME",
			Headers: Fields{idempotencyKey}, Body: chatBody(), Answer: objectOf(false, position, okDuplicate),
			Codes: []string{"name_too_long", "room_not_stored", "sequence_too_old", "not_stored", "outcome_unknown"}},
		{Method: "POST", Path: "/v1/rooms/chats", Name: "sayInMany", Summary: "Sends one chat to many rooms. Each has its own result.", Right: "chat room:NAME for each room",
			Body: objectOf(true, required("rooms", listOf(textUpTo(1, nameBytes, "a room"), 1, 1000, "the rooms, each once")), required("chat", chatBody().said("the chat"))),
			Answer: objectOf(false, required("results", listOf(objectOf(false,
				required("room", text("the room")), position,
				optional("error", ref("problem", "why it got no chat"))), 1, 1000, "in the order of rooms")))},
		{Method: "GET", Path: "/v1/rooms/{room}/chats", Name: "readRoom", Summary: "Reads a page of the chats of a stored room, as members get them.", Right: "history room:NAME",
			Query: Fields{afterPosition("after this position").withDefault(0), pageSize(1000, 100),
				optional("last", between(1, 1000, "in place of after and limit: the last chats")),
				optional("before", atLeast(1, "with last: the last chats before this position"))},
			Answer: objectOf(false, required("chats", listOf(ref("storedChat", ""), 0, 1000, "the chats")), required("next", atLeast(0, "the after to continue with, also of a join"))),
			Codes:  []string{"name_too_long", "room_not_stored", "too_old", "history_lost"}},
		{Method: "GET", Path: "/v1/rooms/{room}/follow", Name: "followRoom", Summary: "Sends the chats of a room as server-sent events, as members get them: in a stored room those after a position, and then those to come. The caller is no member of the room.",
			Right: "join room:NAME, and with a position history room:NAME",
			Query: Fields{afterPosition("in a stored room: after this position; without it those to come")}, Headers: Fields{lastEventID},
			Events: pushOf("chat").Schema(), EventName: "chat", OtherEvents: []string{"gap", "history_lost"},
			Codes: []string{"name_too_long", "room_not_stored", "invalid_start", "too_old", "history_lost"}},
		{Method: "GET", Path: "/v1/rooms/{room}/members", Name: "listMembers", Summary: "Who is in a room, on all servers.", Right: "presence room:NAME",
			Answer: objectOf(false,
				required("room", text("the room")),
				required("count", atLeast(0, "how many connections are in it")),
				required("members", listOf(text("a user"), 0, 1000, "the users, sorted by their bytes")),
				required("stored", boolean("the chats of the room are stored")),
				optional("truncated", boolean("true: there are more users than the list has")),
				silent("their members are missing")),
			Codes: []string{"name_too_long"}},
		{Method: "POST", Path: "/v1/users/{user}/messages", Name: "notify", Summary: "Sends a notice to all connections of a user. It is not stored, and comes at most once.", Right: "notify user:NAME",
			Body: objectOf(true, required("message", anyObject("what they get"))),
			Answer: objectOf(false, required("connections", atLeast(0, "how many connections have taken it; whether the client reads it is not known")),
				silent("their connections may have got it"))},
	}
}

func serverRoutes() []Route {
	second := func(description string) *Schema {
		return between(1, 253402300799, description+", in seconds since 1970")
	}
	revoke := objectOf(true,
		optional("jti", textUpTo(0, 256, "the token with this jti. Either this or user")),
		optional("user", textUpTo(0, nameBytes, "the tokens of this user that were issued before a time")),
		optional("before", second("that time; by default now")),
		optional("expires", second("when the last of these tokens ends, a time to come, so that the revocation can be forgotten; by default never")))
	return []Route{
		{Method: "POST", Path: "/v1/users/{user}/disconnect", Name: "disconnectUser", Summary: "Closes all connections of a user, on all servers, with 4401. The answer comes after the commit, and when this server has done it.", Right: administrators,
			Body:   objectOf(true, optional("reconnect", boolean("false: refuse all tokens that the user has until now, and close with 4403").byDefault(true))),
			NoBody: true, Answer: objectOf(false), Codes: []string{"too_many_revocations"}},
		{Method: "POST", Path: "/v1/tokens/revoke", Name: "revokeTokens", Summary: "Refuses tokens from now on, on all servers, and closes their connections with 4403. The answer comes after the commit, and when this server has done it.", Right: administrators,
			Body: revoke, Answer: objectOf(false), Codes: []string{"too_many_revocations"}},
		{Method: "POST", Path: "/v1/keys/exchange", Name: "exchangeKey", Summary: "Revokes the API key of the request, and answers with another one, which has its other rights for 12 hours: so a key can be passed on in the open, and counts once. Such a key has the right console server:*, and tidewire console makes it.",
			Right:  "console server:*, of an API key",
			Answer: objectOf(false, required("key", text("the new key")), required("expires", moment("when it ends")))},

		{Method: "POST", Path: "/v1/rights", Name: "checkRights", Summary: "Tells which of these rights the caller has, so that a program offers only what its user may do. A right that is missing is not recorded as a denial.",
			Right: "none",
			Body: objectOf(true, required("rights", listOf(objectOf(true,
				required("verb", text("what the right allows, such as read")),
				required("kind", text("what it is about, such as stream")),
				optional("name", textUpTo(0, nameBytes, "the name of that; none for ingest and server")),
				optional("tags", listOf(text("a tag"), 0, 0, "to query or append events with these tags alone"))), 1, 100, "the rights"))),
			Answer: objectOf(false,
				required("closed", boolean("false: the server asks for no tokens (open mode), and everybody has all rights")),
				optional("user", text("the user that the caller is")),
				optional("role", text("its role")),
				required("allowed", listOf(boolean("whether the caller has it"), 1, 100, "in the order of rights")))},
		{Method: "GET", Path: "/v1/nodes", Name: "listNodes", Summary: "Lists the servers of the cluster.", Right: "metrics server:*",
			Answer: objectOf(false,
				required("node", text("this server")),
				required("nodes", listOf(objectOf(false,
					required("node", text("its name")),
					optional("address", text("where other servers reach it")),
					optional("machine", text("the machine on which it runs")),
					optional("version", text("its version")),
					optional("started", moment("when it began")),
					optional("seen_ms", atLeast(0, "how long ago it has written to the database, in milliseconds")),
					required("heard", boolean("this server hears it now"))), 0, 0, "all servers that are known, this one too")))},
		overviewRoute(),
	}
}
