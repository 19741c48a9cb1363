package cli_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// asked is a request, and what the answer has to have.
type asked struct {
	request, body string
	status        int
	has           string // a part of the answer
}

func (a asked) of(t *testing.T, addr string) string {
	t.Helper()
	method, path, _ := strings.Cut(a.request, " ")
	status, text := request(t, method, addr, path, a.body)
	if status != a.status || !strings.Contains(text, a.has) {
		t.Errorf("%s %s: %d %s, want %d with %s", a.request, a.body, status, text, a.status, a.has)
	}
	return text
}

// TestServeOperate: what operators do to streams, queues and event stores over HTTP.
func TestServeOperate(t *testing.T) {
	t.Parallel()
	p := serve(t, "--database-url", migrated(t).URL)
	for _, a := range []asked{
		{"POST /v1/streams/orders", ``, 200, `"stream":"orders"`},
		{"POST /v1/streams/orders/messages", `{"messages":[{"payload":"1"},{"payload":"2"},{"payload":"3"}]}`, 200, `"count":3`},
		{"GET /v1/streams/orders/retention", ``, 200, `{"max_age_ms":0,"max_bytes":0,"consumed":false}`},
		{"PUT /v1/streams/orders/retention", `{"max_age_ms":3600000,"consumed":true}`, 200, `{"max_age_ms":3600000,"max_bytes":0,"consumed":true}`},
		{"GET /v1/streams/orders/retention", ``, 200, `{"max_age_ms":3600000,"max_bytes":0,"consumed":true}`},
		{"PUT /v1/streams/orders/retention", `{"max_age":1}`, 400, `"code":"unknown_field"`},
		{"PUT /v1/streams/orders/retention", `{"max_age_ms":-1}`, 400, `max_age_ms: want`},
		{"PUT /v1/streams/none/retention", `{}`, 404, `"code":"not_found"`},
		{"POST /v1/streams/orders/groups/g/commit", `{"position":3}`, 200, `{"position":3}`},
		{"POST /v1/streams/orders/groups/g/seek", `{"after":1}`, 200, `{"position":1}`},
		{"POST /v1/streams/orders/groups/g/seek", `{"from":"end"}`, 200, `{"position":3}`},
		{"POST /v1/streams/orders/groups/g/seek", `{"from":"start"}`, 200, `{"position":0}`},
		{"POST /v1/streams/orders/groups/g/seek", `{}`, 400, `"code":"invalid_start"`},
		{"POST /v1/streams/orders/groups/g/seek", `{"after":99}`, 410, `"code":"history_lost"`},
		{"GET /v1/streams/orders/groups", ``, 200, `{"groups":[{"group":"g","offset":0,"lag":3}]`},
		{"DELETE /v1/streams/orders/groups/g", ``, 200, `"group":"g"`},
		{"DELETE /v1/streams/orders/groups/g", ``, 404, `"code":"not_found"`},

		{"POST /v1/queues/jobs", `{"max_attempts":1}`, 200, `"queue":"jobs"`},
		{"GET /v1/queues/jobs/options", ``, 200, `"max_attempts":1`},
		{"PATCH /v1/queues/jobs/options", `{"retry_min_ms":5}`, 200, `{"queue":"jobs","max_attempts":1,"retry_min_ms":5`},
		{"PATCH /v1/queues/jobs/options", `{}`, 400, `max_attempts: want`},
		{"PATCH /v1/queues/jobs/options", `{"max_attempts":0}`, 400, `max_attempts: want 1 or more`},
		{"PATCH /v1/queues/jobs/options", `{"partitions":3}`, 400, `"code":"unknown_field"`},
		{"POST /v1/queues/jobs/messages", `{"payload":"a","key":"k"}`, 200, `"position":1`},
		{"GET /v1/queues/jobs/messages?limit=5", ``, 200, `{"messages":[{"position":1,"key":"k",`},
		{"POST /v1/queues/jobs/pause", ``, 200, `"paused":true`},
		{"GET /v1/queues/jobs", ``, 200, `"paused":true`},
		{"POST /v1/queues/jobs/resume", ``, 200, `"paused":false`},
		{"POST /v1/queues/jobs/purge", `{}`, 200, `"count":1`},
		{"GET /v1/queues/none/dead", ``, 404, `"code":"not_found"`},
		{"GET /v1/queues/jobs/dead?since=now", ``, 400, `since: want a time`},
		{"POST /v1/queues/jobs/dead/redrive", `{}`, 400, `positions: want one of`},
		{"POST /v1/queues/jobs/dead/redrive", `{"positions":[]}`, 400, `positions: want 1 to 1000`},
		{"POST /v1/queues/jobs/dead/redrive", `{"filter":{"kee":"x"}}`, 400, `"field":"filter.kee"`},
		{"GET /v1/queues/jobs/jobs/none", ``, 404, `no such job`},

		{"GET /v1/events/stores", ``, 200, `{"stores":[`},
		{"POST /v1/events/stores/audit", ``, 200, `{"store":"audit"}`},
		{"POST /v1/events?store=audit", `{"events":[{"type":"T"}]}`, 200, `{"positions":[1]}`},
		{"GET /v1/events/stores/audit", ``, 200, `{"head":1,"store":"audit"}`},
		{"POST /v1/events?store=audit", `{"events":[{"type":"Told"},{"type":"U"}]}`, 200, `{"positions":[2,3]}`},
		{"GET /v1/events/types?store=audit", ``, 200, `{"types":["T","Told","U"],"next":"U"}`},
		{"GET /v1/events/types?store=audit&prefix=T&after=T", ``, 200, `{"types":["Told"],"next":"Told"}`},
		{"GET /v1/events/types?store=audit&after=U", ``, 200, `{"types":[],"next":"U"}`},
		{"GET /v1/events/types?store=audit&prefix=%00", ``, 400, `"field":"prefix"`},
		{"GET /v1/events/types?store=audit&limit=0", ``, 400, `"code":"invalid_parameter"`},
		{"GET /v1/events/types?store=none", ``, 404, `"code":"not_found"`},
		{"GET /v1/events/stores", ``, 200, `{"store":"audit"}`},
		{"DELETE /v1/events/stores/audit", ``, 200, `{"store":"audit"}`},
		{"GET /v1/events/stores/audit", ``, 404, `event store`},
		{"PUT /v1/schedules/nightly", `{"cron":"0 3 * * *","time_zone":"Europe/Berlin","queue":"jobs","payload":"report"}`, 200, `"schedule":"nightly","cron":"0 3 * * *","time_zone":"Europe/Berlin","queue":"jobs","payload":"report"`},
		{"GET /v1/schedules/nightly", ``, 200, `"paused":false,"due":"`},
		{"GET /v1/schedules", ``, 200, `{"schedules":[{"schedule":"nightly"`},
		{"POST /v1/schedules/nightly/pause", ``, 200, `"paused":true`},
		{"GET /v1/schedules/nightly", ``, 200, `"paused":true`},
		{"POST /v1/schedules/nightly/resume", ``, 200, `"paused":false`},
		{"PUT /v1/schedules/later", `{"at":"2099-01-01T00:00:00Z","stream":"orders","payload_base64":"AP8="}`, 200, `"at":"2099-01-01T00:00:00Z","stream":"orders","payload_base64":"AP8="`},
		{"PUT /v1/schedules/bad", `{"cron":"never","queue":"jobs","payload":"x"}`, 400, `"field":"cron"`},
		{"PUT /v1/schedules/bad", `{"cron":"* * * * *","payload":"x"}`, 400, `queue`},
		{"PUT /v1/schedules/bad", `{"cron":"* * * * *","queue":"jobs"}`, 400, `payload: want`},
		{"PUT /v1/schedules/bad", `{"cron":"* * * * *","queue":"none","payload":"x"}`, 400, `"field":"queue"`},
		{"PUT /v1/schedules/bad", `{"crom":"* * * * *"}`, 400, `"field":"crom"`},
		{"DELETE /v1/schedules/nightly", ``, 200, `"schedule":"nightly"`},
		{"DELETE /v1/schedules/nightly", ``, 404, `"code":"not_found"`},
		{"POST /v1/events/stores/tidewire.mine", ``, 400, `"code":"invalid_name"`},
	} {
		a.of(t, p.addr)
	}
}

