package gateway

import (
	"context"
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

// denied returns why the caller does not have the right, or nil.
func (n need) denied(ctx context.Context, c *auth.Caller) *problem {
	may, err := c.May(ctx, n.verb, n.kind, n.name)
	return n.verdict(may, err)
}

// verdict is denied, for what has decided about the right.
func (n need) verdict(may bool, err error) *problem {
	switch {
	case err != nil:
		return errUnknownRight
	case !may:
		return n.refusal()
	}
	return nil
}

// errUnknownRight: the SQL function on rights did not answer.
var errUnknownRight = &problem{code: codeUnavailable, text: "whether you may do this cannot be checked now; try again later"}

// refusal says which right is missing. Whether there is something of that name is not said.
func (n need) refusal() *problem { return &problem{code: codeForbidden, need: n} }

// The rights of endpoints that have one for all they do.
var (
	needIngest  = need{"write", auth.Ingest, ""}
	needBench   = need{"bench", auth.Server, ""}
	needMetrics = need{"metrics", auth.Server, ""}

	needConnections = need{"connections", auth.Server, ""}
	needKeys        = need{"keys", auth.Server, ""}
	needConsole     = need{"console", auth.Server, ""}
)

// defaultStore is the name of the event store of requests that name none.
const defaultStore = "default"

// mayQuery returns why the caller may not read what a query matches.
func mayQuery(ctx context.Context, c *auth.Caller, store string, queries ...engine.EventQuery) *problem {
	n := need{"query", auth.Events, storeName(store)}
	if len(n.name) > maxNameBytes {
		return because(codeName)
	}
	for _, q := range queries {
		items := make([][]string, len(q.Items))
		for i := range q.Items {
			items[i] = q.Items[i].Tags
		}
		may, err := c.MayQuery(ctx, n.name, items)
		if why := n.verdict(may, err); why != nil {
			return why
		}
	}
	return nil
}

// mayAppend returns why the caller may not append the events. A condition tells whether there are events that match it: so it needs the right to query.
func mayAppend(ctx context.Context, c *auth.Caller, store string, events []engine.Event, condition *engine.EventCondition) *problem {
	tags := make([][]string, len(events))
	for i := range events {
		tags[i] = events[i].Tags
	}
	n := need{"append", auth.Events, storeName(store)}
	if len(n.name) > maxNameBytes {
		return because(codeName)
	}
	may, err := c.MayAppend(ctx, n.name, tags)
	if why := n.verdict(may, err); why != nil {
		return why
	}
	for i := range events {
		e := &events[i]
		if e.ID == "" {
			continue
		}
		may, err := c.MayTakeID(ctx, n.name, e.Tags, e.ID)
		why := n.verdict(may, err)
		if why == nil {
			continue
		}
		if err == nil {
			why.text = fmt.Sprintf("events[%d].id: want it to begin with the tag that you may append, and a slash, such as tenant:a/17", i)
		}
		return why
	}
	if condition == nil {
		return nil
	}
	return mayQuery(ctx, c, store, condition.Query)
}

func storeName(store string) string {
	if store == "" {
		return defaultStore
	}
	return store
}

// denied returns why the caller may not have a request on /ws. Requests about what the connection has already need no right.
func (r *request) denied(ctx context.Context, c *auth.Caller) *problem {
	switch r.Type {
	case "publish":
		return mayAll(ctx, c, need{"publish", auth.Stream, r.Stream})
	case "subscribe":
		if r.ofEvents() {
			return mayQuery(ctx, c, r.Store, r.Query)
		}
		if r.Group != "" { // makes the group
			return mayAll(ctx, c, need{"read", auth.Stream, r.Stream}, need{"commit", auth.Stream, r.Stream})
		}
		return mayAll(ctx, c, need{"read", auth.Stream, r.Stream})
	case "commit":
		return mayAll(ctx, c, need{"commit", auth.Stream, r.Stream})
	case "enqueue":
		return mayAll(ctx, c, need{"enqueue", auth.Queue, r.Queue})
	case "consume", "begin", "ack", "nack", "extend":
		return mayAll(ctx, c, need{"consume", auth.Queue, r.Queue})
	case "append":
		return mayAppend(ctx, c, r.Store, r.Events, r.condition())
	case "query":
		return mayQuery(ctx, c, r.Store, r.Query)
	case "project":
		return mayQuery(ctx, c, r.Store, r.Queries...)
	}
	return nil
}

// mayAll returns why the caller does not have the first right that it lacks.
func mayAll(ctx context.Context, c *auth.Caller, needs ...need) *problem {
	for _, n := range needs {
		if len(n.name) > maxNameBytes { // a refusal would repeat it
			if n.kind == auth.Room {
				return because(codeNameTooLong)
			}
			return because(codeName)
		}
		if why := n.denied(ctx, c); why != nil {
			return why
		}
	}
	return nil
}
