package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
)

// client is an HTTP client of a server.
type client struct {
	t    *testing.T
	addr string
}

// do sends a request with an optional JSON body and headers (names and values),
// and returns the answer.
func (c client) do(method, path, body string, headers ...string) (int, string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, "http://"+c.addr+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if kind := resp.Header.Get("Content-Type"); kind != "application/json" {
		c.t.Errorf("%s %s: Content-Type %q", method, path, kind)
	}
	if resp.StatusCode == http.StatusMethodNotAllowed && resp.Header.Get("Allow") == "" {
		c.t.Errorf("%s %s: no Allow header", method, path)
	}
	return resp.StatusCode, strings.TrimSpace(string(text))
}

// want sends a request and expects this answer.
func (c client) want(method, path, body string, status int, answer string) {
	c.t.Helper()
	if code, text := c.do(method, path, body); code != status || text != answer {
		c.t.Errorf("%s %s %.100s\n got %d %s\nwant %d %s", method, path, body, code, text, status, answer)
	}
}

// refused sends a request and expects that error code.
func (c client) refused(method, path, body string, status int, want string, headers ...string) {
	c.t.Helper()
	code, text := c.do(method, path, body, headers...)
	var got struct {
		Error struct{ Code, Message string }
	}
	json.Unmarshal([]byte(text), &got)
	if code != status || got.Error.Code != want || got.Error.Message == "" {
		c.t.Errorf("%s %s %.100s\n got %d %s\nwant %d %s", method, path, body, code, text, status, want)
	}
}

func TestAPI_Streams(t *testing.T) {
	t.Parallel()
	streams, _, _, addr := serveAll(t)
	c := client{t, addr}
	c.want("POST", "/v1/streams/a%2Fb", "", 200, `{"keyed":false,"stream":"a/b"}`)
	c.want("POST", "/v1/streams/a%2Fb", `{"keyed":false}`, 200, `{"keyed":false,"stream":"a/b"}`)
	c.refused("POST", "/v1/streams/a%2Fb", `{"keyed":true}`, 409, "exists")
	c.want("GET", "/v1/streams/a%2Fb", "", 200, `{"stream":"a/b","keyed":false,"created":"0001-01-01T00:00:00Z","head":0}`)
	c.want("POST", "/v1/streams/parts", `{"partitions":65}`, 400, `{"error":{"code":"invalid","message":"partitions: 65, want 0 to 64 (the server's --max-partitions)","retryable":false,"field":"partitions"}}`)
	c.want("DELETE", "/v1/streams/a%2Fb", "", 200, `{"stream":"a/b"}`)
	c.refused("DELETE", "/v1/streams/a%2Fb", "", 404, "not_found")
	c.want("GET", "/v1/streams", "", 200, `{"streams":[{"stream":"orders","keyed":true,"created":"0001-01-01T00:00:00Z"}]}`)
	c.want("POST", "/v1/streams/orders/messages", `{"payload":"one","key":"k","headers":{"h":1}}`, 200, `{"position":1,"count":1}`)
	c.want("POST", "/v1/streams/orders/messages", `{"messages":[{"payload":"two"},{"payload_base64":"/w=="}]}`, 200, `{"position":2,"count":2}`)
	if code, text := c.do("POST", "/v1/streams/orders/messages?raw&key=k", "\x00raw", "Content-Type", "application/octet-stream"); code != 200 || text != `{"position":4,"count":1}` {
		t.Errorf("raw: %d %s", code, text)
	}
	one := `{"position":1,"key":"k","headers":{"h":1},"time":"1970-01-01T00:16:40Z","payload":"one"}`
	three := `{"position":3,"time":"1970-01-01T00:16:42Z","payload_base64":"/w=="}`
	four := `{"position":4,"key":"k","time":"1970-01-01T00:16:43Z","payload":"\u0000raw"}`
	c.want("GET", "/v1/streams/orders/messages?limit=1", "", 200, `{"messages":[`+one+`],"next":1}`)
	c.want("GET", "/v1/streams/orders/messages?after=2", "", 200, `{"messages":[`+three+`,`+four+`],"next":4}`)
	c.want("GET", "/v1/streams/orders/messages?after=4", "", 200, `{"messages":[],"next":4}`)
	c.want("GET", "/v1/streams/orders/messages?key=k", "", 200, `{"messages":[`+one+`,`+four+`],"next":4}`)
	c.want("POST", "/v1/streams/orders/groups/g/commit", `{"position":3}`, 200, `{"position":3}`)
	c.want("GET", "/v1/streams/orders", "", 200, `{"stream":"orders","keyed":true,"created":"0001-01-01T00:00:00Z","head":4}`)
	c.want("GET", "/v1/streams/orders/groups", "", 200, `{"groups":[{"group":"g","offset":3,"lag":1}],"next":"g"}`)
	c.want("GET", "/v1/streams/orders/groups?after=g", "", 200, `{"groups":[],"next":"g"}`)
	streams.change(func() { streams.streams["orders"].oldest = 3; streams.streams["orders"].opts.Keyed = false })
	c.want("GET", "/v1/streams/orders/messages?after=1", "", 410, `{"error":{"code":"too_old","message":"the next messages after this position were dropped: continue after oldest - 1","retryable":false,"oldest":3}}`)
	c.refused("GET", "/v1/streams/orders/follow", "", 410, "too_old", "Last-Event-ID", "1") // a status: after an event a browser comes back
	c.refused("GET", "/v1/streams/orders/messages?after=2&key=k", "", 400, "not_keyed")
	waitMetric(t, addr, "tidewire_stored_messages_total 4")
}

