package spec

const (
	administrators = "connections server:*"
	keyMakers      = "keys server:*"
)

// ruleInForce is a right of a caller, or a rule of the configuration.
func ruleInForce(description string) *Schema {
	return objectOf(false,
		required("rule", text("as it was written")),
		optional("bound", text("with the values of the caller put in. Missing in a list of rights: a value is missing, so that the rule grants nothing")),
		optional("role", text("the role whose rule it is; missing if the token or API key has it itself")),
		optional("source", text("where the rules of roles were written: the name of a file, of a variable, or of the flag"))).said(description)
}

// thisServer are the fields of what one server alone tells.
func thisServer() Field { return optional("node", text("the name of this server in its cluster")) }

// connectionFields describe a connection.
func connectionFields() Fields {
	n := func(name, description string) Field { return required(name, atLeast(0, description)) }
	return Fields{
		required("connection", text("its name, which no other connection has")),
		optional("user", text("its user; \"\" without a token, where that is allowed. Missing: it has sent no token yet, or the server is in open mode")),
		optional("role", text("its role")),
		required("address", text("the address of the client")),
		optional("client", text("what the client says it is: the header User-Agent of its handshake, at most 128 bytes")),
		required("endpoint", text("the path: /ws, /ws/chat, /ws/ingest or /ws/lanes")),
		required("opened", moment("when it was opened")),
		n("messages_in", "messages that it has sent"),
		n("messages_out", "messages that it was sent, or that are queued for it"),
		n("bytes_in", "bytes of the frames that it has sent, before encryption"),
		n("bytes_out", "bytes of the frames that it was sent"),
		n("unsent_bytes", "bytes that are queued, or that its machine has not acknowledged"),
		n("waiting_ms", "for how long it has left bytes unread, or a question of the server unanswered"),
	}
}

// connectionRoutes are those of connections, and of what callers may do.
func connectionRoutes() []Route {
	count := func(name string) Field { return required(name, atLeast(0, "how many it has")) }
	caller := oneOfTexts("how it has said who it is", "token", "key", "anonymous")
	return []Route{
		{Method: "GET", Path: "/v1/connections", Name: "listConnections", Summary: "Lists WebSocket connections of this server, not of the whole cluster.", Right: administrators,
			Query: Fields{
				optional("order", oneOfTexts("newest; slowest: those that keep the server waiting for the longest time; unsent: those with the most unsent bytes", "newest", "slowest", "unsent").byDefault("newest")),
				optional("user", text("only those whose user contains this")),
				optional("limit", between(1, 500, "how many at most").byDefault(500))},
			Answer: objectOf(false, thisServer(),
				required("connections", listOf(objectOf(false, append(connectionFields(), count("subscriptions"), count("consumers"), count("rooms"))...), 0, 500, "the first in the order")),
				required("matching", atLeast(0, "how many have such a user")),
				required("total", atLeast(0, "how many there are")))},
		{Method: "GET", Path: "/v1/connections/{connection}", Name: "getConnection", Summary: "Tells what a connection of this server has, and what it may do. Never its token.", Right: administrators,
			Answer: objectOf(false, append(connectionFields(), thisServer(),
				required("subscriptions", listOf(objectOf(false,
					required("subscription", text("its name")),
					optional("stream", text("of this stream")),
					optional("group", text("as this group")),
					optional("store", text("of this event store"))), 0, 0, "its subscriptions")),
				required("consumers", listOf(text("a queue"), 0, 0, "the queues that it consumes")),
				required("rooms", listOf(text("a room"), 0, 0, "the rooms that it is in")),
				optional("by", caller),
				optional("key", text("the id of its API key")),
				optional("expires", moment("when its token or API key ends")),
				optional("claims", anyObject("the claims of its token. They may be personal data")),
				required("rights", listOf(ruleInForce("a right"), 0, 0, "what it may do")),
				required("asks", boolean("an SQL function is asked when no rule grants a right")))...),
			Codes: []string{"not_found"}},
		{Method: "POST", Path: "/v1/connections/{connection}/disconnect", Name: "disconnectConnection", Summary: "Closes one connection of this server, with 4401, or in open mode with 1012. Its client may come back.", Right: administrators,
			Body: objectOf(true), NoBody: true, Answer: objectOf(false), Codes: []string{"not_found"}},
		{Method: "POST", Path: "/v1/rights/explain", Name: "explainRight", Summary: "Tells why a caller may do something, or why not: which rule decides.", Right: administrators,
			Body: objectOf(true,
				optional("connection", text("a connection of this server")),
				optional("user", textUpTo(0, nameBytes, "a user who has a connection on this server. In place of connection")),
				optional("role", text("a role, if neither connection nor user is there; anonymous is a caller without a token. By default that in claims")),
				optional("claims", anyObject("the claims of a token, as far as they matter")),
				required("verb", text("such as read")),
				required("kind", oneOfTexts("what it is about", "room", "user", "stream", "queue", "events", "ingest", "server")),
				optional("name", textUpTo(0, nameBytes, "its name; not needed for ingest and server, and by default default for events")),
				optional("tags", listOf(text("a tag"), 0, 0, "of events: the tags of one item of a query, or of one event"))),
			Answer: objectOf(false,
				required("allowed", boolean("it may")),
				required("decided_by", oneOfTexts("rule: the rule in rule; function: the SQL function on rights; nothing: no rule grants it; open_mode: everybody may do everything", "rule", "function", "nothing", "open_mode")),
				optional("user", text("the user")), optional("role", text("its role")), optional("by", caller),
				optional("rule", ruleInForce("the rule")),
				optional("function", oneOfTexts("what the SQL function says, asked now", "yes", "no", "failed")),
				optional("grant", text("the narrowest rule that would grant it"))),
			Codes: []string{"not_found"}},
		{Method: "GET", Path: "/v1/rules", Name: "listRules", Summary: "Lists the rules of roles that are in force, and which verbs there are.", Right: administrators,
			Answer: objectOf(false,
				required("closed", boolean("a caller needs a token and rights. False: everybody may do everything (open mode)")),
				required("rules", listOf(objectOf(false,
					required("rule", text("as it was written")),
					required("role", text("whose rule it is")),
					optional("source", text("where it was written"))), 0, 0, "the rules, in their order")),
				required("asks", boolean("an SQL function is asked when no rule grants a right")),
				required("kinds", anyObject("for each kind of a rule its verbs")))},
		{Method: "GET", Path: "/v1/audit", Name: "getAudit", Summary: "Tells the last denials and administrative acts of this server, the newest first. It forgets them when it stops: the audit log is the record.", Right: administrators,
			Answer: objectOf(false, thisServer(),
				required("since", moment("when this server began")),
				required("denials", listOf(objectOf(false,
					required("code", text("the code that the caller got")),
					required("user", text("its user, \"\" if there was none")),
					optional("role", text("its role")),
					required("address", text("its address")),
					optional("verb", text("the right that was missing: its verb")),
					optional("kind", text("its kind")),
					optional("name", text("its name")),
					optional("reason", text("why, of the last one: only for operators")),
					optional("request_id", text("the X-Request-Id of the last one, by HTTP")),
					required("count", atLeast(1, "how many equal ones there were")),
					required("first", moment("when the first one was")),
					required("last", moment("when the last one was"))), 0, 1000, "equal ones are counted together")),
				required("acts", listOf(objectOf(false,
					required("time", moment("when it was")),
					required("user", text("who did it, \"\" in open mode")),
					optional("role", text("its role")),
					required("address", text("its address")),
					required("act", text("what was done")),
					required("target", text("to what")),
					optional("request_id", text("its X-Request-Id"))), 0, 1000, "the acts")))},
	}
}

