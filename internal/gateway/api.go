package gateway

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/limits"
	"github.com/tidewire/tidewire/internal/wire"
)

// api is the HTTP API under /v1/. Requests and answers are JSON.
type api struct {
	server    *Server
	mux       *http.ServeMux
	consumers *pullConsumers
	jobs      *jobs
	followed  *followedRooms
	searching *fairSlots // searches that read
	// polls ends when the server stops: from then on no request waits for
	// messages, and bodies must arrive within DrainTimeout.
	polls    context.Context
	endPolls context.CancelFunc
}

func newAPI(s *Server) *api {
	accepts := acceptedBy()
	a := &api{server: s, mux: http.NewServeMux(), consumers: newPullConsumers(s.cfg.Engine.Queues, s.cfg.Nodes, s.cfg.Budget), jobs: newJobs(), followed: newFollowedRooms(s.chats, s.cfg.Budget, s.cfg.Metrics), searching: newFairSlots(maxSearches)}
	a.polls, a.endPolls = context.WithCancel(context.Background())
	for pattern, route := range routes() {
		of := accepts[pattern]
		a.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { a.call(w, r, route, of) })
	}
	a.descriptions()
	return a
}

// close is called after the last request has ended.
func (a *api) close() {
	a.jobs.close()
	a.consumers.close()
}

// ServeHTTP implements http.Handler.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	slot, ok := a.server.conns.reserve() // Shutdown waits for it
	if !ok {
		writeError(w, refusal(codeStopping))
		return
	}
	defer slot.release()
	if !a.allowed(w, r) {
		return
	}
	if _, pattern := a.mux.Handler(r); pattern == "" {
		// The mux knows whether the path has other methods.
		answer := &headersOnly{header: w.Header()}
		a.mux.ServeHTTP(answer, r)
		if answer.status == http.StatusMethodNotAllowed {
			writeError(w, refusal(codeMethod))
		} else {
			writeError(w, refusal(codeNoPath))
		}
		return
	}
	a.mux.ServeHTTP(w, r)
}

// headersOnly is a ResponseWriter that keeps the status and the headers.
type headersOnly struct {
	header http.Header
	status int
}

func (h *headersOnly) Header() http.Header         { return h.header }
func (h *headersOnly) Write(b []byte) (int, error) { return len(b), nil }
func (h *headersOnly) WriteHeader(status int)      { h.status = status }

// call is one request.
type call struct {
	api *api
	w   http.ResponseWriter
	r   *http.Request
	ctx context.Context // ends when the server gives up, or evicts the request
	// cancel ends ctx.
	cancel  context.CancelFunc
	memory  *budget.Holder
	evicted atomic.Bool
	// evicting and ended keep a late evict from setting the deadlines of the next
	// request.
	evicting sync.Mutex
	ended    bool
	reading  bool // its body
	route    route
	caller   *auth.Caller                // nil in open mode
	also     func(*auth.Caller) *problem // why the caller may not have it, beyond what the route needs; nil if nothing is needed
	count    *limits.Request
	encoding int64 // bytes of its memory that are for the answer
	// body is the client's request, if it was read.
	body request
}

func (a *api) call(w http.ResponseWriter, r *http.Request, to route, accepts accepted) {
	// A client that has sent its request may half-close the connection and still gets
	// its answer. To net/http that client has gone, and the request's context ends, so
	// it is not used here.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	defer context.AfterFunc(a.server.work, cancel)()
	c := &call{api: a, w: w, r: r, ctx: ctx, cancel: cancel}
	c.count, _ = r.Context().Value(countKey{}).(*limits.Request)
	c.memory = a.server.cfg.Budget.Open(c.evict)
	defer c.end()
	caller, _ := callerOf(r)
	c.memory.Join(userOrAddress(a.server.limits.ClientAddress(r), caller))
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		c.refuseFor(&problem{code: codeParameter, text: "the query of the URL is malformed: want NAME=VALUE&…, percent-encoded"})
		return
	}
	for _, part := range []string{"stream", "queue", "group", "store", "schedule", "room", "user"} {
		if name := r.PathValue(part); withoutTilde(name) != name {
			r.SetPathValue(part, withoutTilde(name))
		}
	}
	for _, part := range []string{"stream", "queue", "group", "store"} {
		if name := r.PathValue(part); name != "" && !usable(name) {
			c.refuseFor(unusable(part, name))
			return
		}
	}
	c.route = to
	if a.server.cfg.Auth.Policy != nil && !c.authorized(to) {
		return
	}
	if why := unknownParameter(query, accepts.parameters); why != nil {
		c.refuseFor(why)
		return
	}
	if c.refusesBody(accepts) {
		return
	}
	to.handle(c)
}

// withoutTilde returns the name that a part of a path means. Clients take the parts . and .. for steps, also if they are encoded: so they
// write a ~ before these names, and before those that consist of such an escape.
func withoutTilde(part string) string {
	if rest, found := strings.CutPrefix(part, "~"); found {
		if name := strings.TrimLeft(rest, "~"); name == "." || name == ".." {
			return rest
		}
	}
	return part
}

