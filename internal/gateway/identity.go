package gateway

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/limits"
	"github.com/tidewire/tidewire/internal/wire"
	"github.com/tidewire/tidewire/websocket"
)

// Close codes of authentication.
const (
	statusTokenOver websocket.StatusCode = 4401 // get a new token, and connect again
	statusNoToken   websocket.StatusCode = 4408 // no token came in time
)

const (
	// maxEarly and maxEarlyBytes bound what a connection without a token may send: messages, and bytes of one.
	maxEarly      = 4
	maxEarlyBytes = 16 << 10
	// maxEarlyPings bounds its Pings and Pongs.
	maxEarlyPings = 100
	// noticeShare, minNotice and maxNotice say when a client is told that its token ends: when that share of the token's
	// life has passed, and within these times before its end.
	noticeShare          = 0.8
	minNotice, maxNotice = 15 * time.Second, 120 * time.Second
	// lastAnswers bounds how long the end of a token waits for answers.
	lastAnswers = 5 * time.Second
)

// identity is who a connection is. In open mode, without a policy, it is nobody, who may do everything. A client names itself with a
// token in the handshake or in a message of type auth, and again with a new token before that one ends.
type identity struct {
	policy *auth.Policy
	conn   *connection
	cfg    AuthConfig
	log    *limits.Log
	audit  *audit
	caller atomic.Pointer[auth.Caller] // nil: no token yet
	// changed is called after a new token has taken the place of another one, or when rights may have changed: it ends what the caller may not have.
	changed func(context.Context, *auth.Caller)
	talks   atomic.Bool // the endpoint has messages of its own: the client is told before its token ends
	early   int         // messages before a good token; of the reading goroutine
	// earlyPings are Pings and Pongs before it.
	earlyPings int
	changes    *changes
	at         uint64      // how many changes there were before the caller of the handshake was verified
	stale      atomic.Bool // the reading goroutine has to check the rights again
	revoked    atomic.Bool // the token or key was revoked: the connection is closing
	// renewals bounds how often tokens are sent: of the reading goroutine.
	renewals rateLimit

	mu        sync.Mutex
	timer     *time.Timer // the next of: no token in time, the notice, the end
	finishing bool        // the last answers are on their way
	ended     bool
}

// AuthConfig configures the authentication of a Server.
type AuthConfig struct {
	// Policy decides who callers are, and what they may do. Defaults to none: everybody may do everything.
	Policy *auth.Policy
	// Administration records acts of administrators, and tells what they change. Defaults to none: then the routes for such acts are not served.
	Administration Administration
	// Timeout is how long a connection may take to send a token. Defaults to 10 s.
	Timeout time.Duration
	// Grace is how long a connection goes on after the end of its token: it gets no new requests answered, and what flows goes on.
	// Endpoints without messages of their own have none. Defaults to none.
	Grace time.Duration
}

func (c AuthConfig) withDefaults() AuthConfig {
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	return c
}

// callerKey is the key of a request's caller in its context.
type callerKey struct{}

// identified is who a request is, or why its token was not accepted.
type identified struct {
	caller *auth.Caller // nil without a token
	why    code
	cause  error  // of why, for the audit log alone
	at     uint64 // how many changes there were before
}

// identify verifies the Authorization header of a request, and returns the request with the result. Endpoints that are for everybody
// take no notice of it. A request without a token is anonymous, or has no caller.
func (s *Server) identify(r *http.Request) *http.Request {
	policy, header := s.cfg.Auth.Policy, r.Header.Get("Authorization")
	who := identified{at: s.changes.number()}
	scheme, token, _ := strings.Cut(header, " ")
	switch {
	case header == "":
		who.caller, _ = policy.AnonymousCaller()
	case !strings.EqualFold(scheme, "Bearer"):
		who.why = codeInvalidToken
	default:
		var err error
		if who.caller, err = policy.Authenticate(r.Context(), strings.TrimSpace(token)); err != nil {
			s.authLog.Warn(s.limits.ClientAddress(r), "a token was not accepted", "error", err)
			who.why, who.cause = tokenCode(err), err
		}
	}
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, who))
}

// tokenCode is what a client is told of a token that was not accepted. The reason is for the log alone.
func tokenCode(err error) code {
	switch {
	case errors.Is(err, auth.ErrTokenExpired):
		return codeTokenExpired
	case errors.Is(err, auth.ErrNoKeys):
		return codeUnavailable
	}
	return codeInvalidToken
}

