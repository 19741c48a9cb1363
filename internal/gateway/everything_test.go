package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/testkit"
)

// serveCanned serves an engine that answers with all fields there are, in open mode.
func serveCanned(t *testing.T) client {
	t.Helper()
	f := closed{streams: newFakeStreams(t, "orders"), queues: newFakeQueues(t, "jobs")}
	store := newMemoryStore(t)
	kept := cannedEngine(f)
	kept.Rooms = store
	_, addr := serve(t, gateway.Config{Engine: kept, Nodes: cannedNodes{}, Version: "v1.2.3", Chat: gateway.ChatConfig{StoredRooms: []string{"kept"}}})
	return client{t, addr}
}

// TestEverything_Routes: each route of which other tests have no request takes its parameters and its body. What it answers is compared with its description.
func TestEverything_Routes(t *testing.T) {
	t.Parallel()
	c := serveCanned(t)
	for _, one := range []struct{ method, path, body string }{
		{"GET", "/v1/streams", ""}, {"GET", "/v1/streams/s", ""},
		{"GET", "/v1/streams/orders/messages?wait_ms=1", ""},
		{"GET", "/v1/streams/orders/search?text=x&any_case=true&path=a.b&value=1&after=0&until=9&limit=5", ""}, {"GET", "/v1/streams/orders/search?text=x&key=k", ""},
		{"POST", "/v1/streams/s/messages", `{"payload_base64":"YQ==","key":"k"}`},
		{"GET", "/v1/streams/orders/groups?limit=5&after=a", ""},
		{"GET", "/v1/streams/s/retention", ""},
		{"PUT", "/v1/streams/s/retention", `{"max_age_ms":1,"max_bytes":2,"consumed":true}`},
		{"POST", "/v1/streams/s/groups/g/seek", `{"after":1}`},
		{"POST", "/v1/streams/s/groups/g/seek", `{"at":"2026-11-26T08:05:07Z"}`},
		{"POST", "/v1/streams/s/groups/g/seek", `{"from":"start"}`},
		{"DELETE", "/v1/streams/s/groups/g", ""},
		{"POST", "/v1/queues/q", `{"partitions":4}`},
		{"GET", "/v1/queues/q/options", ""}, {"GET", "/v1/queues/ordered/options", ""},
		{"PATCH", "/v1/queues/q/options", `{"max_attempts":1,"retry_min_ms":1,"retry_max_ms":2}`}, {"PATCH", "/v1/queues/ordered/options", `{"max_attempts":1}`},
		{"POST", "/v1/queues/q/pause", ""}, {"POST", "/v1/queues/q/resume", ""}, {"POST", "/v1/queues/q/purge", `{"dead":true}`},
		{"GET", "/v1/queues/q/messages?limit=5", ""},
		{"POST", "/v1/queues/q/messages", `{"payload_base64":"YQ==","key":"k","headers":{},"delay_ms":1,"priority":1,"client":"c","sequence":1}`},
		{"GET", "/v1/queues/q/dead?after=1&limit=5&key=k&reason=r&min_attempts=1&max_attempts=9&since=2026-11-26T08:05:07Z&until=2026-11-26T08:05:07Z", ""},
		{"POST", "/v1/queues/q/dead/redrive", `{"positions":[1]}`}, {"POST", "/v1/queues/q/dead/purge", `{"positions":[1]}`},
		{"POST", "/v1/queues/q/dead/1/replace", `{"payload":"x","key":"k","headers":{},"priority":1,"delay_ms":1000}`}, {"POST", "/v1/queues/q/dead/2/replace", `{"payload_base64":"/w=="}`},
		{"POST", "/v1/events", `{"events":[{"type":"E"}],"client":"c","sequence":1}`}, {"POST", "/v1/events?store=a", `{"events":[{"type":"E"}]}`},
		{"GET", "/v1/events?before=9&limit=5&backwards=true", ""},
		{"POST", "/v1/events/query?store=a", `{"query":{}}`}, {"POST", "/v1/events/query", `{"store":"a","after":1,"before":9,"limit":5,"backwards":true}`},
		{"POST", "/v1/events/project?store=a", `{"queries":[{}]}`}, {"POST", "/v1/events/project", `{"store":"a","queries":[{}]}`},
		{"GET", "/v1/events/types?store=a&prefix=E&after=D&limit=5", ""}, {"GET", "/v1/events/types", ""},
		{"GET", "/v1/events/stores", ""}, {"GET", "/v1/events/stores/a", ""}, {"POST", "/v1/events/stores/a", ""}, {"DELETE", "/v1/events/stores/a", ""},
		{"GET", "/v1/schedules?after=a&limit=5", ""}, {"GET", "/v1/schedules/a", ""}, {"GET", "/v1/schedules/b", ""},
		{"PUT", "/v1/schedules/a", `{"cron":"@daily","time_zone":"UTC","queue":"q","key":"k","headers":{},"payload":"x","priority":1,"catch_up":"latest","paused":false}`},
		{"PUT", "/v1/schedules/b", `{"at":"2026-11-26T08:05:07Z","stream":"s","payload_base64":"/w=="}`},
		{"POST", "/v1/schedules/a/pause", ""}, {"POST", "/v1/schedules/a/resume", ""}, {"DELETE", "/v1/schedules/a", ""},
		{"POST", "/v1/rooms/chats", `{"rooms":["a"],"chat":{"type":"chat","room":"a","user":"ann","text":"x"}}`},
		{"POST", "/v1/rooms/kept/chats", `{"user":"ann","text":"x"}`}, {"GET", "/v1/rooms/kept/chats", ""}, {"GET", "/v1/rooms/kept/chats?last=1&before=9", ""},
		{"GET", "/v1/nodes", ""},
	} {
		if status, text := c.do(one.method, one.path, one.body); status != http.StatusOK {
			t.Errorf("%s %s %s: %d %s", one.method, one.path, one.body, status, text)
		}
	}
	for _, path := range []string{"/v1/streams/s/messages", "/v1/queues/q/messages"} {
		c.do("POST", path, `{"payload":"x"}`, "Idempotency-Key", "c:1")
	}
	c.do("POST", "/v1/events", `{"events":[{"type":"E"}]}`, "Idempotency-Key", "c:1")
	c.do("POST", "/v1/queues/q/messages?raw&key=k", "x", "Content-Type", "application/octet-stream")
}