func TestAPI_Refuses(t *testing.T) {
	t.Parallel()
	_, _, _, addr := serveAll(t)
	c := client{t, addr}
	long := strings.Repeat("n", 129)
	for _, one := range []struct {
		request, body string
		status        int
		code          string
	}{
		{"GET /v1/", "", 404, "no_such_path"},
		{"GET /v1/streams/orders/nothing", "", 404, "no_such_path"},
		{"PUT /v1/streams/orders", "", 405, "method_not_allowed"},
		{"DELETE /v1/streams", "", 405, "method_not_allowed"},
		{"POST /v1/streams", "{}", 405, "method_not_allowed"},
		{"DELETE /v1/streams/orders/messages", "", 405, "method_not_allowed"},
		{"GET /v1/streams/orders/groups/g/commit", "", 405, "method_not_allowed"},
		{"PATCH /v1/queues/jobs", "", 405, "method_not_allowed"},
		{"GET /v1/queues/jobs/receive", "", 405, "method_not_allowed"},
		{"GET /v1/queues/jobs/receive", "", 405, "method_not_allowed"},
		{"GET /v1/queues/jobs/ack", "", 405, "method_not_allowed"},
		{"GET /v1/queues/jobs/nack", "", 405, "method_not_allowed"},
		{"GET /v1/queues/jobs/extend", "", 405, "method_not_allowed"},
		{"GET /v1/streams/" + long, "", 400, "invalid_name"},
		{"GET /v1/streams/%FF", "", 400, "invalid_name"},
		{"GET /v1/streams/%00", "", 400, "invalid_name"},
		{"GET /v1/queues/" + long, "", 400, "invalid_name"},
		{"POST /v1/streams/orders/groups/" + long + "/commit", `{"position":1}`, 400, "invalid_name"},
		{"GET /v1/streams/nothing/groups", "", 404, "not_found"},
		{"GET /v1/streams/orders/groups?limit=0", "", 400, "invalid_parameter"},
		{"GET /v1/streams/orders/groups?after=%FF", "", 400, "invalid_parameter"},
		{"POST /v1/streams/new", `{"keyed":1}`, 400, "malformed"},
		{"GET /v1/streams/nothing", "", 404, "not_found"},
		{"GET /v1/streams/nothing/messages", "", 404, "not_found"},
		{"POST /v1/streams/nothing/messages", `{"payload":""}`, 404, "not_found"},
		{"POST /v1/streams/nothing/groups/g/commit", `{"position":1}`, 404, "not_found"},
		{"POST /v1/streams/orders/messages", ``, 415, "unsupported_media_type"},
		{"POST /v1/streams/orders/messages", `{"payload":`, 400, "malformed"},
		{"POST /v1/streams/orders/messages", `[]`, 400, "malformed"},
		{"POST /v1/streams/orders/messages", `{}`, 400, "malformed"},
		{"POST /v1/streams/orders/messages", "{\"payload\":\"\xff\"}", 400, "malformed"},
		{"POST /v1/streams/orders/messages", `{"payload":"` + strings.Repeat("x", 256<<10) + `"}`, 413, "too_large"},
		{"POST /v1/streams/orders/messages?raw&key=%FF", `{}`, 400, "invalid"},
		{"POST /v1/streams/orders/messages", `{"messages":[` + strings.Repeat(`{"payload":""},`, 1000) + `{"payload":""}]}`, 400, "too_many_messages"},
		{"GET /v1/streams/orders/messages?limit=0", "", 400, "invalid_parameter"},
		{"GET /v1/streams/orders/messages?limit=5;after=3", "", 400, "invalid_parameter"},
		{"POST /v1/streams/orders/messages?raw&key=50%off", `{}`, 400, "invalid_parameter"},
		{"GET /v1/events?type=h%", "", 400, "invalid_parameter"},
		{"GET /v1/streams/orders/messages?limit=1001", "", 400, "invalid_parameter"},
		{"GET /v1/streams/orders/messages?after=-1", "", 400, "invalid_parameter"},
		{"GET /v1/streams/orders/messages?after=x", "", 400, "invalid_parameter"},
		{"GET /v1/streams/orders/messages?key=%FF", "", 400, "invalid"},
		{"POST /v1/streams/orders/groups/g/commit", `{}`, 400, "malformed"},
		{"POST /v1/streams/orders/groups/g/commit", `{"position":-1}`, 400, "malformed"},
		{"POST /v1/queues/new", `{"retry_min_ms":-1}`, 400, "invalid_duration"},
		{"POST /v1/queues/new", `{"retry_max_ms":86400001}`, 400, "invalid_duration"},
		{"POST /v1/queues/new", `{"max_attempts":-1}`, 400, "invalid"},
		{"POST /v1/queues/jobs", `{"max_attempts":3}`, 409, "exists"},
		{"GET /v1/queues/nothing", "", 404, "not_found"},
		{"DELETE /v1/queues/nothing", "", 404, "not_found"},
		{"POST /v1/queues/nothing/messages", `{"payload":""}`, 404, "not_found"},
		{"POST /v1/queues/jobs/messages", `{"payload":"","delay_ms":-1}`, 400, "invalid_duration"},
		{"POST /v1/queues/nothing/receive", "", 404, "not_found"},
		{"POST /v1/queues/jobs/receive?max=0", "", 400, "invalid_parameter"},
		{"POST /v1/queues/jobs/receive?max=1001", "", 400, "invalid_parameter"},
		{"POST /v1/queues/jobs/receive?wait_ms=20001", "", 400, "invalid_parameter"},
		{"POST /v1/queues/jobs/ack", `{}`, 400, "malformed"},
		{"POST /v1/queues/jobs/ack", ``, 415, "unsupported_media_type"},
		{"POST /v1/queues/jobs/ack", `{"delivery":"never"}`, 409, "lease_lost"},
		{"POST /v1/queues/jobs/nack", `{"delivery":"never","delay_ms":-1}`, 400, "invalid_duration"},
		{"POST /v1/queues/jobs/extend", `{"delivery":"never"}`, 400, "invalid_duration"},
	} {
		method, path, _ := strings.Cut(one.request, " ")
		c.refused(method, path, one.body, one.status, one.code)
	}
}

