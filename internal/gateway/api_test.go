package gateway_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/websocket"
)

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
	streams.change(func() { streams.fail = errors.New("password of the database is secret") })
	for _, request := range []string{"GET /v1/streams", "GET /v1/streams/orders", "GET /v1/streams/orders/messages?after=2", "POST /v1/streams/orders/messages", "POST /v1/streams/new"} {
		method, path, _ := strings.Cut(request, " ")
		if status, text := c.do(method, path, map[string]string{"POST /v1/streams/orders/messages": `{"payload":"x"}`}[request]); status < 500 || strings.Contains(text, "secret") {
			t.Error(request, status, text)
		}
	}
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
		{"GET /v1/", "", 404, "no_such_path"}, {"GET /v1/streams/orders/nothing", "", 404, "no_such_path"},
		{"PUT /v1/streams/orders", "", 405, "method_not_allowed"}, {"DELETE /v1/streams", "", 405, "method_not_allowed"}, {"GET /v1/queues/jobs/receive", "", 405, "method_not_allowed"},
		{"GET /v1/streams/" + long, "", 400, "invalid_name"}, {"GET /v1/streams/%FF", "", 400, "invalid_name"}, {"GET /v1/streams/%00", "", 400, "invalid_name"}, {"GET /v1/queues/" + long, "", 400, "invalid_name"},
		{"POST /v1/streams/orders/groups/" + long + "/commit", `{"position":1}`, 400, "invalid_name"},
		{"GET /v1/streams/nothing/groups", "", 404, "not_found"}, {"GET /v1/streams/nothing", "", 404, "not_found"}, {"GET /v1/streams/nothing/messages", "", 404, "not_found"},
		{"GET /v1/queues/nothing", "", 404, "not_found"}, {"DELETE /v1/queues/nothing", "", 404, "not_found"}, {"POST /v1/queues/nothing/receive", "", 404, "not_found"},
		{"GET /v1/streams/orders/groups?limit=0", "", 400, "invalid_parameter"}, {"GET /v1/streams/orders/groups?after=%FF", "", 400, "invalid_parameter"},
		{"GET /v1/streams/orders/messages?limit=0", "", 400, "invalid_parameter"}, {"GET /v1/streams/orders/messages?limit=1001", "", 400, "invalid_parameter"},
		{"GET /v1/streams/orders/messages?limit=5;after=3", "", 400, "invalid_parameter"}, {"GET /v1/streams/orders/messages?after=-1", "", 400, "invalid_parameter"},
		{"GET /v1/streams/orders/messages?after=x", "", 400, "invalid_parameter"}, {"GET /v1/streams/orders/messages?wait_ms=20001", "", 400, "invalid_parameter"},
		{"GET /v1/streams/orders/messages?key=%FF", "", 400, "invalid"}, {"POST /v1/streams/orders/messages?raw&key=%FF", `{}`, 400, "invalid"}, {"POST /v1/streams/orders/messages?raw&key=50%off", `{}`, 400, "invalid_parameter"},
		{"GET /v1/events?type=h%", "", 400, "invalid_parameter"},
		{"POST /v1/streams/orders/messages", ``, 415, "unsupported_media_type"}, {"POST /v1/queues/jobs/ack", ``, 415, "unsupported_media_type"},
		{"POST /v1/streams/orders/messages", `{"payload":"` + strings.Repeat("x", 256<<10) + `"}`, 413, "too_large"},
		{"POST /v1/streams/orders/messages", `{"messages":[` + strings.Repeat(`{"payload":""},`, 1000) + `{"payload":""}]}`, 400, "too_many_messages"},
		{"POST /v1/queues/new", `{"retry_min_ms":-1}`, 400, "invalid_duration"}, {"POST /v1/queues/new", `{"retry_max_ms":86400001}`, 400, "invalid_duration"}, {"POST /v1/queues/jobs", `{"max_attempts":3}`, 409, "exists"},
		{"POST /v1/queues/jobs/messages", `{"payload":"","delay_ms":-1}`, 400, "invalid_duration"},
		{"POST /v1/queues/jobs/receive?max=0", "", 400, "invalid_parameter"}, {"POST /v1/queues/jobs/receive?max=1001", "", 400, "invalid_parameter"}, {"POST /v1/queues/jobs/receive?wait_ms=20001", "", 400, "invalid_parameter"},
		{"POST /v1/queues/jobs/ack", `{"delivery":"never"}`, 409, "lease_lost"}, {"POST /v1/queues/jobs/nack", `{"delivery":"never","delay_ms":-1}`, 400, "invalid_duration"}, {"POST /v1/queues/jobs/extend", `{"delivery":"never"}`, 400, "invalid_duration"},
		{"POST /v1/queues/jobs/receive", `{"max":10}`, 400, "unknown_field"}, {"POST /v1/queues/jobs/pause", `{"max":10}`, 400, "unknown_field"}, // no body with fields, which may be meant for the URL
	} {
		method, path, _ := strings.Cut(one.request, " ")
		c.refused(method, path, one.body, one.status, one.code)
	}
	c.want("POST", "/v1/queues/jobs/receive", " {} ", 200, `{"deliveries":[]}`)
	for _, key := range []string{":", ":1", "c:", "c", "1", "c:-1", "c:1.5", "c:9223372036854775808", long + ":1", "\xff\xfe:1"} {
		for _, path := range []string{"/v1/streams/orders/messages", "/v1/queues/jobs/messages"} {
			c.refused("POST", path, `{"payload":"x"}`, http.StatusBadRequest, "invalid", "Idempotency-Key", key)
		}
	}
	c.refused("POST", "/v1/streams/orders/messages", `{"payload":"x","client":"c","sequence":1}`, http.StatusBadRequest, "invalid", "Idempotency-Key", "c:1")
	for _, key := range []string{"a:b:c:1", long[:128] + ":9223372036854775807"} {
		for _, duplicate := range []bool{false, true} {
			if status, text := c.do("POST", "/v1/streams/orders/messages", `{"payload":"x"}`, "Idempotency-Key", key); status != http.StatusOK || strings.Contains(text, "duplicate") != duplicate {
				t.Errorf("%.20s: %d %s", key, status, text)
			}
		}
	}
}

