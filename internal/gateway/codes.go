package gateway

import (
	"context"
	"errors"
	"net/http"
)

// code is an error that a client is told; its sentences are in publicErrors.
type code string

const (
	codeMalformed    code = "malformed"
	codeUnknownType  code = "unknown_type"
	codeRateLimited  code = "rate_limited"
	codeNotJoined    code = "not_joined"
	codeTooManyRooms code = "too_many_rooms"
	codeJoining      code = "join_pending"
	codeNameTooLong  code = "name_too_long"
	codeNotStoredIn  code = "room_not_stored"
	codeAhead        code = "position_ahead"
	codeUnavailable  code = "unavailable"
	codeNotStored    code = "not_stored"
	codeRefused      code = "database_refused"

	codeChunksNotOffered code = "chunks_not_offered"
	codeCreditNotOffered code = "credit_not_offered"
	codeCredit           code = "invalid_credit"

	codeNotServed       code = "not_served"
	codeName            code = "invalid_name"
	codeInvalid         code = "invalid"
	codeNotFound        code = "not_found"
	codeExists          code = "exists"
	codeNotKeyed        code = "not_keyed"
	codeUnknownOutcome  code = "outcome_unknown"
	codeTooManyMessages code = "too_many_messages"
	codeTooManyFeeds    code = "too_many_subscriptions"
	codeStart           code = "invalid_start"
	codeCredits         code = "invalid_credits"
	codeDuration        code = "invalid_duration"
	codeSubscribed      code = "already_subscribed"
	codeNotSubscribed   code = "not_subscribed"
	codeConsuming       code = "already_consuming"
	codeNotConsuming    code = "not_consuming"
	codeEnded           code = "ended"
	codeTooOld          code = "too_old"
	codeHistoryLost     code = "history_lost"
	codeStreamGone      code = "stream_gone"
	codeQueueGone       code = "queue_gone"
	codeLeaseLost       code = "lease_lost"
	codeNotSettled      code = "not_settled"
	codeSequence        code = "sequence_too_old"
	codeManyPartitions  code = "many_partitions"
	codeManyLanes       code = "many_lanes"
	codePartitioned     code = "partitioned"
	codeIncomplete      code = "offset_missing"
	codeQueueStream     code = "queue_stream"
	codeJournalLost     code = "journal_lost"
	codeConflict        code = "conflict"
	codeDuplicateID     code = "duplicate_id"
	codeTooExpensive    code = "too_expensive"
	codeBusy            code = "busy"

	codeInternal      code = "internal"
	codeOverloaded    code = "overloaded"
	codeTooLarge      code = "too_large"
	codeMediaType     code = "unsupported_media_type"
	codeMethod        code = "method_not_allowed"
	codeNoPath        code = "no_such_path"
	codeForeign       code = "foreign_origin"
	codeHost          code = "unknown_host"
	codeStopping      code = "stopping"
	codeParameter     code = "invalid_parameter"
	codeTooManyLeases code = "too_many_deliveries"
	codeHalfClosed    code = "half_closed"
)

