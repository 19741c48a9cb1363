package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/websocket"
)

// connectionRoutes are those of connections, of what callers may do, and of what was recorded lately.
func connectionRoutes() map[string]route {
	administrators := func(*http.Request) need { return needConnections }
	return map[string]route{
		"GET /v1/connections":                          {(*call).listConnections, administrators},
		"GET /v1/connections/{connection}":             {(*call).showConnection, administrators},
		"POST /v1/connections/{connection}/disconnect": {(*call).endConnection, administrators},
		"POST /v1/rights/explain":                      {(*call).explainRight, administrators},
		"GET /v1/rules":                                {(*call).listRules, administrators},
		"GET /v1/audit":                                {(*call).recentAudit, administrators},
	}
}

// withNode adds the name of this server to an answer that is of it alone, if it is in a cluster.
func (c *call) withNode(answer map[string]any) map[string]any {
	if nodes := c.api.server.cfg.Nodes; nodes != nil {
		answer["node"] = nodes.Name()
	}
	return answer
}

// listConnections lists the first connections of this server in an order.
func (c *call) listConnections() {
	query := c.r.URL.Query()
	order := query.Get("order")
	if order == "" {
		order = "newest"
	}
	if orders[order] == nil {
		c.refuseFor(wrong(codeParameter, "order", "newest, slowest or unsent"))
		return
	}
	limit, ok := c.number("limit", 1, maxListed, maxListed)
	if !ok {
		return
	}
	conns := c.api.server.conns
	conns.listing.Lock()
	first, matching := conns.first(int(limit), order, query.Get("user"))
	conns.listing.Unlock()
	all, now := make([]listedConnection, len(first)), time.Now()
	for i, conn := range first {
		all[i] = conn.listed(now)
	}
	c.answer(c.withNode(map[string]any{"connections": all, "matching": matching, "total": conns.count()}))
}

// connection returns the connection of the path, or refuses the call.
func (c *call) connection() *connection {
	name := c.r.PathValue("connection")
	conn := c.api.server.conns.find(name)
	if conn == nil {
		c.refuseFor(noConnection(name))
	}
	return conn
}

func noConnection(name string) *problem {
	return &problem{code: engine.CodeNotFound, text: fmt.Sprintf("this server has no connection %.64q: it has ended, or another server has it", name)}
}

// shownRight is a right of a caller, or a rule of the configuration.
type shownRight struct {
	Rule   string `json:"rule"`
	Bound  string `json:"bound,omitempty"`
	Role   string `json:"role,omitempty"`
	Source string `json:"source,omitempty"`
}

func shownRights(all []auth.InForce) []shownRight {
	shown := make([]shownRight, len(all))
	for i, r := range all {
		shown[i] = shownRight{r.Rule, r.Bound, r.Role, r.Source}
	}
	return shown
}

// callerKinds are the names of auth.CallerKind.
var callerKinds = map[auth.CallerKind]string{auth.ByToken: "token", auth.ByKey: "key", auth.ByAnonymous: "anonymous"}

// showConnection tells what is known of a connection: never its token, but the claims of it.
func (c *call) showConnection() {
	conn := c.connection()
	if conn == nil {
		return
	}
	answer := struct {
		shownConnection
		held
		Node    string          `json:"node,omitempty"`
		By      string          `json:"by,omitempty"`
		Key     string          `json:"key,omitempty"`
		Expires *time.Time      `json:"expires,omitempty"`
		Claims  json.RawMessage `json:"claims,omitempty"`
		Rights  []shownRight    `json:"rights"`
		Asks    bool            `json:"asks"`
	}{shownConnection: conn.shown(time.Now()), held: conn.holds(), Rights: []shownRight{}}
	if nodes := c.api.server.cfg.Nodes; nodes != nil {
		answer.Node = nodes.Name()
	}
	if caller := conn.identity.caller.Load(); caller != nil {
		answer.By, answer.Key, answer.Claims, answer.Rights = callerKinds[caller.Kind], caller.KeyID(), caller.Claims(), shownRights(caller.Rights())
		answer.Asks = c.api.server.cfg.Auth.Policy.Asks()
		if !caller.Expires.IsZero() {
			expires := caller.Expires.UTC()
			answer.Expires = &expires
		}
	}
	c.answer(answer)
}

