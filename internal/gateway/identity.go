package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
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
	// noticeShare, minNotice and maxNotice say when a client is told that its token ends: when that share of the token's
	// life has passed, and within these times before its end.
	noticeShare          = 0.8
	minNotice, maxNotice = 15 * time.Second, 120 * time.Second
)

// identity is who a connection is. In open mode, without a policy, it is nobody, who may do everything. A client names itself with a
// token in the handshake or in a message of type auth, and again with a new token before that one ends.
type identity struct {
	policy *auth.Policy
	conn   *connection
	cfg    AuthConfig
	log    *rareLog
	caller atomic.Pointer[auth.Caller] // nil: no token yet
	// changed is called after a new token has taken the place of another one: it ends what the new one does not allow.
	changed func(*auth.Caller)
	talks   bool // the endpoint has messages of its own: the client is told before its token ends
	early   int  // messages without a token, and wrong tokens; of the reading goroutine

	mu    sync.Mutex
	timer *time.Timer // the next of: no token in time, the notice, the end
	ended bool
}

// AuthConfig configures the authentication of a Server.
type AuthConfig struct {
	// Policy decides who callers are, and what they may do. Defaults to none: everybody may do everything.
	Policy *auth.Policy
	// Timeout is how long a connection may take to send a token. Defaults to 10 s.
	Timeout time.Duration
	// Grace is how long a connection goes on after the end of its token: it gets no new requests answered, and what flows goes on.
	// Defaults to 25 s.
	Grace time.Duration
}

func (c AuthConfig) withDefaults() AuthConfig {
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.Grace == 0 {
		c.Grace = 25 * time.Second
	}
	return c
}

// callerKey is the key of a request's caller in its context.
type callerKey struct{}

// identify verifies the Authorization header of a request, and returns the request with its caller. A wrong token is answered
// with 401, and ok is false. A request without a token is anonymous, or has no caller.
func (s *Server) identify(w http.ResponseWriter, r *http.Request) (*http.Request, bool) {
	policy := s.cfg.Auth.Policy
	header := r.Header.Get("Authorization")
	if header == "" {
		if c, ok := policy.AnonymousCaller(); ok {
			r = r.WithContext(context.WithValue(r.Context(), callerKey{}, c))
		}
		return r, true
	}
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		s.unauthorized(w, codeInvalidToken)
		return r, false
	}
	c, err := policy.Authenticate(r.Context(), strings.TrimSpace(token))
	if err != nil {
		why := tokenCode(err)
		s.authLog.warn("a token was not accepted", "peer", r.RemoteAddr, "error", err)
		s.unauthorized(w, why)
		return r, false
	}
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, c)), true
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

func callerOf(r *http.Request) *auth.Caller {
	c, _ := r.Context().Value(callerKey{}).(*auth.Caller)
	return c
}

func (s *Server) unauthorized(w http.ResponseWriter, why code) {
	challenge := `Bearer realm="tidewire"`
	if why == codeInvalidToken || why == codeTokenExpired {
		challenge += `, error="invalid_token"`
	}
	w.Header().Set("WWW-Authenticate", challenge)
	writeError(w, refusal(why))
}

// needing lets only callers pass that have a right: it is for endpoints that have nothing else to ask for.
func (s *Server) needing(n need, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch c := callerOf(r); {
		case s.cfg.Auth.Policy == nil:
		case c == nil:
			s.unauthorized(w, codeUnauthenticated)
			return
		case !n.granted(c):
			writeError(w, n.refusal().reply())
			return
		}
		next.ServeHTTP(w, r)
	})
}

// begin is called when the connection is open. Its caller is that of the handshake, or nil. An endpoint that talks has messages of type auth.
func (i *identity) begin(talks bool) {
	if i.policy == nil {
		return
	}
	i.talks = talks
	if caller := i.caller.Load(); caller != nil {
		i.set(caller)
		return
	}
	i.after(i.cfg.Timeout, func() { i.close(statusNoToken, "no token came in time") })
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

// after has f called after a time, in place of what was to be called.
func (i *identity) after(d time.Duration, f func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.timer != nil {
		i.timer.Stop()
	}
	if !i.ended {
		i.timer = time.AfterFunc(max(d, 0), f)
	}
}

// close ends the connection with a code that tells the client what to do next.
func (i *identity) close(code websocket.StatusCode, reason string) {
	i.conn.StartClose(code, reason)
	i.conn.expired.Store(true)
	i.conn.SetReadDeadline(time.Now())
}

// set makes the caller the connection's, and plans its end.
func (i *identity) set(c *auth.Caller) {
	i.caller.Store(c)
	if c.Expires.IsZero() { // anonymous
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.timer != nil {
			i.timer.Stop()
		}
		return
	}
	left := time.Until(c.Expires)
	life := left
	if !c.Issued.IsZero() {
		life = c.Expires.Sub(c.Issued)
	}
	notice := min(max(time.Duration((1-noticeShare)*float64(life)), minNotice), maxNotice)
	i.after(left-notice, func() { i.expiring(c) })
}

// expiring tells the client that its token ends, and plans the end of the connection.
func (i *identity) expiring(c *auth.Caller) {
	left := time.Until(c.Expires)
	i.after(left+i.cfg.Grace, func() { i.close(statusTokenOver, "the token has expired") })
	if left > 0 && i.talks {
		text, _ := json.Marshal(map[string]any{"type": "expiring", "expires_in_ms": left.Milliseconds()})
		i.conn.Queue(websocket.OpText, text)
		i.conn.Flush()
	}
}

// authMessage is a message of type auth.
type authMessage struct {
	ID    json.RawMessage `json:"id"`
	Token string          `json:"token"`
}

// handle answers a message of type auth.
func (i *identity) handle(ctx context.Context, text []byte) reply {
	var m authMessage
	if err := json.Unmarshal(text, &m); err != nil || m.Token == "" {
		return malformed("token", "a string").reply()
	}
	if i.policy == nil {
		return reply{Type: "ok"} // open mode: the same client works there
	}
	c, err := i.policy.Authenticate(ctx, m.Token)
	if err != nil {
		i.log.warn("a token was not accepted", "peer", i.conn.RemoteAddr(), "error", err)
		i.count(len(text))
		return refusal(tokenCode(err)) // the former token stays
	}
	before := i.caller.Load()
	if before != nil && before.User != "" && before.User != c.User {
		return refusal(codeIdentity)
	}
	i.set(c)
	if before != nil && i.changed != nil {
		i.changed(c)
	}
	expires, now := c.Expires.Unix(), time.Now().Unix()
	return reply{Type: "ok", User: c.User, Role: c.Role, Expires: &expires, Now: &now}
}

// refuses returns why a message may not be looked at: there is no token, or it has expired. What only settles or ends something goes on.
func (i *identity) refuses(kind string, size int) *problem {
	if i.policy == nil {
		return nil
	}
	c := i.caller.Load()
	switch {
	case c == nil:
		i.count(size)
		return because(codeUnauthenticated)
	case c.Expires.IsZero() || time.Now().Before(c.Expires):
		return nil
	}
	switch kind {
	case "ack", "nack", "extend", "unsubscribe", "cancel", "leave", "pong":
		return nil
	}
	return because(codeTokenExpired)
}

// count closes a connection that sends too much before it has a good token.
func (i *identity) count(size int) {
	if i.caller.Load() != nil {
		return
	}
	if i.early++; i.early > maxEarly || size > maxEarlyBytes {
		i.close(statusTokenOver, "send a token first")
	}
}
