package gateway

import (
	"math"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/wire"
)

// events returns the engine's event stores and the name of the requested one,
// or refuses the call.
func (c *call) events() (store engine.Events, name string, ok bool) {
	store = c.api.server.cfg.Engine.Events
	if name = c.body.Store; name == "" {
		name = c.r.URL.Query().Get("store")
	}
	if !c.served(store != nil) {
		return nil, "", false
	}
	if name != "" && !usable(name) {
		c.refuseFor(unusable("store", name))
		return nil, "", false
	}
	return store, name, true
}

func (c *call) appendEvents() {
	if !c.readJSON(false, wire.Requests["append"]) {
		return
	}
	store, name, ok := c.events()
	if !ok {
		return
	}
	events, condition, err := c.body.events()
	if err != nil {
		c.fail(err, engine.CodeInvalid)
		return
	}
	if !c.permitAlso(func(caller *auth.Caller) *problem {
		return mayAppend(c.ctx, caller, name, events, condition)
	}) {
		return
	}
	as, why := c.requestID()
	if why != nil {
		c.refuseFor(why)
		return
	}
	at, err := appendInTurn(c.ctx, c, store, name, as, events, condition)
	if err != nil {
		c.fail(err, codeNotStored)
		return
	}
	c.answer(c.api.server.sessions.appended(at))
}

// readEvents answers a query given as URL parameters, which has one item.
func (c *call) readEvents() {
	query := c.r.URL.Query()
	after, okAfter := c.number("after", 0, math.MaxInt64, 0)
	if !okAfter {
		return
	}
	before, okBefore := c.number("before", 0, math.MaxInt64, 0)
	if !okBefore {
		return
	}
	limit, okLimit := c.number("limit", 1, maxQueried, defaultQueried)
	if !okLimit {
		return
	}
	backwards := query.Get("backwards")
	if backwards != "" && backwards != "true" && backwards != "false" {
		c.refuseFor(wrong(codeParameter, "backwards", "true or false"))
		return
	}
	q := engine.EventQuery{}
	if query.Has("type") || query.Has("tag") {
		q.Items = []engine.EventItem{{Types: query["type"], Tags: query["tag"]}}
	}
	c.query(q, engine.EventRange{After: after, Before: before, Limit: int(limit), Backwards: backwards == "true"})
}

// queryEvents answers any query.
func (c *call) queryEvents() {
	if !c.readJSON(false, wire.Requests["query"]) {
		return
	}
	span, err := c.body.eventRange()
	if err != nil {
		c.fail(err, engine.CodeInvalid)
		return
	}
	c.query(c.body.Query, span)
}

func (c *call) query(q engine.EventQuery, span engine.EventRange) {
	store, name, ok := c.events()
	if !ok || !c.permitAlso(func(caller *auth.Caller) *problem { return mayQuery(c.ctx, caller, name, q) }) {
		return
	}
	events, err := readPage(c, func() ([]engine.Event, error) { return store.Query(c.ctx, name, q, span) }, eventBytes)
	if err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	var w wire.Writer
	w.Open()
	writeEvents(&w, events, span)
	w.Close()
	c.write(w.Buf)
}

// listTypes lists types of events. It tells of all events, so it needs the right to query them all.
func (c *call) listTypes() {
	limit, ok := c.number("limit", 1, maxQueried, defaultQueried)
	if !ok {
		return
	}
	store, name, ok := c.events()
	if !ok || !c.permitAlso(func(caller *auth.Caller) *problem { return mayQuery(c.ctx, caller, name, engine.EventQuery{}) }) {
		return
	}
	parameters := c.r.URL.Query()
	after := parameters.Get("after")
	types, err := query(c.ctx, c, func() ([]string, error) {
		return store.Types(c.ctx, name, parameters.Get("prefix"), after, int(limit))
	})
	if err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	if len(types) > 0 {
		after = types[len(types)-1]
	}
	c.answer(struct {
		Types []string `json:"types"`
		Next  string   `json:"next"`
	}{append([]string{}, types...), after})
}

func (c *call) project() {
	if !c.readJSON(false, wire.Requests["project"]) {
		return
	}
	store, name, ok := c.events()
	if !ok {
		return
	}
	queries, err := c.body.queries()
	if err != nil {
		c.fail(err, engine.CodeInvalid)
		return
	}
	if !c.permitAlso(func(caller *auth.Caller) *problem { return mayQuery(c.ctx, caller, name, queries...) }) {
		return
	}
	answer, err := projectionOf(c.ctx, c, store, name, queries)
	if err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	c.answer(answer)
}