// stillAuthorized refuses a call whose body came after the end of its token, or after a change of what counts.
func (c *call) stillAuthorized() bool {
	why := c.lapsed()
	if why == nil {
		return true
	}
	switch why.code {
	case codeInvalidToken, codeTokenExpired, codeUnauthenticated:
		c.api.server.unauthorized(c.w, c.r, why.code)
	default:
		c.refuseFor(why)
	}
	return false
}

// lapsed returns why the caller may not have what it has asked for any more, or nil.
func (c *call) lapsed() *problem {
	if c.caller == nil {
		return nil
	}
	policy := c.api.server.cfg.Auth.Policy
	switch {
	case !policy.Valid(c.caller):
		return because(codeInvalidToken)
	case expired(c.caller):
		return because(codeTokenExpired)
	case !policy.Current(c.caller):
		next, ok := policy.Renew(c.caller)
		if !ok {
			return because(codeUnauthenticated)
		}
		c.caller = next
	}
	if c.route.need != nil {
		if why := mayAll(c.ctx, c.caller, c.route.need(c.r)); why != nil {
			return why
		}
	}
	if c.also == nil {
		return nil
	}
	return c.also(c.caller)
}

// expired reports whether the token of a caller has ended.
func expired(c *auth.Caller) bool { return !c.Expires.IsZero() && !time.Now().Before(c.Expires) }

// permitAlso refuses a call without a right that depends on its body, now or when stillPermitted is asked later.
func (c *call) permitAlso(denied func(*auth.Caller) *problem) bool {
	if c.caller == nil {
		return true
	}
	c.also = denied
	return c.permit(denied(c.caller))
}

// authorized refuses a call without a caller, or without the right that its path needs.
func (c *call) authorized(to route) bool {
	var why code
	if c.caller, why = callerOf(c.r); c.caller == nil {
		c.api.server.unauthorized(c.w, c.r, why)
		return false
	}
	if to.need == nil {
		return true
	}
	denied := mayAll(c.ctx, c.caller, to.need(c.r))
	if denied != nil {
		dropBody(c.w, c.r)
	}
	return c.permit(denied)
}

// permit refuses the call if there is a reason, and reports whether there was none.
func (c *call) permit(why *problem) bool {
	if why != nil {
		c.refuseFor(why)
	}
	return why == nil
}

// pullKey names the pull consumer of the call's queue and caller.
func (c *call) pullKey() pullKey {
	if c.caller == nil {
		return pullKey{queue: c.queue()}
	}
	return pullKey{c.queue(), c.caller.User}
}

func (c *call) stream() string { return c.r.PathValue("stream") }
func (c *call) queue() string  { return c.r.PathValue("queue") }

// served returns is, and refuses the call if that is false.
func (c *call) served(is bool) bool {
	if !is {
		c.refuse(codeNotServed)
	}
	return is
}

// readJSON reads the body, an object, into c.body, or refuses the call. An
// optional body may be empty. A field that is not one of fields is refused.
func (c *call) readJSON(optional bool, fields wire.Fields) bool {
	body, ok := c.read()
	if !ok {
		return false
	}
	if optional && len(bytes.TrimSpace(body)) == 0 {
		return true
	}
	if mediaType(c.r) != "application/json" {
		c.refuse(codeMediaType)
		return false
	}
	decoders := c.api.server.sessions.decoders
	r, why := decoders.parse(c.ctx, &wire.Decoder{Limits: decoders.limits()}, body, wire.JSON)
	if why == nil {
		why = r.unknownField(fields, "this request")
	}
	if why != nil {
		c.refuseFor(why)
		return false
	}
	c.body = *r
	return true
}

// mediaType is the Content-Type without its parameters, "" if it is missing or
// invalid, or the body is compressed.
func mediaType(r *http.Request) string {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if coding := r.Header.Get("Content-Encoding"); err != nil || coding != "" && coding != "identity" {
		return ""
	}
	return kind
}

// number returns a query parameter from low to high, fallback if it is missing,
// or refuses the call.
func (c *call) number(name string, low, high, fallback int64) (int64, bool) {
	text := c.r.URL.Query().Get(name)
	if text == "" {
		return fallback, true
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < low || n > high {
		want := between(low, high)
		if high == math.MaxInt64 {
			want = fmt.Sprintf("a number, %d or more", low)
		}
		c.refuseFor(wrong(codeParameter, name, want))
		return 0, false
	}
	return n, true
}

func (c *call) refuse(why code) { c.refuseFor(because(why)) }

func (c *call) refuseFor(why *problem) {
	c.api.server.audit.denied(c.api.server.limits.ClientAddress(c.r), requestID(c.r), c.caller, why)
	writeError(c.w, why.reply())
}

// acted records an administrative act that was carried out.
func (c *call) acted(act, target string) {
	c.api.server.audit.act(c.api.server.limits.ClientAddress(c.r), requestID(c.r), c.caller, act, target)
}
