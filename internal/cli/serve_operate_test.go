package cli_test

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
)

// TestServeOperate: what operators do to streams, queues and event stores over HTTP.
func TestServeOperate(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	p := serve(t, "--database-url", db.URL)
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

		{"POST /v1/queues/dead", `{"max_attempts":1}`, 200, ``},
		{"POST /v1/queues/dead", `{"max_attempts":1,"partitions":2}`, 409, `"exists"`},
		{"POST /v1/queues/orders", ``, 409, `drop that one first`}, // a stream that has messages
		{"DELETE /v1/queues/orders", ``, 404, ``},
		{"GET /v1/streams/orders/messages?limit=1", ``, 200, `"payload":"1"`},
		{"POST /v1/streams/dead/messages", `{"payload":"forged"}`, 409, `queue_stream`},
		{"DELETE /v1/streams/dead", ``, 409, `queue_stream`},
		{"DELETE /v1/streams/tidewire.rooms", ``, 400, `"code":"invalid_name"`},
		{"GET /v1/streams/tidewire.rooms/messages", ``, 400, `"code":"invalid_name"`},
		{"DELETE /v1/queues/tidewire.rooms", ``, 400, `"code":"invalid_name"`},
		{"GET /v1/events?store=tidewire.x", ``, 400, `"code":"invalid_name"`},
		{"POST /v1/streams/orders/groups/tidewire.g/commit", `{"position":1}`, 400, `"code":"invalid_name"`},
	} {
		a.of(t, p.Addr)
	}
	if _, text := request(t, "GET", p.Addr, "/v1/streams", ""); strings.Contains(text, "tidewire.") {
		t.Errorf("streams: %s", text)
	}
	_, port, _ := strings.Cut(p.Addr, ":")
	p.Await(t, "console at http://localhost:"+port+"/console/\n")
	asked{"GET /console/streams/orders", ``, 200, "<title>Tidewire"}.of(t, p.Addr)
	// A queue that has lost its journal, as after a restore of an incomplete backup, says what the operator can do.
	execSQL(t, db, `DELETE FROM tidewire.queue_journal`)
	asked{"GET /v1/queues/dead", ``, 409, `tidewire.restart_queue(`}.of(t, p.Addr)
	asked{"POST /v1/queues/dead/receive?wait_ms=10000", ``, 409, `"journal_lost"`}.of(t, p.Addr)
}

// TestServe_DeadLetters: the dead letters that a filter selects are shown, redriven and purged, by commands, and by jobs of the server.
func TestServe_DeadLetters(t *testing.T) {
	t.Parallel()
	s := shell{t, migrated(t).URL}
	p := serve(t, "--database-url", s.url)
	asked{"POST /v1/queues/dead", `{"max_attempts":1}`, 200, ``}.of(t, p.Addr)
	for _, key := range []string{"b", "a", "b", "a", "c"} {
		asked{"POST /v1/queues/dead/messages", `{"payload":"` + key + `","key":"` + key + `"}`, 200, ``}.of(t, p.Addr)
		text := asked{"POST /v1/queues/dead/receive?wait_ms=20000", ``, 200, `"delivery":"`}.of(t, p.Addr)
		_, delivery, _ := strings.Cut(text, `"delivery":"`)
		delivery, _, _ = strings.Cut(delivery, `"`)
		asked{"POST /v1/queues/dead/nack", `{"delivery":"` + delivery + `","reason":"Bad ` + key + `"}`, 200, `"count":1`}.of(t, p.Addr)
	}
	asked{"GET /v1/queues/dead/dead?reason=bad&key=c", ``, 200, `"reason":"Bad c"`}.of(t, p.Addr)
	asked{"GET /v1/queues/dead/dead?reason=net", ``, 200, `"dead":[]`}.of(t, p.Addr)
	asked{"POST /v1/queues/dead/dead/purge", `{"positions":[1]}`, 200, `{"count":1}`}.of(t, p.Addr)
	for _, job := range []struct{ act, body, done string }{{"redrive", `{"filter":{"key":"none"}}`, `"changed":0`}, {"purge", `{"filter":{"key":"b"}}`, `"changed":1`}} {
		asked{"POST /v1/queues/dead/dead/" + job.act, job.body, 200, `"state":"running"`}.of(t, p.Addr)
		testkit.Eventually(t, job.act+" is done", func() bool {
			_, text := request(t, "GET", p.Addr, "/v1/queues/dead/jobs", "")
			return strings.Contains(text, `"act":"`+job.act+`","state":"done"`) && strings.Contains(text, job.done)
		})
	}
	for _, c := range []struct{ line, prints string }{
		{"queue peek dead --dead --raw --reason bad --since 1h --key c", "c\n"},
		{"queue redrive dead --key a --before 7d", "redriven 0\n"},
		{"queue redrive dead --key a", "redriven 2\n"},
		{"queue purge-dead dead --yes --reason c", "purged 1\n"},
		{"queue peek dead --dead", ""},
		{"queue receive dead --raw --max 2", "a\na\n"},
		{"queue purge dead --yes", "purged 0\n"},
	} {
		if out := s.run(strings.Fields(c.line)...); out != c.prints {
			t.Errorf("%s: %q, want %q", c.line, out, c.prints)
		}
	}
}

