package gateway

import (
	"context"
	"errors"
	"net/http"

	"github.com/tidewire/tidewire/internal/engine"
)

// code is an error code for clients. The codes and texts of engines are in
// package engine; the texts of the others are in publicErrors.
type code = engine.Code

const (
	codeMalformed          code = "malformed"
	codeUnknownType        code = "unknown_type"
	codeUnknownField       code = "unknown_field"
	codeRateLimited        code = "rate_limited"
	codeNotJoined          code = "not_joined"
	codeKicked             code = "kicked"
	codeTooManyRooms       code = "too_many_rooms"
	codeTooManyConnections code = "too_many_connections"
	codeJoining            code = "join_pending"
	codeNameTooLong        code = "name_too_long"
	codeNotStoredIn        code = "room_not_stored"
	codeUnavailable        code = "unavailable"
	codeNotStored          code = "not_stored"

	codeChunksNotOffered code = "chunks_not_offered"
	codeCreditNotOffered code = "credit_not_offered"
	codeCredit           code = "invalid_credit"

	codeNotServed       code = "not_served"
	codeName            code = "invalid_name"
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
	codeStreamGone      code = "stream_gone"
	codeQueueGone       code = "queue_gone"
	codeNotSettled      code = "not_settled"

	codeUnauthenticated code = "unauthenticated"
	codeInvalidToken    code = "invalid_token"
	codeTokenExpired    code = "token_expired"
	codeForbidden       code = "forbidden"
	codeIdentity        code = "identity_mismatch"

	codeTooManyRevocations code = "too_many_revocations"
	codeTooManyKeys        code = "too_many_keys"
	codeBeyond             code = "beyond_own_rights"

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
	codeTooManyJobs   code = "too_many_jobs"
	codeHalfClosed    code = "half_closed"
)

// publicErrors are the texts that clients get with each code.
var publicErrors = withEngines(map[code]string{
	codeMalformed:          "the message is not a JSON object with fields of the documented types",
	codeUnknownType:        "there is no such type here",
	codeUnknownField:       "the request has a field that it should not have: see field",
	codeRateLimited:        "too many messages; retry later",
	codeNotJoined:          "join the room first",
	codeKicked:             "an administrator has removed this user from the room: a program does not join again by itself",
	codeTooManyConnections: "too many connections or requests of this server, user or address; retry later",
	codeTooManyRooms:       "this connection is in too many rooms; leave one first",
	codeJoining:            "the join of this room is still sending the history: wait for its answer",
	codeNameTooLong:        "a room's or user's name is at most 128 bytes",
	codeNotStoredIn:        "the chats of this room are not stored: join without after and history",
	codeUnavailable:        "this cannot be read now; try again later",
	codeNotStored:          "the message could not be stored",

	codeChunksNotOffered: "clients cannot send chunks",
	codeCreditNotOffered: "say hello with credit first",
	codeCredit:           "credit: want 1 byte or more, and no more than 1 GiB unused",

	codeNotServed:       "this server was started without it",
	codeName:            "a name has 1 to 128 bytes without NUL; names that begin with tidewire. are the server's own",
	codeTooManyMessages: "too many messages or deliveries in one request",
	codeTooManyFeeds:    "too many subscriptions and consumptions on this connection; end one first",
	codeStart:           "want only one of after, at, from (start or end) and group",
	codeCredits:         "credits are out of the documented range",
	codeDuration:        "a time in milliseconds is out of the documented range",
	codeSubscribed:      "this connection has a subscription of that name; give another name, or wait for the answer to its unsubscribe",
	codeNotSubscribed:   "this connection has no subscription of that name",
	codeConsuming:       "this connection consumes that queue; it can do so again after the answer to its cancel",
	codeNotConsuming:    "this connection does not consume that queue",
	codeEnded:           "it was ended before it began",
	codeStreamGone:      "the stream was dropped",
	codeQueueGone:       "the queue was dropped",
	codeNotSettled:      "the outcome for some deliveries is not known: send the request again for those in failed",

	codeUnauthenticated: "send a token first: in the header Authorization, or in a message of type auth",
	codeInvalidToken:    "the token is not valid here: the server's log says why",
	codeTokenExpired:    "the token has expired: send a new one",
	codeForbidden:       "no rule grants you this: see verb, kind and name",
	codeIdentity:        "the new token is another user's: connect again to be that user",

	codeTooManyRevocations: "there are as many revocations as servers hold in memory: revoke all tokens of a user instead of many of its tokens, and give expires, after which a revocation can be forgotten",

	codeTooManyKeys: "there are as many API keys as servers hold in memory: revoke those that nobody uses",
	codeBeyond:      "you cannot give rights that you do not have",

	codeInternal:      "the server failed, and its log says why; it is not known whether the request had an effect",
	codeOverloaded:    "the server is short of memory, and this request held the most; try again later",
	codeTooLarge:      "the body is larger than the server takes",
	codeMediaType:     "want Content-Type: application/json, and no Content-Encoding; with raw any type other than a form's or text/plain",
	codeMethod:        "this path does not take this method: see the Allow header",
	codeNoPath:        "there is no such path",
	codeHost:          "this host name is not served: the operator can add it with --allowed-host",
	codeForeign:       "pages of this origin may not do this: the operator can allow them with --allow-origin",
	codeStopping:      "the server is shutting down",
	codeParameter:     "a parameter of the query is not a number in the documented range",
	codeHalfClosed:    "the connection is closed for sending, as that of a client that is gone; nothing was leased: keep it open until the answer",
	codeTooManyLeases: "too many deliveries of this queue are neither acknowledged nor expired",
	codeTooManyJobs:   "this server runs as many jobs as it may: wait for one of them, or stop it",
})

