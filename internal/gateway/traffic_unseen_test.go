package gateway_test

const (
	unseenCrowd   = "needs more than 1,000 users: internal/room has the test"
	unseenLag     = "needs a socket that is full: internal/room has the test"
	unseenRaw     = "the test speaks HTTP by hand, because it closes its half of the connection: api_queues_test.go"
	unseenKeys    = "needs API keys in a database: internal/access has the test"
	unseenStopped = "a run that is stopped has no step any more"
	unseenRunning = "the answer comes when the job begins: it has not ended"
)

// unseen is what is described and does not occur in what the tests of this package record, with the reason. Names are those of traffic.
var unseen = map[string]string{
	"answer of GET /v1/rooms/{room}/members.truncated": unseenCrowd,
	"message presence.truncated":                       unseenCrowd,

	"message gap":        unseenLag,
	"message gap.type":   unseenLag,
	"message gap.room":   unseenLag,
	"message gap.missed": unseenLag,

	"code half_closed": unseenRaw,

	"route POST /v1/keys/exchange":             unseenKeys,
	"answer of POST /v1/keys/exchange":         unseenKeys,
	"answer of POST /v1/keys/exchange.key":     unseenKeys,
	"answer of POST /v1/keys/exchange.expires": unseenKeys,

	"answer of DELETE /v1/bench/run.run.step":        unseenStopped,
	"answer of DELETE /v1/bench/run.run.step.number": unseenStopped,
	"answer of DELETE /v1/bench/run.run.step.of":     unseenStopped,
	"answer of DELETE /v1/bench/run.run.step.phase":  unseenStopped,
	"answer of DELETE /v1/bench/run.run.step.row":    unseenStopped,
	"answer of POST /v1/bench/run.run.ended":         unseenRunning,

	"answer of POST /v1/streams/{stream}/replay.ended":          unseenRunning,
	"answer of POST /v1/streams/{stream}/replay.error":          unseenRunning,
	"answer of POST /v1/streams/{stream}/replay.first":          unseenRunning,
	"answer of POST /v1/streams/{stream}/replay.first.position": unseenRunning,
	"answer of POST /v1/streams/{stream}/replay.first.time":     unseenRunning,
	"answer of POST /v1/streams/{stream}/replay.last":           unseenRunning,
	"answer of POST /v1/streams/{stream}/replay.last.position":  unseenRunning,
	"answer of POST /v1/streams/{stream}/replay.last.time":      unseenRunning,

	"answer of POST /v1/queues/{queue}/dead/purge.ended":   unseenRunning,
	"answer of POST /v1/queues/{queue}/dead/purge.error":   unseenRunning,
	"answer of POST /v1/queues/{queue}/dead/redrive.ended": unseenRunning,
	"answer of POST /v1/queues/{queue}/dead/redrive.error": unseenRunning,
}
