package spec

import (
	"regexp"

	"github.com/tidewire/tidewire/internal/wire"
)

// Route is a request of /v1.
type Route struct {
	Method, Path string
	// Name is its operationId.
	Name    string
	Summary string
	// Right is what a caller needs in closed mode, Public if nothing.
	Right string
	// Query are the parameters of the URL, Headers those of the request, besides Authorization.
	Query, Headers Fields
	// Body is nil if there is none. NoBody: it may be missing. Raw: with ?raw it is the payload itself.
	Body        *Schema
	NoBody, Raw bool
	Answer      *Schema
	// Events is the answer of a request that is answered with server-sent events, as their data, and EventName their event.
	Events    *Schema
	EventName string
	// OtherEvents are the types of Pushes that come as events, too.
	OtherEvents []string
	// Codes are those of errors, besides those that every route has.
	Codes []string
}

// Public is the Right of a route that needs no token.
const Public = "none: it needs no token"

// CommonCodes are the codes that each route may answer with.
func CommonCodes() []string {
	return []string{"invalid_name", "invalid_parameter", "unauthenticated", "invalid_token", "token_expired", "forbidden", "foreign_origin", "unknown_host",
		"rate_limited", "too_many_connections", "not_served", "method_not_allowed", "internal", "unavailable", "overloaded", "stopping", "database_refused"}
}

// bodyCodes are those of a request with a body.
var bodyCodes = []string{"malformed", "unknown_field", "invalid", "too_large", "unsupported_media_type"}

// Routes are all requests of /v1, in the order in which a reader wants them.
func Routes() []Route {
	all := []Route{
		{Method: "GET", Path: "/v1/openapi.json", Name: "getOpenAPI", Summary: "This description of /v1, as OpenAPI 3.1.", Right: Public, Answer: anyObject("OpenAPI 3.1")},
		{Method: "GET", Path: "/v1/asyncapi.json", Name: "getAsyncAPI", Summary: "The description of /ws, as AsyncAPI 3.", Right: Public, Answer: anyObject("AsyncAPI 3")},
	}
	for _, some := range [][]Route{streamRoutes(), replayRoutes(), groupRoutes(), queueRoutes(), deliveryRoutes(), deadRoutes(), eventRoutes(), storeRoutes(), scheduleRoutes(), roomRoutes(), serverRoutes(), connectionRoutes(), keyRoutes(), benchRoutes()} {
		all = append(all, some...)
	}
	return all
}

// Pattern is the route as package net/http has it.
func (r *Route) Pattern() string { return r.Method + " " + r.Path }

var pathPart = regexp.MustCompile(`\{(\w+)\}`)

// pathParts describes the parts of paths that are parameters.
var pathParts = map[string]*Schema{
	"stream":   name("the stream"),
	"group":    name("the group"),
	"queue":    name("the queue"),
	"store":    name("the event store"),
	"schedule": textUpTo(1, nameBytes, "the schedule"),
	"room":     textUpTo(1, nameBytes, "the room"),
	"user":     textUpTo(1, nameBytes, "the user: the sub of its tokens"),
	"job":      text("the job"),
	"position": atLeast(1, "the position of the dead letter"),

	"connection": text("the connection"),
	"key":        text("the id of the key"),
}

// PathParts are the parameters of the path.
func (r *Route) PathParts() (all Fields) {
	for _, m := range pathPart.FindAllStringSubmatch(r.Path, -1) {
		all = append(all, required(m[1], pathParts[m[1]]))
	}
	return all
}

// AllCodes are the codes of errors that the route may answer with.
func (r *Route) AllCodes() []string {
	all := append(CommonCodes(), r.Codes...)
	if r.Method != "GET" && r.Method != "DELETE" { // also if it needs no body: one with fields is refused
		all = append(all, bodyCodes...)
	}
	return all
}

// bodyOf is a body that has the fields of a request of /ws, without what the path says.
func bodyOf(kind string, leave wire.Fields) *Schema {
	for _, r := range Requests() {
		if r.Type != kind {
			continue
		}
		var changed Fields
		for _, f := range r.Fields {
			if !in(leave, f.Name) {
				changed = append(changed, f)
			}
		}
		s := objectOf(true, append(bodyIgnores(leave), fieldsOf(wire.Requests[kind]&^leave, changed)...)...)
		if len(r.Either) > 0 {
			s.withExactly(r.Either...)
		}
		return s
	}
	panic("internal/wire/spec/requests.go: there is no request " + kind)
}

func in(set wire.Fields, name string) bool {
	for f := wire.FieldID; set>>f != 0; f++ {
		if set.Has(f) && f.String() == name {
			return true
		}
	}
	return false
}

// bodyIgnores are the fields of a message of /ws that a body may have and that are not used, because the path says it.
func bodyIgnores(path wire.Fields) (all Fields) {
	for f := wire.FieldID; (path|wire.Of(wire.FieldID, wire.FieldType))>>f != 0; f++ {
		if (path | wire.Of(wire.FieldID, wire.FieldType)).Has(f) {
			all = append(all, optional(f.String(), fieldOf(f).said("not used: a message of /ws can be sent as it is")))
		}
	}
	return all
}

// Parameters of several routes.
func afterPosition(description string) Field { return optional("after", atLeast(0, description)) }
func pageSize(most, def int64) Field {
	return optional("limit", between(1, most, "how many at most; large ones make a page shorter").byDefault(def))
}

var (
	idempotencyKey = optional("Idempotency-Key", text("names the request, so that it can be repeated: the name of a client, a colon and a sequence, such as till-3:17. In place of client and sequence"))
	lastEventID    = optional("Last-Event-ID", atLeast(0, "continue after this position; a browser's EventSource sends it when it connects again"))
	next           = required("next", atLeast(0, "the after to continue with"))
)