// TestEverything_Jobs: jobs on dead letters are started, fail, are shown and stopped.
func TestEverything_Jobs(t *testing.T) {
	t.Parallel()
	c := serveCanned(t)
	for _, act := range []string{"redrive", "purge"} {
		queue := "/v1/queues/broken-" + act
		job := func(body string) string {
			status, text := c.do("POST", queue+"/dead/"+act, body)
			name, _, found := strings.Cut(strings.TrimPrefix(text, `{"job":"`), `"`)
			if status != http.StatusOK || !found {
				t.Fatalf("%d %s", status, text)
			}
			return queue + "/jobs/" + name
		}
		path := job(`{"filter":{"key":"k","reason":"r","min_attempts":1,"max_attempts":2,"since":"2026-11-26T08:05:07Z","until":"2026-11-26T08:05:07Z"},"per_second":10}`)
		job(`{"all":true}`)
		testkit.Eventually(t, "the job fails", func() bool { _, text := c.do("GET", path, ""); return strings.Contains(text, `"state":"failed"`) })
		c.do("GET", queue+"/jobs", "")
		c.do("DELETE", path, "")
	}
	for _, body := range []string{`{"to_stream":"s","after":0,"until":0,"key":"k","dry_run":true}`, `{"to_queue":"q","replay":"ABCDEFGHIJKLMNOP"}`} {
		status, text := c.do("POST", "/v1/streams/orders/replay", body)
		name, _, found := strings.Cut(strings.TrimPrefix(text, `{"job":"`), `"`)
		if status != http.StatusOK || !found {
			t.Fatalf("%d %s", status, text)
		}
		testkit.Eventually(t, "the replay ends", func() bool {
			_, text := c.do("GET", "/v1/streams/orders/jobs/"+name, "")
			return !strings.Contains(text, `"state":"running"`)
		})
		c.do("GET", "/v1/streams/orders/jobs", "")
		c.do("DELETE", "/v1/streams/orders/jobs/"+name, "")
	}
	for range 4 {
		c.do("POST", "/v1/queues/q/dead/redrive", `{"all":true}`)
	}
	c.refused("POST", "/v1/queues/q/dead/redrive", `{"all":true}`, http.StatusTooManyRequests, "too_many_jobs")
	for _, body := range []string{`{"all":true,"per_second":0}`, `{"all":true,"per_second":100001}`, `{"positions":[1],"per_second":1}`} {
		c.refused("POST", "/v1/queues/q/dead/redrive", body, http.StatusBadRequest, "invalid")
	}
	c.refused("POST", "/v1/queues/q/dead/100/replace", `{"payload":"x"}`, http.StatusNotFound, "not_found")
	c.refused("POST", "/v1/queues/q/dead/x/replace", `{"payload":"x"}`, http.StatusBadRequest, "invalid_parameter")
}