// TestAPI_ForeignPages: pages of other origins can do nothing, whether a browser sends their origin, or they send a body that needs no CORS preflight.
func TestAPI_ForeignPages(t *testing.T) {
	t.Parallel()
	streams, _, _, addr := serveAll(t)
	c := client{t, addr}
	const path = "/v1/streams/orders/messages"
	for _, header := range [][]string{
		{"Origin", "https://evil.example"}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "null"}, {"Origin", "https://" + addr}, // another scheme
	} {
		c.refused("POST", path, `{"payload":"x"}`, 403, "foreign_origin", header...)
		c.refused("GET", path, ``, 403, "foreign_origin", header...)
	}
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
	if n := streams.stored("orders"); n != 0 {
		t.Errorf("%d messages were stored", n)
	}
	if code, text := c.do("POST", path, `{"payload":"x"}`, "Origin", "http://"+addr, "Content-Type", "application/json; charset=utf-8"); code != 200 {
		t.Errorf("one's own page: %d %s", code, text)
	}
}

// TestAccess_AllowedOrigins: pages of allowed origins may use /v1 and /ws, and can read why their token was not accepted. Others may not, with a token or
// without.
func TestAccess_AllowedOrigins(t *testing.T) {
	t.Parallel()
	access, err := websocket.NewAccess(websocket.AccessConfig{Origins: []string{"https://app.example.com", "https://*.example.org"}, Loopback: true})
	if err != nil {
		t.Fatal(err)
	}
	c := serveClosed(t, func(cfg *gateway.Config) { cfg.Access = access })
	good, old := tokenOf(t, "ann", time.Hour, "read stream:**"), tokenOf(t, "ann", -time.Minute)
	do := func(method, origin, token string) *http.Response {
		t.Helper()
		headers := []string{"Authorization", "Bearer " + token, "Access-Control-Request-Method", "DELETE"}
		if origin != "" {
			headers = append(headers, "Origin", origin)
		}
		resp, _ := client{t, c.addr}.fetch(method, "/v1/streams", "", headers...)
		if resp.Header.Get("Vary") != "Origin" || resp.Header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s %s: headers %v", method, origin, resp.Header)
		}
		return resp
	}
	for origin, allowed := range map[string]bool{
		"": true, "https://app.example.com": true, "https://a.example.org": true, "https://app.example.com.evil.example": false,
	} {
		echo, get, preflight, expired := "", do("GET", origin, good), do("OPTIONS", origin, ""), do("GET", origin, old)
		if allowed {
			echo = origin
		}
		if (get.StatusCode == http.StatusOK) != allowed || !allowed && get.StatusCode != http.StatusForbidden || get.Header.Get("Access-Control-Allow-Origin") != echo || expired.Header.Get("Access-Control-Allow-Origin") != echo {
			t.Errorf("GET from %q: %d, %v", origin, get.StatusCode, get.Header)
		}
		if h := preflight.Header; (h.Get("Access-Control-Allow-Methods") == "GET, POST, PUT, PATCH, DELETE" && strings.Contains(h.Get("Access-Control-Allow-Headers"), "Authorization")) != (echo != "") {
			t.Errorf("preflight from %q: %d %v", origin, preflight.StatusCode, h)
		}
		for _, path := range []string{"/ws", "/ws/chat"} {
			if origin == "" {
				continue
			}
			conn, err := websocket.Dial(t.Context(), "ws://"+c.addr+path, websocket.Config{Header: bearer(good, "Origin", origin)})
			if err == nil {
				conn.Abort()
			}
			if refused, _ := errors.AsType[*websocket.HandshakeError](err); (err == nil) != allowed || err != nil && refused.Status != http.StatusForbidden {
				t.Errorf("%s from %q: %v", path, origin, err)
			}
		}
	}
	r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+c.addr+"/v1/streams", nil)
	r.Host = "evil.example"
	if resp, err := http.DefaultClient.Do(r); err != nil || resp.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("a page whose name was made to resolve here: %v, %v, want 421", resp, err)
	} else {
		resp.Body.Close()
	}
}