// TestAPI_ForeignPages: pages of other origins can do nothing, whether a browser
// sends their origin, or they send a body that needs no CORS preflight.
func TestAPI_ForeignPages(t *testing.T) {
	t.Parallel()
	streams, _, _, addr := serveAll(t)
	c := client{t, addr}
	path := "/v1/streams/orders/messages"
	c.refused("POST", path, `{"payload":"x"}`, 403, "foreign_origin", "Origin", "https://evil.example")
	c.refused("POST", path, `{"payload":"x"}`, 403, "foreign_origin", "Sec-Fetch-Site", "cross-site")
	c.refused("POST", path, `{"payload":"x"}`, 403, "foreign_origin", "Origin", "null")
	c.refused("DELETE", "/v1/streams/orders", ``, 403, "foreign_origin", "Sec-Fetch-Site", "same-site")
	c.refused("POST", "/v1/queues/jobs/receive", ``, 403, "foreign_origin", "Origin", "http://evil.example")
	c.refused("GET", path, ``, 403, "foreign_origin", "Sec-Fetch-Site", "cross-site")
	c.refused("GET", path, ``, 403, "foreign_origin", "Origin", "null")
	c.refused("GET", path, ``, 403, "foreign_origin", "Origin", "https://"+addr) // another scheme
	c.refused("OPTIONS", path, ``, 403, "foreign_origin", "Origin", "https://evil.example", "Access-Control-Request-Method", "POST")
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "application/json-ish"} {
		c.refused("POST", path, `{"payload":"x"}`, 415, "unsupported_media_type", "Content-Type", kind)
		if kind != "application/json-ish" {
			c.refused("POST", path+"?raw", `x`, 415, "unsupported_media_type", "Content-Type", kind)
		}
	}
	for _, at := range []string{path, path + "?raw"} { // nothing is inflated
		c.refused("POST", at, `{"payload":"x"}`, 415, "unsupported_media_type", "Content-Type", "application/json", "Content-Encoding", "gzip")
	}
	if n := locked(streams, func() int { return len(streams.streams["orders"].messages) }); n != 0 {
		t.Errorf("%d messages were stored", n)
	}
	if code, text := c.do("POST", path, `{"payload":"x"}`, "Origin", "http://"+addr, "Content-Type", "application/json; charset=utf-8"); code != 200 {
		t.Errorf("one's own page: %d %s", code, text)
	}
}