// keyRoutes are those of API keys.
func keyRoutes() []Route {
	const life = 100 * 365 * 24 * 60 * 60
	return []Route{
		{Method: "GET", Path: "/v1/keys", Name: "listKeys", Summary: "Lists the API keys, the newest first, without their secrets.", Right: keyMakers,
			Answer: objectOf(false, thisServer(),
				required("since", moment("when this server began: it knows of no use before")),
				required("keys", listOf(objectOf(false,
					required("key", text("its id: the part after tw_")),
					required("name", text("its name: its user is key: and this name")),
					required("allow", listOf(text("a rule"), 0, 0, "its rights")),
					required("state", oneOfTexts("whether it is accepted", "active", "expired", "revoked")),
					required("created", moment("when it was made")),
					optional("by", text("who has made it")),
					optional("expires", moment("when it ends; missing: never")),
					optional("revoked", moment("when it was revoked")),
					optional("last_used", moment("when this server has last accepted it"))), 0, 0, "all keys, also expired and revoked ones")))},
		{Method: "POST", Path: "/v1/keys", Name: "createKey", Summary: "Makes an API key. Its text is in the answer, and nowhere else. It cannot have rights that its maker does not have.", Right: keyMakers,
			Body: objectOf(true,
				required("name", textUpTo(1, nameBytes-4, "its name. Keys of one name are one user")),
				required("allow", listOf(textUpTo(1, 1024, "a rule without placeholders"), 1, 100, "its rights")),
				optional("expires_in", between(1, life, "after how many seconds it ends; by default never"))),
			Answer: objectOf(false, required("key", text("its id")), required("token", text("the key itself"))),
			Codes:  []string{"beyond_own_rights", "too_many_keys"}},
		{Method: "POST", Path: "/v1/keys/{key}/revoke", Name: "revokeKey", Summary: "Revokes an API key, on all servers, and closes its connections with 4403. The answer comes after the commit, and when this server has done it.", Right: keyMakers,
			Body: objectOf(true), NoBody: true, Answer: objectOf(false), Codes: []string{"not_found", "too_many_revocations"}},
	}
}
