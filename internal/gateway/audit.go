package gateway

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/tidewire/tidewire/internal/auth"
)

// auditRate is how many denials a second have a line in the audit log, after a burst of as many: a flood of them does not fill the disk.
// All are counted, and the next line says how many had none.
const auditRate = 20

// audit records what callers were denied, and administrative acts. Safe for concurrent use.
type audit struct {
	log     *slog.Logger
	lines   *rate.Limiter
	skipped atomic.Int64
	denials *prometheus.CounterVec
	acts    *prometheus.CounterVec
	// The last ones, for administrators who look at a server: see audit_recent.go.
	lastDenials recentDenials
	lastActs    recentActs
}

func newAudit(log *slog.Logger, metrics prometheus.Registerer) *audit {
	a := &audit{
		log: log, lines: rate.NewLimiter(auditRate, auditRate),
		denials: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tidewire_denials_total", Help: "Requests that were denied for want of a token or a right, by code."}, []string{"code"}),
		acts:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tidewire_admin_acts_total", Help: "Administrative acts of clients that were carried out, by kind."}, []string{"act"}),
	}
	metrics.MustRegister(a.denials, a.acts)
	for why := range denials { // so that a rate has a beginning
		a.denials.WithLabelValues(string(why))
	}
	for _, act := range acts {
		a.acts.WithLabelValues(act)
	}
	return a
}

// Administrative acts.
const (
	actCreateStream = "create stream"
	actDropStream   = "drop stream"
	actCreateQueue  = "create queue"
	actDropQueue    = "drop queue"
	actAlterQueue   = "alter queue"
	actPause        = "pause queue"
	actResume       = "resume queue"
	actPurge        = "purge queue"
	actRedrive      = "redrive dead letters"
	actPurgeDead    = "purge dead letters"
	actReplaceDead  = "replace dead letter"
	actStopJob      = "stop job of queue"
	actReplay       = "replay stream"
	actStopReplay   = "stop job of stream"
	actRetain       = "set retention of stream"
	actSeek         = "seek group of stream"
	actDropGroup    = "drop group of stream"
	actCreateStore  = "create event store"
	actDropStore    = "drop event store"
	actKick         = "kick user from room"

	actPutSchedule    = "put schedule"
	actDropSchedule   = "drop schedule"
	actPauseSchedule  = "pause schedule"
	actResumeSchedule = "resume schedule"
	actDisconnect     = "disconnect user"
	actRevokeUser     = "revoke tokens of user"
	actRevokeToken    = "revoke token"
	actEndConnection  = "disconnect connection"
	actCreateKey      = "create key"
	actRevokeKey      = "revoke key"
	actExchangeKey    = "exchange key"
	actStartBench     = "start benchmark"
	actStopBench      = "stop benchmark"
)

var acts = []string{actCreateStream, actDropStream, actCreateQueue, actDropQueue, actDisconnect, actRevokeUser, actRevokeToken, actEndConnection, actCreateKey, actRevokeKey}

// denials are the codes that the audit log records.
var denials = map[code]bool{
	codeUnauthenticated: true, codeInvalidToken: true, codeTokenExpired: true, codeForbidden: true, codeIdentity: true, codeBeyond: true,
}

// denied records that a caller, or a client without one, was denied something. It ignores problems of other kinds. request is the ID of an HTTP
// request, or empty.
func (a *audit) denied(peer fmt.Stringer, request string, c *auth.Caller, why *problem) {
	if !denials[why.code] {
		return
	}
	a.denials.WithLabelValues(string(why.code)).Inc()
	what := denialOf{Code: why.code, Address: peer.String(), Verb: why.need.verb, Kind: why.need.kind, Name: why.need.name}
	if c != nil {
		what.User, what.Role = c.User, c.Role
	}
	a.lastDenials.add(what, request, why.cause, time.Now().UTC())
	if !a.lines.Allow() {
		a.skipped.Add(1)
		return
	}
	fields := append(actor(peer.String(), request, c), "code", why.code)
	if n := why.need; n.verb != "" {
		fields = append(fields, "verb", n.verb, "kind", n.kind, "name", n.name)
	}
	if why.cause != nil {
		fields = append(fields, "reason", why.cause)
	}
	if n := a.skipped.Swap(0); n > 0 {
		fields = append(fields, "without_a_line", n)
	}
	a.log.Info("denied", fields...)
}

// act records an administrative act that was carried out. To create what is there counts, too.
func (a *audit) act(peer fmt.Stringer, request string, c *auth.Caller, act, target string) {
	a.acts.WithLabelValues(act).Inc()
	is := recentAct{Time: time.Now().UTC(), Address: peer.String(), Act: act, Target: target, RequestID: request}
	if c != nil {
		is.User, is.Role = c.User, c.Role
	}
	a.lastActs.add(is)
	a.log.Info("administrative act", append(actor(peer.String(), request, c), "act", act, "target", target)...)
}

// jobEnded records how a job of dead letters has ended. The act, when it began, does not say how many it changed.
func (a *audit) jobEnded(is job) {
	fields := []any{"job", is.ID, "queue", is.Queue, "act", is.Act, "state", is.State, "changed", is.Changed}
	if is.Error != "" {
		fields = append(fields, "code", is.Error)
	}
	a.log.Info("job ended", fields...)
}

// actor says who it was. In open mode there is only the address.
func actor(peer, request string, c *auth.Caller) []any {
	fields := []any{"peer", peer}
	if request != "" {
		fields = append(fields, "request_id", request)
	}
	if c != nil {
		fields = append(fields, "user", c.User, "role", c.Role)
	}
	return fields
}