// TestServeOperate_DeadLetters: dead letters are listed by a filter, and redriven and purged, some of them or all by a job.
func TestServeOperate_DeadLetters(t *testing.T) {
	t.Parallel()
	p := serve(t, "--database-url", migrated(t).URL)
	asked{"POST /v1/queues/jobs", `{"max_attempts":1}`, 200, ``}.of(t, p.addr)
	const letters = 30
	for n := range letters {
		asked{"POST /v1/queues/jobs/messages", fmt.Sprintf(`{"payload":"%d","key":"k%d"}`, n, n%3), 200, ``}.of(t, p.addr)
	}
	for dead := 0; dead < letters; {
		var got struct{ Deliveries []struct{ Delivery string } }
		_, text := request(t, "POST", p.addr, "/v1/queues/jobs/receive?max=100&wait_ms=5000", "")
		if json.Unmarshal([]byte(text), &got) != nil {
			t.Fatal(text)
		}
		for _, d := range got.Deliveries {
			asked{"POST /v1/queues/jobs/nack", fmt.Sprintf(`{"delivery":%q,"reason":"Disk is full"}`, d.Delivery), 200, `"count":1`}.of(t, p.addr)
			dead++
		}
	}
	list := func(parameters string) (count int) {
		var got struct {
			Dead []struct {
				Attempts int
				Reason   string
				Died     time.Time
			}
		}
		text := asked{"GET /v1/queues/jobs/dead?limit=1000&" + parameters, ``, 200, `"dead"`}.of(t, p.addr)
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(text)
		}
		for _, d := range got.Dead {
			if d.Attempts != 1 || d.Reason != "Disk is full" || d.Died.IsZero() {
				t.Errorf("got %+v", d)
			}
		}
		return len(got.Dead)
	}
	for parameters, want := range map[string]int{"": letters, "key=k1": letters / 3, "reason=disk": letters, "reason=net": 0, "min_attempts=2": 0, "until=2001-01-01T00:00:00Z": 0} {
		if got := list(parameters); got != want {
			t.Errorf("%s: %d, want %d", parameters, got, want)
		}
	}
	asked{"POST /v1/queues/jobs/dead/purge", `{"positions":[1]}`, 200, `{"count":1}`}.of(t, p.addr)
	asked{"POST /v1/queues/jobs/dead/redrive", `{"positions":[1,2]}`, 200, `{"count":1}`}.of(t, p.addr)
	job := func(path, body string, want int64) {
		t.Helper()
		var one struct {
			Job, State string
			Changed    int64
		}
		text := asked{"POST " + path, body, 200, `"state":"running"`}.of(t, p.addr)
		for {
			if json.Unmarshal([]byte(text), &one) != nil {
				t.Fatal(text)
			}
			if one.State != "running" {
				break
			}
			time.Sleep(10 * time.Millisecond)
			_, text = request(t, "GET", p.addr, "/v1/queues/jobs/jobs/"+one.Job, "")
		}
		if one.State != "done" || one.Changed != want {
			t.Errorf("%s %s: %s, want %d done", path, body, text, want)
		}
	}
	job("/v1/queues/jobs/dead/redrive", `{"filter":{"key":"k2"}}`, letters/3)
	job("/v1/queues/jobs/dead/purge", `{"all":true}`, letters-2-letters/3)
	if got := list(""); got != 0 {
		t.Errorf("%d are left", got)
	}
	asked{"GET /v1/queues/jobs/jobs", ``, 200, `"act":"redrive","state":"done"`}.of(t, p.addr)
}

