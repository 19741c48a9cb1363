package gateway_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/wire/spec"
)

// silentSchedules and silentAdministration answer nothing: each call panics.
type (
	silentSchedules      struct{ engine.Schedules }
	silentAdministration struct{ gateway.Administration }
)

func (silentAdministration) OnChange(func(auth.Change)) {}

// rightIn finds the rights in the description of a route, with the names of objects.
var rightIn = regexp.MustCompile(`\w+ \w+:[\w*]+`)

// sampleNames puts objects into the parts of paths and rights, as objects of serveClosed.
var sampleNames = strings.NewReplacer("stream:NAME", "stream:jobs", "queue:NAME", "queue:jobs", "events:STORE", "events:default", "room:NAME", "room:a", "user:NAME", "user:bob",
	"{stream}", "jobs", "{queue}", "jobs", "{store}", "default", "{room}", "a", "{user}", "bob", "{group}", "g", "{position}", "1", "{job}", "j", "{schedule}", "s", "{connection}", "c", "{key}", "k")

// bodies are those of routes that look at the body before the right.
var bodies = map[string]string{
	"POST /v1/events":                  `{"events":[{"type":"A"}]}`,
	"POST /v1/events/query":            `{"query":{}}`,
	"POST /v1/events/project":          `{"queries":[{}]}`,
	"POST /v1/streams/{stream}/replay": `{"to_queue":"jobs"}`,
}

// allBut are all rights there are, but one verb of a kind on the object that a right names.
func allBut(right string) (all []string) {
	for kind, verbs := range auth.Kinds() {
		for _, v := range verbs {
			name := "**"
			switch {
			case strings.HasPrefix(right, fmt.Sprintf("%s %s:", v, kind)) && kind == auth.Server:
				continue
			case strings.HasPrefix(right, fmt.Sprintf("%s %s:", v, kind)):
				name = "others"
			case kind == auth.Server || kind == auth.Ingest:
				name = "*"
			}
			all = append(all, fmt.Sprintf("%s %s:%s", v, kind, name))
		}
	}
	return all
}

// TestAuth_Routes: each route of /v1 refuses a caller without a token, and one that has all rights but the first that its description names. The rights
// that it names are enough. What is refused is refused before a store is asked.
func TestAuth_Routes(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, func(cfg *gateway.Config) {
		f := closed{streams: newFakeStreams(t, "jobs"), queues: newFakeQueues(t, "jobs")}
		cfg.Engine, cfg.Nodes, cfg.Auth.Administration = cannedEngine(f), cannedNodes{}, cannedAdministration{}
	})
	silent := serveClosed(t, func(cfg *gateway.Config) {
		cfg.Engine = engine.Engine{Ingest: cfg.Engine.Ingest, Streams: silentStreams{}, Queues: silentQueues{}, Events: silentEvents{}, Schedules: silentSchedules{}}
		cfg.Nodes, cfg.Auth.Administration = cannedNodes{}, silentAdministration{}
	})
	for _, r := range spec.Routes() {
		if r.Right == spec.Public || r.Name == "sayInMany" || r.Name == "exchangeKey" { // of these two, the first answers for each room, and the second is for API keys
			continue
		}
		method, path, body := r.Method, sampleNames.Replace(r.Path), bodies[r.Pattern()]
		if r.Events != nil {
			method = "HEAD" // a GET would not end
		}
		if got := silent.status(method, path, body, ""); !strings.HasPrefix(got, "401") {
			t.Errorf("%s without a token: %s", r.Pattern(), got)
		}
		rights := rightIn.FindAllString(sampleNames.Replace(r.Right), -1)
		if r.Name == "replayStream" {
			rights = append(rights, "enqueue queue:jobs")
		}
		if len(rights) == 0 || strings.HasPrefix(r.Right, "none") {
			continue
		}
		if got := silent.status(method, path, body, tokenOf(t, "ann", time.Hour, allBut(rights[0])...)); !strings.HasPrefix(got, "403") {
			t.Errorf("%s without %q: %s", r.Pattern(), rights[0], got)
		}
		if got := c.status(method, path, body, tokenOf(t, "ann", time.Hour, rights...)); strings.HasPrefix(got, "401") || strings.HasPrefix(got, "403") {
			t.Errorf("%s with %q: %s", r.Pattern(), rights, got)
		}
	}
	const want = `{"results":[{"room":"a"},{"room":"b","error":{"code":"forbidden",`
	if _, text := (client{t, c.addr}).do("POST", "/v1/rooms/chats", `{"rooms":["a","b"],"chat":{"text":"x"}}`, "Authorization", "Bearer "+tokenOf(t, "ann", time.Hour, "chat room:a")); !strings.HasPrefix(text, want) {
		t.Errorf("a chat for two rooms: %s", text)
	}
}