func TestAPI_NotServed(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Ingest: (&memory{}).source}})
	c := client{t, addr}
	for _, request := range []string{
		"GET /v1/streams", "POST /v1/streams/s", "GET /v1/streams/s", "DELETE /v1/streams/s", "POST /v1/streams/s/messages",
		"GET /v1/streams/s/messages", "POST /v1/streams/s/groups/g/commit", "GET /v1/queues", "POST /v1/queues/q", "GET /v1/queues/q",
		"DELETE /v1/queues/q", "POST /v1/queues/q/messages", "POST /v1/queues/q/receive", "POST /v1/queues/q/ack",
		"POST /v1/queues/q/nack", "POST /v1/queues/q/extend",
	} {
		method, path, _ := strings.Cut(request, " ")
		c.refused(method, path, "", 404, "not_served")
	}
}

func TestAPI_StopAnswersWhatWasAccepted(t *testing.T) {
	t.Parallel()
	streams, _, server, addr := serveAll(t)
	c := client{t, addr}
	streams.hold(true)
	answered := make(chan string, 1)
	go func() {
		_, text := c.do("POST", "/v1/streams/orders/messages", `{"payload":"x"}`)
		answered <- text
	}()
	waitFor(t, func() bool {
		streams.mu.Lock()
		defer streams.mu.Unlock()
		return len(streams.waiting) == 1
	}, "nothing was published")
	stopped := make(chan error, 1)
	go func() { stopped <- server.Shutdown(t.Context()) }()
	time.Sleep(20 * time.Millisecond)
	streams.hold(false)
	if text := <-answered; text != `{"position":1,"count":1}` {
		t.Errorf("answered %s", text)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestAPI_StopGivesUp(t *testing.T) {
	t.Parallel()
	streams, _, server, addr := serveAll(t)
	c := client{t, addr}
	streams.hold(true)
	answered := make(chan string, 1)
	go func() {
		_, text := c.do("POST", "/v1/streams/orders/messages", `{"payload":"x"}`)
		answered <- text
	}()
	waitFor(t, func() bool {
		streams.mu.Lock()
		defer streams.mu.Unlock()
		return len(streams.waiting) == 1
	}, "nothing was published")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if text := <-answered; !strings.Contains(text, "outcome_unknown") {
		t.Errorf("answered %s", text)
	}
	streams.hold(false)
}

func TestAPI_InternalsStayInside(t *testing.T) {
	t.Parallel()
	streams, _, _, addr := serveAll(t)
	streams.change(func() { streams.fail = errors.New("password of the database is secret") })
	c := client{t, addr}
	for _, request := range []string{"GET /v1/streams", "GET /v1/streams/orders", "GET /v1/streams/orders/messages", "POST /v1/streams/orders/messages", "POST /v1/streams/new"} {
		method, path, _ := strings.Cut(request, " ")
		if status, text := c.do(method, path, map[string]string{"POST /v1/streams/orders/messages": `{"payload":"x"}`}[request]); status < 500 || strings.Contains(text, "secret") {
			t.Error(request, status, text)
		}
	}
}