// TestServe_IdempotencyKey: what is sent again is stored once, over HTTP and on /ws, and the answer says so.
func TestServe_IdempotencyKey(t *testing.T) {
	t.Parallel()
	p := serve(t, "--database-url", migrated(t).URL)
	request(t, "POST", p.addr, "/v1/streams/orders", "")
	request(t, "POST", p.addr, "/v1/queues/jobs", "")
	send := func(path, key, body string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+p.addr+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", key)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := bufio.NewReader(resp.Body).ReadString('\n')
		return strings.TrimSpace(text)
	}
	for path, body := range map[string]string{
		"/v1/streams/orders/messages": `{"payload":"x"}`, "/v1/queues/jobs/messages": `{"payload":"x"}`,
		"/v1/events": `{"events":[{"type":"T"}],"condition":{"query":{"items":[{"types":["T"]}]}}}`,
	} {
		first, second := send(path, "till:7", body), send(path, "till:7", body)
		var one, two map[string]any
		json.Unmarshal([]byte(first), &one)
		json.Unmarshal([]byte(second), &two)
		if one["error"] != nil || one["duplicate"] != nil || two["duplicate"] != true || fmt.Sprint(one["position"], one["positions"]) != fmt.Sprint(two["position"], two["positions"]) {
			t.Errorf("%s: %s, then %s", path, first, second)
		}
		if got := send(path, "no number", body); !strings.Contains(got, "Idempotency-Key: want") {
			t.Errorf("%s: %s", path, got)
		}
	}
	w := wireDial(t, p.addr)
	w.ask(`{"type":"enqueue","id":1,"queue":"jobs","payload":"x","client":"till","sequence":7}`)
	if stats, text := request(t, "GET", p.addr, "/v1/queues/jobs", ""); stats != 200 || !strings.Contains(text, `"ready":1`) {
		t.Errorf("got %s", text)
	}
}