// endConnection ends one connection. Its client may come back.
func (c *call) endConnection() {
	if !c.readStrict(&struct{}{}) {
		return
	}
	conn := c.connection()
	if conn == nil {
		return
	}
	if caller := conn.identity.caller.Load(); caller != nil {
		conn.identity.finish(caller, statusTokenOver, "disconnected by an administrator: get a new token, and connect again")
	} else {
		conn.endWith(websocket.StatusServiceRestart, "disconnected by an administrator")
	}
	c.acted(actEndConnection, conn.name()+" "+conn.address.String())
	c.answer(struct{}{})
}

// question asks why a caller may do something, or may not.
type question struct {
	Connection string          `json:"connection"`
	User       string          `json:"user"`
	Role       string          `json:"role"`
	Claims     json.RawMessage `json:"claims"`
	Verb       auth.Verb       `json:"verb"`
	Kind       auth.Kind       `json:"kind"`
	Name       string          `json:"name"`
	Tags       []string        `json:"tags"`
}

// explainRight tells which rule decides.
func (c *call) explainRight() {
	var q question
	if !c.readStrict(&q) {
		return
	}
	if err := auth.Known(q.Verb, q.Kind); err != nil {
		c.refuseFor(&problem{code: engine.CodeInvalid, text: err.Error()})
		return
	}
	switch {
	case q.Kind == auth.Server || q.Kind == auth.Ingest:
		q.Name = ""
	case q.Kind == auth.Events && q.Name == "":
		q.Name = defaultStore
	case !validName(q.Name):
		c.refuseFor(wrong(codeName, "name", fmt.Sprintf("a name of 1 to %d bytes without NUL", maxNameBytes)))
		return
	}
	if len(q.Tags) > 0 && q.Kind != auth.Events {
		c.refuseFor(malformed("tags", "none: only events have tags"))
		return
	}
	caller, why := c.asked(&q)
	if why != nil {
		c.refuseFor(why)
		return
	}
	c.answer(c.explained(caller, &q))
}

// asked returns the caller that a question is about, nil in open mode.
func (c *call) asked(q *question) (*auth.Caller, *problem) {
	s := c.api.server
	var conn *connection
	switch {
	case s.cfg.Auth.Policy == nil:
		return nil, nil
	case q.Connection != "":
		if conn = s.conns.find(q.Connection); conn == nil {
			return nil, noConnection(q.Connection)
		}
	case q.User != "":
		if conn = s.conns.ofUser(q.User); conn == nil {
			return nil, &problem{code: engine.CodeNotFound, text: "this server has no connection of this user: give a role and claims in place of it"}
		}
	default:
		caller, err := s.cfg.Auth.Policy.Suppose(q.Claims, q.Role)
		if err != nil {
			return nil, &problem{code: engine.CodeInvalid, text: "claims: " + err.Error()}
		}
		return caller, nil
	}
	caller := conn.identity.caller.Load()
	if caller == nil {
		return nil, &problem{code: engine.CodeInvalid, text: "this connection has not sent a token yet: it may do nothing"}
	}
	return caller, nil
}

// explained is the answer to a question.
func (c *call) explained(caller *auth.Caller, q *question) map[string]any {
	if caller == nil {
		return map[string]any{"allowed": true, "decided_by": "open_mode"}
	}
	is := caller.Explain(c.ctx, q.Verb, q.Kind, q.Name, q.Tags)
	answer := map[string]any{"allowed": is.May, "decided_by": "nothing", "user": caller.User, "role": caller.Role, "by": callerKinds[caller.Kind]}
	switch {
	case is.By != nil:
		answer["decided_by"], answer["rule"] = "rule", shownRights([]auth.InForce{*is.By})[0]
		return answer
	case is.Asked:
		says := "no"
		if is.May {
			says, answer["decided_by"] = "yes", "function"
		}
		if is.Err != nil {
			says = "failed"
		}
		answer["function"] = says
	}
	if !is.May {
		answer["grant"] = auth.GrantOf(q.Verb, q.Kind, q.Name, q.Tags)
	}
	return answer
}

// listRules lists the rules of the configuration, and which verbs there are.
func (c *call) listRules() {
	answer := map[string]any{"closed": false, "rules": []shownRight{}, "asks": false, "kinds": auth.Kinds()}
	if policy := c.api.server.cfg.Auth.Policy; policy != nil {
		answer["closed"], answer["rules"], answer["asks"] = true, shownRights(policy.Rules()), policy.Asks()
	}
	c.answer(answer)
}

// recentAudit tells the last denials and acts of this server.
func (c *call) recentAudit() {
	denials, acts := c.api.server.audit.recent()
	c.answer(c.withNode(map[string]any{"since": c.api.server.recorder.Began().UTC(), "denials": denials, "acts": acts}))
}
