package gateway

import (
	"fmt"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/engine"
)

// need is a right that a request needs.
type need struct {
	verb auth.Verb
	kind auth.Kind
	name string // "" where there is only one of the kind: rules match it with *
}

func (n need) granted(c *auth.Caller) bool { return c.May(n.verb, n.kind, n.name) }

// refusal says which right is missing. Whether there is something of that name is not said.
func (n need) refusal() *problem { return &problem{code: codeForbidden, need: n} }

// The rights of endpoints that have one for all they do.
var (
	needIngest = need{"write", auth.Ingest, ""}
	needBench  = need{"bench", auth.Server, ""}
)

// defaultStore is the name of the event store of requests that name none.
const defaultStore = "default"

// mayQuery returns why the caller may not read what a query matches.
func mayQuery(c *auth.Caller, store string, queries ...engine.EventQuery) *problem {
	n := need{"query", auth.Events, storeName(store)}
	if len(n.name) > maxNameBytes {
		return because(codeName)
	}
	for _, q := range queries {
		items := make([][]string, len(q.Items))
		for i := range q.Items {
			items[i] = q.Items[i].Tags
		}
		if !c.MayQuery(n.name, items) {
			return n.refusal()
		}
	}
	return nil
}

// mayAppend returns why the caller may not append the events. A condition tells whether there are events that match it: so it needs the right to query.
func mayAppend(c *auth.Caller, store string, events []eventFields, condition *conditionFields) *problem {
	tags := make([][]string, len(events))
	for i := range events {
		tags[i] = events[i].Tags
	}
	n := need{"append", auth.Events, storeName(store)}
	if len(n.name) > maxNameBytes {
		return because(codeName)
	}
	if !c.MayAppend(n.name, tags) {
		return n.refusal()
	}
	for i := range events {
		if e := &events[i]; e.ID != "" && !c.MayTakeID(n.name, e.Tags, e.ID) {
			return &problem{code: codeForbidden, need: n,
				text: fmt.Sprintf("events[%d].id: want it to begin with the tag that you may append, and a slash, such as tenant:a/17", i)}
		}
	}
	if condition == nil || condition.Query == nil {
		return nil
	}
	return mayQuery(c, store, *condition.Query)
}

func storeName(store string) string {
	if store == "" {
		return defaultStore
	}
	return store
}

// denied returns why the caller may not have a request on /ws. Requests about what the connection has already need no right.
func (r *request) denied(c *auth.Caller) *problem {
	switch r.Type {
	case "publish":
		return mayAll(c, need{"publish", auth.Stream, r.Stream})
	case "subscribe":
		if r.Stream == "" && r.Query != nil {
			return mayQuery(c, r.Store, *r.Query)
		}
		if r.Group != "" { // makes the group
			return mayAll(c, need{"read", auth.Stream, r.Stream}, need{"commit", auth.Stream, r.Stream})
		}
		return mayAll(c, need{"read", auth.Stream, r.Stream})
	case "commit":
		return mayAll(c, need{"commit", auth.Stream, r.Stream})
	case "enqueue":
		return mayAll(c, need{"enqueue", auth.Queue, r.Queue})
	case "consume", "ack", "nack", "extend":
		return mayAll(c, need{"consume", auth.Queue, r.Queue})
	case "append":
		return mayAppend(c, r.Store, r.Events, r.Condition)
	case "query":
		return mayQuery(c, r.Store, r.query())
	case "project":
		return mayQuery(c, r.Store, r.Queries...)
	}
	return nil
}

// mayAll returns the refusal of the first right that the caller lacks.
func mayAll(c *auth.Caller, needs ...need) *problem {
	for _, n := range needs {
		if len(n.name) > maxNameBytes { // a refusal would repeat it
			if n.kind == auth.Room {
				return because(codeNameTooLong)
			}
			return because(codeName)
		}
		if !n.granted(c) {
			return n.refusal()
		}
	}
	return nil
}