// TestServe_Follow: server-sent events of a stream and of an event store, resumed after the last position.
func TestServe_Follow(t *testing.T) {
	t.Parallel()
	p := serve(t, "--database-url", migrated(t).URL)
	request(t, "POST", p.addr, "/v1/streams/orders", "")
	publish := func(n int) {
		asked{"POST /v1/streams/orders/messages", fmt.Sprintf(`{"payload":"line\n%d"}`, n), 200, ``}.of(t, p.addr)
	}
	follow := func(path, last string) (*bufio.Scanner, func()) {
		t.Helper()
		r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+p.addr+path, nil)
		if last != "" {
			r.Header.Set("Last-Event-ID", last)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("%s: %s %s", path, resp.Status, resp.Header.Get("Content-Type"))
		}
		return bufio.NewScanner(resp.Body), func() { resp.Body.Close() }
	}
	next := func(s *bufio.Scanner) (fields map[string]string) {
		t.Helper()
		fields = make(map[string]string)
		for s.Scan() {
			name, value, _ := strings.Cut(s.Text(), ": ")
			switch {
			case s.Text() == "" && fields["data"] != "":
				return fields
			case s.Text() != "":
				fields[name] = value
			}
		}
		t.Fatalf("it ended: %v", s.Err())
		return nil
	}
	publish(1)
	s, done := follow("/v1/streams/orders/follow?after=0", "")
	for n := 1; n <= 5; n++ {
		if n > 1 {
			publish(n)
		}
		got := next(s)
		if got["event"] != "message" || got["id"] != fmt.Sprint(n) || !strings.Contains(got["data"], fmt.Sprintf(`"payload":"line\n%d"`, n)) {
			t.Errorf("got %v", got)
		}
	}
	done()
	s, done = follow("/v1/streams/orders/follow", "3")
	if got := next(s); got["id"] != "4" {
		t.Errorf("resumed with %v", got)
	}
	done()
	asked{"POST /v1/events", `{"events":[{"type":"A","data":{
		"n":1}},{"type":"B"},{"type":"A","tags":["x"]}]}`, 200, ``}.of(t, p.addr)
	s, done = follow("/v1/events/follow?type=A&after=0", "")
	for _, id := range []string{"1", "3"} {
		if got := next(s); got["event"] != "event" || got["id"] != id || !json.Valid([]byte(got["data"])) {
			t.Errorf("got %v", got)
		}
	}
	done()
	for _, a := range []asked{
		{"GET /v1/streams/none/follow", "", 404, `"not_found"`}, {"GET /v1/streams/orders/follow?after=-1", "", 400, `after: want`},
		{"GET /v1/streams/orders/follow?from=middle", "", 400, `from: want`},
	} {
		a.of(t, p.addr)
	}
	// If the first page takes longer than a moment, the stream of events has begun, and the error is one of them.
	if status, text := request(t, "GET", p.addr, "/v1/streams/orders/follow?after=99", ""); status != 410 && status != 200 || !strings.Contains(text, `"history_lost"`) {
		t.Errorf("after the end: %d %s", status, text)
	}
	// A long poll is answered when there is something, and with nothing in the end.
	asked{"GET /v1/streams/orders/messages?after=5&wait_ms=10", "", 200, `{"messages":[],"next":5}`}.of(t, p.addr)
	asked{"GET /v1/streams/orders/messages?after=5&wait_ms=20001", "", 400, `wait_ms: want`}.of(t, p.addr)
	asked{"GET /v1/streams/orders/messages?after=5&wait_ms=10&key=a", "", 400, `wait_ms: want none beside key`}.of(t, p.addr)
	polled := make(chan string, 1)
	go func() {
		_, text, _ := tryRequest(t.Context(), "GET", p.addr, "/v1/streams/orders/messages?after=5&wait_ms=20000", "")
		polled <- text
	}()
	publish(6)
	if text := <-polled; !strings.Contains(text, `"position":6`) {
		t.Errorf("the long poll got %s", text)
	}
	// A stop ends what follows, and says so.
	s, done = follow("/v1/streams/orders/follow?after=5", "")
	defer done()
	next(s)
	p.stop(t)
	if got := next(s); got["event"] != "error" || !strings.Contains(got["data"], `"code":"stopping"`) {
		t.Errorf("got %v", got)
	}
}
