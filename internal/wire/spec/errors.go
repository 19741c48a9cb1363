package spec

// Stored says whether a request may have had an effect although it was answered with an error.
type Stored string

// The values of Stored.
const (
	No      Stored = "no"
	Perhaps Stored = "perhaps"
	Earlier Stored = "earlier, perhaps"
	Others  Stored = "the others"
	Moot    Stored = "–" // it is about no request
)

// Error is a code of errors.
type Error struct {
	Code string
	// Status is that over HTTP, 0 if the code occurs on WebSockets alone.
	Status int
	Stored Stored
	// Retryable: the same request can be sent again later, and has no effect twice.
	Retryable bool
	// Why is why it comes, and what to do.
	Why string
}

const again = true

// Errors are the codes of /ws, /ws/chat, /ws/lanes and /v1, in the order in which a reader wants them.
func Errors() []Error {
	all := append(requestErrors(), accessErrors()...)
	all = append(all, storeErrors()...)
	all = append(all, deliveryErrors()...)
	return append(all, serverErrors()...)
}

// requestErrors are about the request itself.
func requestErrors() []Error {
	return []Error{
		{"malformed", 400, No, false, "not a JSON object, a field of another type, a value that the field can never have (an empty list, a negative position), no payload or two. `message` names the field"},
		{"unknown_type", 400, No, false, "there is no such `type`: `message` lists those that there are"},
		{"unknown_field", 400, No, false, "the request has a field that it should not have: `field` names it, such as `messages[2].paylod`"},
		{"invalid", 400, No, false, "a field is out of its range. `message` names it, and for events also `field`, such as `events[2].tags`."},
		{"invalid_name", 400, No, false, "a name has 1 to 128 bytes without NUL, and does not begin with `tidewire.`: `message` names the field"},
		{"invalid_start", 400, No, false, "a subscription starts at one of `after`, `at`, `from` and `group`, and not at a negative position"},
		{"invalid_credits", 400, No, false, "credits are out of their range"},
		{"invalid_duration", 400, No, false, "a time in milliseconds is out of its range"},
		{"too_many_messages", 400, No, false, "more than 1,000 messages or deliveries: send several requests"},
		{"name_too_long", 400, No, false, "the name of a room or user has more than 128 bytes"},
		{"invalid_parameter", 400, No, false, "a parameter of the URL is not in its range, or there is no such parameter: `message` names it"},
		{"not_keyed", 400, No, false, "the stream was made without `keyed`, and cannot be read by key"},
		{"position_ahead", 400, No, false, "a `commit` after the last message: commit only what you have received"},
		{"cross_partition", 400, No, false, "the messages belong to several partitions: send one request for each"},
		{"partitioned", 400, No, false, "name a partition, such as `orders/0`"},
		{"already_subscribed", 400, No, false, "this connection has a subscription of that name: give another name, or wait for the answer to the `unsubscribe`"},
		{"not_subscribed", 400, No, false, "this connection has no subscription of that name"},
		{"already_consuming", 400, No, false, "this connection consumes that queue; it can do so again after the answer to the `cancel`"},
		{"not_consuming", 400, No, false, "this connection does not consume that queue"},
		{"too_many_subscriptions", 400, No, false, "end a subscription or consumer of this connection first"},
		{"ended", 400, No, false, "the `subscribe` or `consume` was ended before it had begun"},
		{"not_joined", 400, No, false, "`join` the room first"},
		{"kicked", 0, Moot, false, "an administrator has removed the user from the room: its connections are no members any more. Do not join again by yourself; a join is allowed as long as the rights allow it"},
		{"too_many_rooms", 400, No, false, "leave a room first"},
		{"room_not_stored", 400, No, false, "the chats of this room are not stored: join without `after` and `history`, and send a chat without `Idempotency-Key`"},
		{"join_pending", 400, No, again, "the `join` is still sending the history: wait for its answer"},
		{"half_closed", 400, No, again, "a `receive` on a connection that is closed for sending. The server cannot tell it from a client that is gone"},
	}
}

// accessErrors are about who the caller is, and what it may do.
func accessErrors() []Error {
	return []Error{
		{"unauthenticated", 401, No, false, "send a token first"},
		{"invalid_token", 401, No, false, "the token is not valid here; only the server's log says why"},
		{"token_expired", 401, No, false, "send a new token, and then the request again"},
		{"forbidden", 403, No, false, "no rule grants this: `verb`, `kind` and `name` say what. It says nothing on whether the object exists"},
		{"identity_mismatch", 0, No, false, "the new token is another user's: connect again"},
		{"foreign_origin", 403, No, false, "pages of this origin may not do this: see `--allow-origin`"},
		{"unknown_host", 421, No, false, "this host name is not served: see `--allowed-host`"},
		{"too_many_revocations", 409, No, false, "there are 100,000 revocations: revoke all tokens of a user instead of many of its tokens, and give `expires`"},
		{"too_many_keys", 409, No, false, "there are 10,000 API keys: revoke those that nobody uses"},
		{"beyond_own_rights", 403, No, false, "an API key cannot have rights that its maker does not have: `message` names the rule"},
		{"rate_limited", 429, No, again, "too many chats, messages or bytes a second, or too many tokens: try again after `retry_after_ms`"},
		{"too_many_connections", 429, No, again, "the server, the user or the client's address has too many connections or requests: end some, or try again after `retry_after_ms`"},
	}
}