// TestEverything_Deliveries: deliveries have all fields, and are settled one by one and together.
func TestEverything_Deliveries(t *testing.T) {
	t.Parallel()
	c := serveCanned(t)
	for kind, body := range map[string]string{"nack": `{"delivery":%q,"delay_ms":1,"dead":false,"reason":"r"}`, "extend": `{"delivery":%q,"lease_ms":1000}`} {
		c.want("POST", "/v1/queues/q/"+kind, fmt.Sprintf(body, c.received("/v1/queues/q/receive")[0].Delivery), 200, `{"count":1}`)
	}
	w := connect(t, c.addr)
	w.ask(`{"type":"consume","id":1,"queue":"q","credits":2}`, `{"type":"ok","id":1}`)
	one, _ := w.delivery().Delivery, w.delivery()
	w.ask(fmt.Sprintf(`{"type":"extend","id":2,"queue":"q","deliveries":[%q],"lease_ms":60000}`, one), `{"type":"ok","id":2,"count":1}`)
	send(t, w.socket, fmt.Sprintf(`{"type":"nack","id":3,"queue":"q","deliveries":[%q],"dead":true,"reason":"r"}`, one))
	w.until(`"id":3`)
}

// TestEverything_Requests: requests on /ws with fields that other tests do not have.
func TestEverything_Requests(t *testing.T) {
	t.Parallel()
	c := serveCanned(t)
	w := dialProtocol(t, c.addr, "tidewire.v1")
	w.next() // hello, with a version
	for _, text := range []string{
		`"type":"publish","stream":"s","messages":[{"payload":"x","key":"k","headers":{"h":1}}]`,
		`"type":"enqueue","queue":"q","payload_base64":"YQ==","key":"k","headers":{},"priority":1,"client":"c","sequence":1`,
		`"type":"append","store":"a","events":[{"type":"E"}],"client":"c","sequence":1`,
		`"type":"query","store":"a","query":{},"after":1`,
		`"type":"project","store":"a","queries":[{}]`,
		`"type":"subscribe","store":"a","query":{},"subscription":"e","credits":1`,
		`"type":"chat","text":"x","ts":1,"on_lag":"gap"`, `"type":"join","on_lag":"disconnect"`, `"type":"credit","subscription":"e","n":1`,
		`"type":"auth","token":"any"`,
	} {
		if got := w.code("{" + text + `,"id":"x"}`); got != "ok" {
			t.Errorf("%s: %s", text, got)
		}
	}
	send(t, w.socket, `{"type":"ping","id":1}`, `{"type":"pong","id":1,"ts":1}`)
	w.next()
}

// TestEverything_Codes: errors of an engine, as clients get them.
func TestEverything_Codes(t *testing.T) {
	t.Parallel()
	c := serveCanned(t)
	for _, code := range []string{"cross_partition", "partitioned", "queue_stream", "sequence_too_old"} {
		c.do("POST", "/v1/streams/"+code+"/messages", `{"payload":"x"}`)
	}
	for _, code := range []string{"position_ahead", "offset_missing"} {
		c.do("POST", "/v1/streams/"+code+"/groups/g/commit", `{"position":1}`)
	}
	for _, code := range []string{"duplicate_id", "too_expensive"} {
		c.do("POST", "/v1/events?store="+code, `{"events":[{"type":"E"}]}`)
	}
	c.do("POST", "/v1/events/project?store=busy", `{"queries":[{}]}`)
	c.do("POST", "/v1/queues/journal_lost/receive", "")
	const large = "message_too_large"
	status, text := c.do("GET", "/v1/streams/"+large+"/messages", "")
	if status != http.StatusUnprocessableEntity || !strings.Contains(text, `"position":2,"size":1073741824`) {
		t.Errorf("%d %s", status, text)
	}
	w := connect(t, c.addr)
	if got := w.code(`{"type":"subscribe","id":"x","stream":"` + large + `"}`); got != large {
		t.Errorf("a subscription is answered with %s", got)
	}
	send(t, w.socket, `{"type":"subscribe","id":1,"stream":"slow"}`, `{"type":"unsubscribe","id":2,"subscription":"slow"}`)
	w.want(`{"type":"error","id":1,"code":"ended","message":"it was ended before it began","retryable":false}`, `{"type":"ok","id":2}`)
	for range 10 {
		c.do("POST", "/v1/queues/q/receive?max=1000&wait_ms=1000", "")
	}
	c.refused("POST", "/v1/queues/q/receive", "", http.StatusTooManyRequests, "too_many_deliveries")
}

