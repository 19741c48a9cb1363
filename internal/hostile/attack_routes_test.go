package hostile

import (
	"context"
	"encoding/json"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/tidewire/tidewire/internal/wire/spec"
)

var randomRoutes = spec.Routes()

// Names in paths of random calls. What a call may remove, pause or close to others has a name that no other attack needs.
var (
	pathParts = map[string][]string{
		"stream": {"evil-0", "evil-1", "evil-1/0", "evil-short", "evil-none"}, "queue": {"evil-queue", "evil-lanes", "evil-brief", "evil-none"},
		"group": {"g", "evil", ""}, "store": {"evil-store", "evil-none"}, "schedule": {"evil", "evil-2", ""}, "room": {"evil", "stored-evil"},
		"user": {"evil-nobody", "s"}, "job": {"1", "AAAAAAAAAAAAAAAA", ""},
	}
	disposable  = map[string]string{"stream": "evil-short", "queue": "evil-brief"}
	destructive = regexp.MustCompile(`^DELETE |/(pause|purge|options|retention|seek)$`)
	pathPart    = regexp.MustCompile(`\{(\w+)\}`)
)

// callAnything makes a call of any route: mostly with its method, its parameters and the fields of its body, and with values of all kinds.
func (a *attacker) callAnything() {
	r := randomRoutes[a.random.IntN(len(randomRoutes))]
	if r.Right == spec.Public && a.standing != entitled { // it is answered
		return
	}
	method := r.Method
	if a.random.IntN(8) == 0 {
		method = a.one([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE", "NONSENSE"})
	}
	harmful := destructive.MatchString(method + " " + r.Path)
	path := pathPart.ReplaceAllStringFunc(r.Path, func(part string) string {
		name := part[1 : len(part)-1]
		switch {
		case harmful && disposable[name] != "":
			return disposable[name]
		case a.random.IntN(20) == 0:
			return "evil" + url.PathEscape(a.randomText())
		}
		return url.PathEscape(a.one(append(pathParts[name], "evil")))
	})
	body := a.randomBody(r.Body)
	if method == "GET" || method == "HEAD" {
		body = ""
	}
	// Long polls and followers have no end of their own.
	ctx, cancel := context.WithTimeout(a, time.Second)
	defer cancel()
	status, answer := a.callWithin(ctx, method, path+a.randomParameters(r.Query), body, a.randomHeaders(r.Headers)...)
	if status == 500 && !strings.Contains(answer, "not_stored") && !strings.Contains(answer, "outcome_unknown") { // a server may say what it does not know
		a.wrong("status 500", "%s %s was answered %s", method, path, answer)
	}
}

// randomBody returns a body with some fields of a schema, or of any request.
func (a *attacker) randomBody(schema *spec.Schema) string {
	if schema == nil || len(schema.Properties) == 0 || a.random.IntN(4) == 0 {
		return a.randomRequest(1)
	}
	var fields []string
	for _, f := range schema.Properties {
		if !f.Required && a.random.IntN(3) > 0 {
			continue
		}
		name, _ := json.Marshal(f.Name)
		fields = append(fields, string(name)+":"+a.one(randomValues))
	}
	return "{" + strings.Join(fields, ",") + "}"
}

func (a *attacker) randomParameters(of spec.Fields) string {
	values := make(url.Values)
	for _, f := range of {
		if a.random.IntN(3) == 0 {
			values.Add(f.Name, a.randomText())
		}
	}
	switch a.random.IntN(10) {
	case 0:
		return "?%zz;=&&&" + values.Encode()
	case 1:
		values.Add(a.one(randomFields), a.randomText())
	}
	return "?" + values.Encode()
}

func (a *attacker) randomHeaders(of spec.Fields) (pairs []string) {
	for _, f := range of {
		if a.random.IntN(3) == 0 {
			pairs = append(pairs, f.Name, a.one([]string{"c:1", ":", "c:", ":1", "c:-1", "c:9223372036854775807", "c:9223372036854775808", "0", "-1", "9223372036854775807", "x", "a:b:c:1"}))
		}
	}
	return pairs
}

// randomText returns a text for a place in a URL: a value without its quotation marks.
func (a *attacker) randomText() string { return strings.Trim(a.one(randomValues), `"`) }