// TestServe_EndsFollowers: a stop ends what follows, and says so; a long poll and a message that is too large for the server are answered.
func TestServe_EndsFollowers(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	for name, opts := range map[string]stream.Options{"orders": {Keyed: true}, "parts": {Partitions: 1}} {
		s, err := stream.Ensure(t.Context(), db.Pool, name, opts)
		if err != nil {
			t.Fatal(err)
		}
		if opts.Partitions > 0 {
			s = s.Partition(0)
		}
		a := stream.NewAppender(db.Pool, s, stream.AppenderConfig{})
		a.Start()
		defer a.Stop()
		for _, size := range []int{1000, 3 << 20, 2000} { // the second by a program that has no limit of a server
			if _, err := a.Append(t.Context(), stream.Message{Key: "k", Payload: []byte(strings.Repeat("x", size))}); err != nil {
				t.Fatal(err)
			}
		}
	}
	p := serve(t, "--database-url", db.URL)
	for _, query := range []string{"", "&key=k"} {
		for after, want := range map[string]asked{
			"0": {"", "", 200, `"next":1}`}, "1": {"", "", 422, `"position":2,"size":3145728`}, "2": {"", "", 200, `"next":3}`},
		} {
			want.request = "GET /v1/streams/orders/messages?after=" + after + query
			want.of(t, p.Addr)
		}
	}
	w := wireDial(t, p.Addr)
	w.ask(`{"type":"subscribe","stream":"parts","group":"g","share":true,"id":1}`)
	for _, want := range []string{"assigned", "message", "parked"} {
		if m, err := w.next(); err != nil || m.Type != want || want == "parked" && m.Code != "message_too_large" {
			t.Errorf("%+v, %v, want %s", m, err, want)
		}
	}
	asked{"GET /v1/streams/orders/messages?after=3&wait_ms=10", "", 200, `{"messages":[],"next":3}`}.of(t, p.Addr)
	polled := make(chan string, 1)
	go func() {
		_, text, _ := tryRequest(t.Context(), "GET", p.Addr, "/v1/streams/orders/messages?after=3&wait_ms=20000", "")
		polled <- text
	}()
	asked{"POST /v1/streams/orders/messages", `{"payload":"four"}`, 200, `"position":4`}.of(t, p.Addr)
	if text := <-polled; !strings.Contains(text, `"position":4`) {
		t.Errorf("the long poll got %s", text)
	}
	resp, err := http.Get("http://" + p.Addr + "/v1/streams/orders/follow?after=2")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for _, want := range []string{"id: 4", "event: error", `"code":"stopping"`} {
		found := false
		for !found && lines.Scan() {
			found = strings.Contains(lines.Text(), want)
		}
		if !found {
			t.Fatalf("no %s: %v", want, lines.Err())
		}
		if want == "id: 4" {
			p.Stop(t)
		}
	}
}

// TestServe_ManyAtWork publishes to more streams and queues at the same time than the server has connections to PostgreSQL. No publisher pauses before all
// have made progress.
func TestServe_ManyAtWork(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	p := serve(t, "--database-url", db.URL)
	const each, streams, queues = 5, 40, 10
	var behind atomic.Int32
	behind.Store(streams + queues)
	var publishing sync.WaitGroup
	for i := range streams + queues {
		path := fmt.Sprint(map[bool]string{true: "/v1/streams/s", false: "/v1/queues/q"}[i < streams], i)
		asked{"POST " + path, "", 200, ""}.of(t, p.Addr)
		publishing.Go(func() {
			for n := 1; behind.Load() > 0; n++ {
				status, answer, err := tryRequest(t.Context(), "POST", p.Addr, path+"/messages", `{"payload":"x"}`)
				if err != nil || status != http.StatusOK {
					t.Errorf("%s: %d %s, %v", path, status, answer, err)
					behind.Store(0)
				}
				if n == each {
					behind.Add(-1)
				}
			}
		})
	}
	publishing.Wait()
	if n := rows(t, db.URL, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'tidewire%'`); n > 28+2 {
		t.Errorf("%d connections to PostgreSQL, want at most 28, one to listen and one for /readyz", n)
	}
}