// callerOf returns the caller of a request, or nil and why there is none.
func callerOf(r *http.Request) (*auth.Caller, code) {
	who, _ := r.Context().Value(callerKey{}).(identified)
	if who.caller == nil && who.why == "" {
		who.why = codeUnauthenticated
	}
	return who.caller, who.why
}

// changesBefore returns how many changes there were before the caller of a request was verified.
func changesBefore(r *http.Request) uint64 {
	who, _ := r.Context().Value(callerKey{}).(identified)
	return who.at
}

// unauthorized answers a request without a good token. Its body is not waited for.
func (s *Server) unauthorized(w http.ResponseWriter, r *http.Request, why code) {
	challenge := `Bearer realm="tidewire"`
	if why == codeInvalidToken || why == codeTokenExpired {
		challenge += `, error="invalid_token"`
	}
	w.Header().Set("WWW-Authenticate", challenge)
	dropBody(w, r)
	who, _ := r.Context().Value(callerKey{}).(identified)
	s.audit.denied(s.limits.ClientAddress(r), requestID(r), nil, &problem{code: why, cause: who.cause})
	writeError(w, refusal(why))
}

// dropBody has the answer sent at once, although the body of the request has not arrived: package http would wait for a small one.
func dropBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close")
		http.NewResponseController(w).SetReadDeadline(time.Now())
	}
}

// needing lets only callers pass that have a right: it is for endpoints that have nothing else to ask for.
func (s *Server) needing(n need, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch c, why := callerOf(r); {
		case s.cfg.Auth.Policy == nil:
		case c == nil:
			s.unauthorized(w, r, why)
			return
		default:
			if denied := n.denied(r.Context(), c); denied != nil {
				s.audit.denied(s.limits.ClientAddress(r), requestID(r), c, denied)
				writeError(w, denied.reply())
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// begin is called when the connection is open. Its caller is that of the handshake, or nil. An endpoint that talks has messages of type auth.
func (i *identity) begin(talks bool) {
	if i.policy == nil { // there is nothing to wait for
		i.conn.AllowCompression()
		return
	}
	i.talks.Store(talks)
	if caller := i.caller.Load(); caller != nil {
		i.set(caller, i.at)
		return
	}
	i.plan(nil, i.cfg.Timeout, func() {
		if i.caller.Load() == nil {
			i.close(statusNoToken, "no token came in time")
		}
	})
}

// end stops the timer. The connection is closing.
func (i *identity) end() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ended = true
	if i.timer != nil {
		i.timer.Stop()
	}
}

// close ends the connection with a code that tells the client what to do next.
func (i *identity) close(code websocket.StatusCode, reason string) {
	i.conn.StartClose(code, reason)
	i.conn.expired.Store(true)
	i.conn.SetReadDeadline(time.Now())
}

// finish ends the connection of a caller, with a code that tells the client what to do next. What was asked for before has its answer first (on
// /ws/ingest: its acknowledgement), if that does not take longer than lastAnswers: meanwhile nothing more is read, and what flows goes on. It does nothing
// if another caller has come meanwhile.
func (i *identity) finish(c *auth.Caller, code websocket.StatusCode, reason string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.finishing && code == statusRevoked && i.caller.Load() == c: // what the client is told of two reasons
		i.revoked.Store(true)
		i.conn.final.Store(&finalClose{code, reason})
	case i.planNext(c, lastAnswers, func() { last := i.conn.final.Load(); i.close(last.code, last.reason) }):
		i.finishing = true // no new token takes the place of this end
		i.revoked.Store(code == statusRevoked)
		i.conn.endWith(code, reason)
	}
}

// set makes the caller the connection's, and plans the notice of its end. There were that many changes before it was verified.
func (i *identity) set(c *auth.Caller, at uint64) {
	i.caller.Store(c)
	i.conn.AllowCompression()
	i.conn.owner.users.named(i.conn)
	missed, ok := i.changes.since(at)
	if !ok {
		i.finish(c, statusTokenOver, "the rights have changed: connect again")
		return
	}
	for _, change := range missed {
		if i.accessChanged(change) {
			return
		}
	}
	if !i.policy.Valid(c) { // revoked since it was verified: accessChanged may have missed it
		i.revoke(c)
		return
	}
	if !i.policy.Current(c) { // the rules have changed since: RulesChanged may have missed it
		i.renew()
		return
	}
	i.schedule(c)
}

// schedule plans the notice of the end of the caller's token.
func (i *identity) schedule(c *auth.Caller) {
	if c.Expires.IsZero() { // anonymous, or a key without an end
		i.plan(c, -1, nil)
		return
	}
	left := time.Until(c.Expires)
	life := left
	if !c.Issued.IsZero() {
		life = c.Expires.Sub(c.Issued)
	}
	notice := min(max(time.Duration((1-noticeShare)*float64(life)), minNotice), maxNotice)
	i.plan(c, left-notice, func() { i.expiring(c) })
}

// expiring tells the client that its token ends, and plans the end of the connection. A client that cannot send another token has no grace.
func (i *identity) expiring(c *auth.Caller) {
	left, grace := time.Until(c.Expires), i.cfg.Grace
	if !i.talks.Load() {
		grace = 0
	}
	planned := i.plan(c, left+grace, func() {
		if i.caller.Load() == c { // no new token has come meanwhile
			i.finish(c, statusTokenOver, "the token has expired")
		}
	})
	if !planned {
		return
	}
	if i.talks.Load() {
		i.conn.notice(func(w *wire.Writer) {
			w.Open()
			w.Name("type")
			w.Text("expiring")
			w.Name("expires_in_ms")
			w.Int(max(left, 0).Milliseconds())
			w.Close()
		})
	}
}

// plan has f called after a time, in place of what was planned before. It does nothing, and returns false, if the connection is ending or
// the caller is not its caller any more: a timer that has fired may come after a new token. Without f nothing is planned.
func (i *identity) plan(c *auth.Caller, d time.Duration, f func()) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.planNext(c, d, f)
}