// publicErrors is all that clients ever read of an error.
var publicErrors = map[code]string{
	codeMalformed:    "the message is not a JSON object with fields of the documented types",
	codeUnknownType:  "there is no such type here",
	codeRateLimited:  "too many messages; retry later",
	codeNotJoined:    "join the room first",
	codeTooManyRooms: "this connection is in too many rooms; leave one first",
	codeJoining:      "the join of this room is still sending what was said before: wait for its answer",
	codeNameTooLong:  "a room's or user's name is at most 128 bytes",
	codeNotStoredIn:  "what is said in this room is not kept: join without after and history",
	codeAhead:        "nothing has been stored at this position yet: commit no further than what was received",
	codeUnavailable:  "this cannot be read now; try again later",
	codeNotStored:    "the message could not be stored",
	codeRefused:      "the database refuses this, and trying again does not help: the server's operator finds the reason in its log",

	codeChunksNotOffered: "this server takes no chunks",
	codeCreditNotOffered: "say hello with credit first",
	codeCredit:           "credit: want 1 byte or more, and no more than 1 GiB unused",

	codeNotServed:       "this server does not serve that",
	codeName:            "a name has 1 to 128 bytes without NUL; names that begin with tidewire. are the server's own",
	codeInvalid:         "a name, key, header or number is outside of the documented limits",
	codeNotFound:        "there is no stream, group or queue of that name",
	codeExists:          "there is one of that name, with other options, or a stream of that name that is in use: choose another name, or drop that one first",
	codeNotKeyed:        "the stream was made without keyed: it cannot be read by key",
	codeUnknownOutcome:  "it is not known whether this was stored: look, or send it again and bear a duplicate",
	codeTooManyMessages: "too many messages or deliveries in one request",
	codeTooManyFeeds:    "too many subscriptions and consumptions on this connection; end one first",
	codeStart:           "a subscription begins with one of after, at, from (start or end) and group",
	codeCredits:         "credits are out of the documented range",
	codeDuration:        "a time in milliseconds is out of the documented range",
	codeSubscribed:      "this connection has a subscription of that name; give another name, or wait for the answer to its unsubscribe",
	codeNotSubscribed:   "this connection has no subscription of that name",
	codeConsuming:       "this connection consumes that queue; it can do so again after the answer to its cancel",
	codeNotConsuming:    "this connection does not consume that queue",
	codeEnded:           "it was ended before it had begun",
	codeTooOld:          "the messages from there on are not kept any more: see oldest",
	codeHistoryLost:     "the position is after the end, or of messages that a failover has lost: go on after last, and what was had after it is void",
	codeStreamGone:      "the stream was dropped",
	codeQueueGone:       "the queue was dropped",
	codeLeaseLost:       "some deliveries are not yours any more: see lost",
	codeNotSettled:      "it is not known of some deliveries whether they were dealt with; try again: see failed",

	codeSequence:       "it is not known any more whether this sequence was stored; it was not stored now: go on with a higher one",
	codeManyPartitions: "the keys of these messages belong to several partitions: publish those of each apart",
	codeManyLanes:      "the keys of these messages belong to several lanes: enqueue those of each apart",
	codePartitioned:    "the stream has partitions: name one of them, such as name/0",
	codeIncomplete:     "the group has no offset: the database was restored from a backup that lacks it; an operator sets it anew",
	codeJournalLost:    "the queue has lost its journal: the database was restored from a backup that lacks it; an operator restores one that has it, or begins a new one with SELECT tidewire.restart_queue(queue, after)",
	codeQueueStream:    "this stream holds the messages of a queue: use the requests of queues; it can be read",
	codeConflict:       "an event is in the way: see position and event_type",
	codeDuplicateID:    "an event with that id is stored, and this append is no repetition of the one that stored it",
	codeTooExpensive:   "looking for what is in the way took too long, and nothing was stored: a higher after, or a tag that few events have, makes it cheaper",
	codeBusy:           "the store does as many of these at a time as it may; try again",

	codeInternal:      "the server failed, and its log says why; whether anything was done is not known",
	codeOverloaded:    "the server is short of memory, and this request held the most; try again later",
	codeTooLarge:      "the body is larger than the server takes",
	codeMediaType:     "want Content-Type: application/json; with raw any other than a form's or text/plain",
	codeMethod:        "this path takes other methods: see the Allow header",
	codeNoPath:        "there is no such path",
	codeHost:          "this server is not served under this host name",
	codeForeign:       "a page of another origin may not do this",
	codeStopping:      "the server is shutting down",
	codeParameter:     "a parameter of the query is not a number in the documented range",
	codeHalfClosed:    "the connection is closed for sending: a client that has gone looks the same, so nothing was leased; keep it open until the answer",
	codeTooManyLeases: "too many deliveries of this queue are neither acknowledged nor expired",
}