// TestEverything_Overloaded: a request for which there is no memory is refused.
func TestEverything_Overloaded(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, gateway.Config{Engine: cannedEngine(closed{streams: newFakeStreams(t), queues: newFakeQueues(t)}), Budget: budget.New(1 << 10)})
	client{t, addr}.refused("POST", "/v1/streams/s/messages", `{"payload":"`+strings.Repeat("x", 2000)+`"}`, http.StatusServiceUnavailable, "overloaded")
}

// serveAdministered serves in closed mode with acts that are carried out nowhere.
func serveAdministered(t *testing.T) closed {
	t.Helper()
	return serveClosed(t, func(cfg *gateway.Config) { cfg.Auth.Administration, cfg.Nodes = cannedAdministration{}, cannedNodes{} })
}

// TestEverything_Administration: acts on users and tokens.
func TestEverything_Administration(t *testing.T) {
	t.Parallel()
	c := serveAdministered(t)
	token := tokenOf(t, "root", time.Hour, "connections server:*", "notify user:*")
	for _, one := range []struct{ path, body, want string }{
		{"users/ann/disconnect", `{"reconnect":false}`, "200"}, {"users/ann/disconnect", "", "200"},
		{"tokens/revoke", `{"user":"ann","before":1795296400,"expires":4102444800}`, "200"}, {"tokens/revoke", `{"jti":"7"}`, "200"},
		{"tokens/revoke", `{"user":"many"}`, "409 too_many_revocations"},
		{"users/ann/messages", `{"message":{}}`, "200"},
	} {
		if got := c.status("POST", "/v1/"+one.path, one.body, token); got != one.want {
			t.Errorf("%s %s: %s, want %s", one.path, one.body, got, one.want)
		}
	}
}

// TestEverything_Follow: followers by server-sent events, from the beginning and after a position.
func TestEverything_Follow(t *testing.T) {
	t.Parallel()
	c := serveCanned(t)
	for _, path := range []string{
		"streams/orders/follow?after=0", "streams/orders/follow?from=end", "streams/orders/follow", "events/follow?type=E&tag=t&store=a&after=0", "events/follow?from=start", "events/follow",
	} {
		headers := []string(nil)
		if !strings.Contains(path, "?") {
			headers = []string{"Last-Event-ID", "0"}
		}
		followRoom(t, c.addr, "/v1/"+path, headers...).resp.Body.Close()
	}
}

// TestEverything_Refused: requests that are refused before the engine is asked, and jobs that are forgotten.
func TestEverything_Refused(t *testing.T) {
	t.Parallel()
	c := serveCanned(t)
	for request, code := range map[string]string{
		"GET /v1/schedules?after=%00": "invalid_parameter", "GET /v1/schedules?after=%ff": "invalid_parameter", "GET /v1/schedules?limit=101": "invalid_parameter", "GET /v1/events?store=tidewire.x": "invalid_name",
		"GET /v1/schedules?after=" + strings.Repeat("x", 1000): "invalid_parameter",
	} {
		method, path, _ := strings.Cut(request, " ")
		c.refused(method, path, "", http.StatusBadRequest, code)
	}
	for _, body := range []string{`{"at":"0000-00-00T00:00:00Z","queue":"q","payload":"x"}`, `{"at":1e400,"queue":"q","payload":"x"}`, `{"at":"2026-01-01T00:00:00Z","queue":"q"}`, `{"cron":5,"queue":"q","payload":"x"}`} {
		c.refused("PUT", "/v1/schedules/s", body, http.StatusBadRequest, "malformed")
	}
	_, text := c.do("POST", "/v1/queues/q/dead/redrive", `{"all":true}`)
	id, _, _ := strings.Cut(strings.TrimPrefix(text, `{"job":"`), `"`)
	for started := 0; started < 110; {
		if status, _ := c.do("POST", "/v1/queues/broken/dead/redrive", `{"all":true}`); status == http.StatusOK {
			started++
		}
	}
	if _, text := c.do("GET", "/v1/queues/broken/jobs", ""); strings.Count(text, `"job":`) != 99 {
		t.Errorf("%d jobs that have ended are remembered, want 99", strings.Count(text, `"job":`))
	}
	if _, text := c.do("GET", "/v1/queues/q/jobs/"+id, ""); !strings.Contains(text, `"state":"running"`) {
		t.Errorf("the job that runs: %s", text)
	}
}