// planNext is plan. i.mu is held.
func (i *identity) planNext(c *auth.Caller, d time.Duration, f func()) bool {
	if i.ended || i.finishing || i.caller.Load() != c {
		return false
	}
	if i.timer != nil {
		i.timer.Stop()
	}
	if f != nil {
		i.timer = time.AfterFunc(max(d, 0), f)
	}
	return true
}

// handle answers a message of type auth.
func (i *identity) handle(ctx context.Context, token string) reply {
	if token == "" {
		return malformed("token", "a string").reply()
	}
	if i.policy == nil {
		return reply{Type: "ok"} // open mode: the same client works there
	}
	if wait, ok := i.renewals.take(time.Now()); !ok { // each costs the check of a signature
		return later(codeRateLimited, wait)
	}
	at := i.changes.number()
	c, err := i.policy.Authenticate(ctx, token)
	if err != nil {
		i.log.Warn(i.conn.address, "a token was not accepted", "error", err)
		i.audit.denied(i.conn.address, "", i.caller.Load(), &problem{code: tokenCode(err), cause: err})
		return refusal(tokenCode(err)) // the former token stays
	}
	before := i.caller.Load()
	if before != nil && before.User != "" && before.User != c.User {
		i.audit.denied(i.conn.address, "", before, because(codeIdentity))
		return refusal(codeIdentity)
	}
	if why := i.conn.identified(c); why != nil {
		return later(why.code, connectionRetry)
	}
	i.set(c, at)
	if before != nil && i.changed != nil {
		i.apply(ctx, c)
	}
	now := time.Now().Unix()
	with := reply{Type: "ok", User: c.User, Role: c.Role, Now: &now}
	if !c.Expires.IsZero() {
		expires := c.Expires.Unix()
		with.Expires = &expires
	}
	return with
}

// refuses returns why a message may not be looked at: there is no token, or it has expired. Messages that only settle or end something go on.
func (i *identity) refuses(kind string) *problem {
	if i.policy == nil {
		return nil
	}
	c := i.caller.Load()
	switch {
	case i.revoked.Load():
		return because(codeInvalidToken)
	case c == nil:
		return because(codeUnauthenticated)
	case c.Expires.IsZero() || time.Now().Before(c.Expires):
		return nil
	}
	switch kind {
	case "begin", "ack", "nack", "extend", "unsubscribe", "cancel", "leave", "pong":
		return nil
	}
	return because(codeTokenExpired)
}

// admits counts a message that comes before a good token, whatever it is, and closes a connection that sends too much of them. It reports
// whether the message may be looked at.
func (i *identity) admits(size int) bool {
	if i.policy == nil || i.caller.Load() != nil {
		return true
	}
	i.early++
	if i.early <= maxEarly && size <= maxEarlyBytes {
		return true
	}
	i.close(statusTokenOver, "send a token first")
	return false
}