// withEngines adds the texts of engine errors.
func withEngines(texts map[code]string) map[code]string {
	for _, e := range engine.Errors {
		texts[e.Code] = e.Text
	}
	return texts
}

// statuses are the HTTP statuses of codes; a missing one is 400.
var statuses = map[code]int{
	codeUnauthenticated:        http.StatusUnauthorized,
	codeInvalidToken:           http.StatusUnauthorized,
	codeTokenExpired:           http.StatusUnauthorized,
	codeForbidden:              http.StatusForbidden,
	codeTooManyRevocations:     http.StatusConflict,
	codeTooManyKeys:            http.StatusConflict,
	codeBeyond:                 http.StatusForbidden,
	codeForeign:                http.StatusForbidden,
	codeHost:                   http.StatusMisdirectedRequest,
	codeNotServed:              http.StatusNotFound,
	engine.CodeNotFound:        http.StatusNotFound,
	engine.CodeIncomplete:      http.StatusConflict,
	engine.CodeJournalLost:     http.StatusConflict,
	codeNoPath:                 http.StatusNotFound,
	codeMethod:                 http.StatusMethodNotAllowed,
	engine.CodeExists:          http.StatusConflict,
	engine.CodeQueueStream:     http.StatusConflict,
	engine.CodeLeaseLost:       http.StatusConflict,
	engine.CodeFenced:          http.StatusConflict,
	engine.CodeSequence:        http.StatusConflict,
	engine.CodeConflict:        http.StatusConflict,
	engine.CodeDuplicateID:     http.StatusConflict,
	engine.CodeTooExpensive:    http.StatusUnprocessableEntity,
	engine.CodeBusy:            http.StatusTooManyRequests,
	codeRateLimited:            http.StatusTooManyRequests,
	codeTooManyConnections:     http.StatusTooManyRequests,
	engine.CodeTooOld:          http.StatusGone,
	engine.CodeHistoryLost:     http.StatusGone,
	engine.CodeMessageTooLarge: http.StatusUnprocessableEntity,
	codeInternal:               http.StatusInternalServerError,
	codeOverloaded:             http.StatusServiceUnavailable,
	codeTooLarge:               http.StatusRequestEntityTooLarge,
	codeMediaType:              http.StatusUnsupportedMediaType,
	codeTooManyLeases:          http.StatusTooManyRequests,
	codeTooManyJobs:            http.StatusTooManyRequests,
	codeNotStored:              http.StatusInternalServerError,
	engine.CodeRefused:         http.StatusInternalServerError,
	engine.CodeUnknownOutcome:  http.StatusInternalServerError,
	codeNotSettled:             http.StatusServiceUnavailable,
	codeUnavailable:            http.StatusServiceUnavailable,
	codeStopping:               http.StatusServiceUnavailable,
}

// retryable are the codes after which the same request, sent again later, may succeed and has no second effect: it had none, or has none
// twice. After the others something has to change first: the request, the token, the rights, or what the client knows.
var retryable = map[code]bool{
	codeRateLimited:        true,
	codeTooManyConnections: true,
	codeJoining:            true,
	codeUnavailable:        true,
	codeNotStored:          true,
	codeNotSettled:         true,
	codeTooManyLeases:      true,
	codeTooManyJobs:        true,
	codeOverloaded:         true,
	codeStopping:           true,
	codeHalfClosed:         true,
	engine.CodeBusy:        true,
}

// codeOf returns the code of an engine's error, or otherwise for any other
// error.
func codeOf(err error, otherwise code) code {
	if known, ok := errors.AsType[*engine.Error](err); ok {
		return known.Code
	}
	if _, never := errors.AsType[notAsked](err); otherwise == codeNotStored && errors.Is(err, context.Canceled) && !never {
		return engine.CodeUnknownOutcome // the server gave up, and PostgreSQL may have the request
	}
	return otherwise
}

// needsWarning reports whether the operator has to hear of a failure: its code is the one for failures without a code of their own, or
// the database refuses. A request that is invalid in itself is no such failure: a client could fill the log.
func needsWarning(with, otherwise code) bool {
	return with == otherwise && with != engine.CodeInvalid || with == engine.CodeRefused
}

// explained is the answer for a store's error, with its details.
func explained(err error, otherwise code) reply {
	with := refusal(codeOf(err, otherwise))
	var old *engine.TooOldError
	if errors.As(err, &old) {
		with.Oldest = &old.Oldest
	}
	if large, is := errors.AsType[*engine.TooLargeError](err); is {
		with.Position, with.Size = &large.Position, &large.Size
	}
	var lost *engine.HistoryLostError
	if errors.As(err, &lost) {
		with.Last = &lost.Last
	}
	var conflict *engine.ConflictError
	if errors.As(err, &conflict) {
		with.Position, with.EventType = &conflict.Position, conflict.Type
	}
	var field *engine.FieldError
	if errors.As(err, &field) {
		with.Field, with.Message = field.Field, field.Field+": "+field.Problem
	}
	return with
}