// statuses are the codes' in HTTP; one that is missing is 400.
var statuses = map[code]int{
	codeForeign:        http.StatusForbidden,
	codeHost:           http.StatusMisdirectedRequest,
	codeNotServed:      http.StatusNotFound,
	codeNotFound:       http.StatusNotFound,
	codeIncomplete:     http.StatusConflict,
	codeJournalLost:    http.StatusConflict,
	codeNoPath:         http.StatusNotFound,
	codeMethod:         http.StatusMethodNotAllowed,
	codeExists:         http.StatusConflict,
	codeQueueStream:    http.StatusConflict,
	codeLeaseLost:      http.StatusConflict,
	codeSequence:       http.StatusConflict,
	codeConflict:       http.StatusConflict,
	codeDuplicateID:    http.StatusConflict,
	codeTooExpensive:   http.StatusUnprocessableEntity,
	codeBusy:           http.StatusTooManyRequests,
	codeTooOld:         http.StatusGone,
	codeHistoryLost:    http.StatusGone,
	codeInternal:       http.StatusInternalServerError,
	codeOverloaded:     http.StatusServiceUnavailable,
	codeTooLarge:       http.StatusRequestEntityTooLarge,
	codeMediaType:      http.StatusUnsupportedMediaType,
	codeTooManyLeases:  http.StatusTooManyRequests,
	codeNotStored:      http.StatusInternalServerError,
	codeRefused:        http.StatusInternalServerError,
	codeUnknownOutcome: http.StatusInternalServerError,
	codeNotSettled:     http.StatusServiceUnavailable,
	codeUnavailable:    http.StatusServiceUnavailable,
	codeStopping:       http.StatusServiceUnavailable,
}

// codeOf is what a client is told of a store's error; otherwise, if it is none
// of those that clients know.
func codeOf(err error, otherwise code) code {
	for _, known := range []struct {
		err  error
		code code
	}{
		{ErrNotFound, codeNotFound}, {ErrInvalid, codeInvalid}, {ErrExists, codeExists}, {ErrNotKeyed, codeNotKeyed},
		{ErrTooOld, codeTooOld}, {ErrHistoryLost, codeHistoryLost}, {ErrLeaseLost, codeLeaseLost}, {ErrOutcomeUnknown, codeUnknownOutcome},
		{ErrSequenceTooOld, codeSequence}, {ErrManyPartitions, codeManyPartitions}, {ErrSpread, codeManyLanes}, {ErrPartitioned, codePartitioned}, {ErrAhead, codeAhead}, {ErrIncomplete, codeIncomplete}, {ErrJournalLost, codeJournalLost}, {ErrQueueStream, codeQueueStream},
		{ErrRefused, codeRefused}, {ErrConflict, codeConflict}, {ErrDuplicateID, codeDuplicateID}, {ErrBusy, codeBusy}, {ErrTooExpensive, codeTooExpensive},
	} {
		if errors.Is(err, known.err) {
			return known.code
		}
	}
	if otherwise == codeNotStored && errors.Is(err, context.Canceled) {
		return codeUnknownOutcome // the server gave up, and PostgreSQL may have the request
	}
	return otherwise
}

// explained is what a client is told of a store's error, with what there is to
// know besides.
func explained(err error, otherwise code) reply {
	with := refusal(codeOf(err, otherwise))
	var old *TooOldError
	if errors.As(err, &old) {
		with.Oldest = &old.Oldest
	}
	var lost *HistoryLostError
	if errors.As(err, &lost) {
		with.Last = &lost.Last
	}
	var conflict *ConflictError
	if errors.As(err, &conflict) {
		with.Position, with.EventType = &conflict.Position, conflict.Type
	}
	var field *FieldError
	if errors.As(err, &field) {
		with.Field, with.Message = field.Field, field.Field+": "+field.Problem
	}
	return with
}