func TestAPI_StopAnswersWhatWasAccepted(t *testing.T) {
	for name, want := range map[string]string{"in time": `{"position":1,"count":1}`, "too late": `"outcome_unknown"`} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				streams, _, server, addr := serveAll(t)
				streams.hold(true)
				answered := make(chan string, 1)
				go func() {
					_, text := client{t, addr}.do("POST", "/v1/streams/orders/messages", `{"payload":"x"}`)
					answered <- text
				}()
				testkit.Eventually(t, "it is published", streams.waits)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				if name == "in time" {
					time.AfterFunc(time.Second, func() { streams.hold(false) })
				}
				if err := server.Shutdown(ctx); (err != nil) != (name == "too late") {
					t.Error(err)
				}
				if text := <-answered; !strings.Contains(text, want) {
					t.Errorf("answered %s", text)
				}
				streams.hold(false)
			})
		})
	}
}

// lastRead is a reader whose server gives up as it answers.
type lastRead struct {
	engine.Streams
	giveUp func()
}

func (r *lastRead) Read(ctx context.Context, stream string, key *string, after int64, limit int) ([]engine.Message, error) {
	messages, err := r.Streams.Read(ctx, stream, key, after, limit)
	r.giveUp()
	<-ctx.Done()
	return messages, err
}

// TestShutdown_PageIsGivenUp: a stop does not wait until a page is encoded as JSON.
func TestShutdown_PageIsGivenUp(t *testing.T) {
	t.Parallel()
	streams := newFakeStreams(t, "orders")
	fill(streams, "orders", 1, 1)
	reader := &lastRead{Streams: streams}
	server, addr := serve(t, gateway.Config{Engine: engine.Engine{Streams: reader}})
	reader.giveUp = server.GiveUp
	client{t, addr}.refused("GET", "/v1/streams/orders/messages", "", 503, "stopping")
}