// storeErrors are about streams, queues and event stores.
func storeErrors() []Error {
	return []Error{
		{"not_served", 404, No, false, "this server was started without it: without streams and queues, schedules, benchmarks or a cluster; or, for `/v1/users` and `/v1/tokens`, without keys"},
		{"not_found", 404, No, false, "there is no stream, queue, group or event store of that name (a queue with priorities or partitions is no stream of its name). If another server has just dropped and made it again, send the request again"},
		{"exists", 409, No, false, "there is one with other options, or the stream of that name is in use"},
		{"too_old", 410, No, false, "the messages were dropped: continue with `after` = `oldest` - 1"},
		{"message_too_large", 422, No, false, "the next message is larger than this server reads, as another program has stored it: continue with `after` = `position`"},
		{"history_lost", 410, No, false, "a failover has lost the position, or it is after the end: continue with `after` = `last`"},
		{"offset_missing", 409, No, false, "the database was restored without the offset of this group: an operator sets it"},
		{"journal_lost", 409, No, false, "the database was restored without the journal of this queue: `message` says what the operator can do"},
		{"sequence_too_old", 409, Earlier, false, "the record of this request is gone: check, and continue with a higher `sequence`"},
		{"queue_stream", 409, No, false, "the stream belongs to a queue: use the requests of queues"},
		{"fenced", 409, No, false, "this connection does not own the partition, or no longer: discard its messages, which its owner gets"},
		{"conflict", 409, No, false, "an event that the condition excludes is stored: read it, decide again"},
		{"duplicate_id", 409, No, false, "another append has stored an event with this `id`, and other events, data or tags"},
		{"too_expensive", 422, No, false, "PostgreSQL could not check the condition within 2 s, or answer the query within 20 s: give a higher `after`, fewer items, or a tag that fewer events have"},
		{"busy", 429, No, again, "too many projections at a time: try again"},
		{"stream_gone", 400, Moot, false, "the stream was dropped: the subscription has ended"},
		{"queue_gone", 400, Moot, false, "the queue was dropped: the consumer has ended"},
	}
}

// deliveryErrors are about deliveries and dead letters.
func deliveryErrors() []Error {
	return []Error{
		{"lease_lost", 409, Others, false, "another consumer has the deliveries in `lost`, or will, or this caller never had them: do not settle them again"},
		{"not_settled", 503, Perhaps, again, "the outcome for the deliveries in `failed` is not known: send the request for these again"},
		{"too_many_deliveries", 429, No, again, "10,000 deliveries of this queue are out: settle some"},
		{"too_many_jobs", 429, No, again, "four jobs, two replays of this user, or a benchmark are running on this server: wait, or stop one"},
	}
}

// serverErrors are about the server.
func serverErrors() []Error {
	return []Error{
		{"no_such_path", 404, No, false, "there is no such URL"},
		{"method_not_allowed", 405, No, false, "see the `Allow` header"},
		{"too_large", 413, No, false, "the body is larger than `--max-message`"},
		{"unsupported_media_type", 415, No, false, "send `Content-Type: application/json`, and no `Content-Encoding`; with `raw` any type other than a form's or `text/plain`"},
		{"unavailable", 503, No, again, "the database cannot be reached, or the SQL function for rights failed: try again"},
		{"overloaded", 503, No, again, "the server is short of memory, and this request held the most: try again later"},
		{"stopping", 503, No, again, "the server is shutting down: try another one"},
		{"not_stored", 500, No, again, "nothing was stored: try again"},
		{"database_refused", 500, No, false, "PostgreSQL refuses this permanently (rights, missing tables): an operator finds the reason in the log"},
		{"outcome_unknown", 500, Perhaps, false, "the server stopped, or was refused by PostgreSQL, before the outcome was known: check, or repeat it with the same `client` and `sequence`"},
		{"internal", 500, Perhaps, false, "the server failed, and its log says why"},
		{"chunks_not_offered", 0, Moot, false, "of `/ws/lanes` alone: clients send no chunks"},
		{"credit_not_offered", 0, Moot, false, "of `/ws/lanes` alone: say hello with credit first"},
		{"invalid_credit", 0, Moot, false, "of `/ws/lanes` alone: below 1 byte, or more than 1 GiB unused"},
	}
}
