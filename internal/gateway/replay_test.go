package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/testkit"
)

// replayAnswer is a job.
type replayAnswer struct {
	Job, State, Error, Replay              string
	Changed, Repeated, Bytes, After, Until int64
	First, Last                            struct{ Position int64 }
}

// replay starts a replay of orders, and returns it when it has ended.
func (c client) replay(body string, headers ...string) (a replayAnswer) {
	c.t.Helper()
	return c.replayOf("orders", body, headers...)
}

func (c client) replayOf(stream, body string, headers ...string) (a replayAnswer) {
	c.t.Helper()
	status, text := c.do("POST", "/v1/streams/"+stream+"/replay", body, headers...)
	testkit.Eventually(c.t, "the replay ends", func() bool {
		if err := json.Unmarshal([]byte(text), &a); err != nil || status != http.StatusOK {
			c.t.Fatalf("%d %s %v", status, text, err)
		}
		if a.State == "running" {
			status, text = c.do("GET", "/v1/streams/"+stream+"/jobs/"+a.Job, "", headers...)
		}
		return a.State != "running"
	})
	return a
}

func filledStreams(t *testing.T, n int, names ...string) *fakeStreams {
	streams := newFakeStreams(t, append(names, "orders")...)
	for i := range n {
		streams.streams["orders"].messages = append(streams.streams["orders"].messages, engine.Message{
			Position: int64(i + 1), Key: fmt.Sprint("k", i%2), Headers: []byte(`{"a":1.50}`), Payload: fmt.Append(nil, i+1), Time: time.Unix(int64(i), 0)})
	}
	return streams
}

// TestReplay: messages keep what they have, and their order; a dry run counts them; a replay that is tried again stores none twice. One of the same name, of
// another stream, is another replay.
func TestReplay(t *testing.T) {
	t.Parallel()
	streams, queues := filledStreams(t, 1300, "copy", "parted", "jobs"), newFakeQueues(t, "mail", "orders")
	streams.streams["parted/0"], streams.streams["parted"].opts.Partitions = streams.streams["orders"], 2
	var log lines
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Streams: streams, Queues: queues}, Audit: slog.New(slog.NewJSONHandler(&log, nil))})
	c := client{t, addr}
	dry := c.replay(`{"to_stream":"copy","after":100,"until":1250,"dry_run":true}`)
	if dry.State != "done" || dry.Changed != 1150 || dry.Bytes == 0 || dry.First.Position != 101 || dry.Last.Position != 1250 || len(streams.streams["copy"].messages) != 0 {
		t.Fatalf("a dry run: %+v", dry)
	}
	if text := log.String(); text != "" {
		t.Errorf("a dry run is in the audit log: %s", text)
	}
	a := c.replay(`{"to_stream":"copy","after":100,"until":1250}`)
	if a.State != "done" || a.Changed != 1150 || a.Bytes != dry.Bytes || a.After != 1250 || a.Repeated != 0 {
		t.Fatalf("a replay: %+v", a)
	}
	copies := func() []engine.Message {
		streams.state.Lock()
		defer streams.state.Unlock()
		return streams.streams["copy"].messages
	}
	for i, m := range copies() {
		if want := streams.streams["orders"].messages[100+i]; m.Key != want.Key || string(m.Headers) != string(want.Headers) || string(m.Payload) != string(want.Payload) {
			t.Fatalf("message %d is %v, want %v", i, m, want)
		}
	}
	again := c.replay(fmt.Sprintf(`{"to_stream":"copy","after":90,"until":1300,"replay":%q}`, a.Replay))
	if again.Changed != 60 || again.Repeated != 1150 || len(copies()) != 1210 {
		t.Errorf("tried again: %+v, %d messages", again, len(copies()))
	}
	if other := c.replayOf("parted%2F0", fmt.Sprintf(`{"to_stream":"copy","replay":%q}`, a.Replay)); other.Changed != 1300 || other.Repeated != 0 {
		t.Errorf("of another stream: %+v", other)
	}
	if a := c.replay(`{"to_queue":"mail","key":"k1"}`); a.State != "done" || a.Changed != 650 || a.Until != 1300 {
		t.Errorf("of a key, into a queue: %+v", a)
	}
	if a := c.replay(`{"to_stream":"copy","after":1300}`); a.State != "done" || a.Changed != 0 {
		t.Errorf("of nothing: %+v", a)
	}
	for _, one := range []struct {
		body, code string
		status     int
	}{
		{`{}`, "malformed", 400}, {`{"to_stream":"copy","to_queue":"mail"}`, "malformed", 400}, {`{"to_stream":"tidewire.rooms"}`, "invalid_name", 400}, {`{"to_queue":"tidewire.x"}`, "invalid_name", 400},
		{`{"to_stream":"orders"}`, "invalid", 400}, {`{"to_queue":"orders"}`, "invalid", 400}, {`{"to_stream":"jobs"}`, "queue_stream", 0}, {`{"to_stream":"nope"}`, "not_found", 404}, {`{"to_queue":"nope"}`, "not_found", 404},
		{`{"to_stream":"copy","after":5,"until":4}`, "invalid", 400}, {`{"to_stream":"copy","after":-1}`, "invalid", 400}, {`{"to_stream":"copy","replay":"mine"}`, "invalid", 400}, {`{"to_stream":"copy","more":1}`, "unknown_field", 400},
	} {
		status, text := c.do("POST", "/v1/streams/orders/replay", one.body)
		if !strings.Contains(text, `"code":"`+one.code+`"`) || one.status != 0 && status != one.status {
			t.Errorf("%s: %d %s, want %d %s", one.body, status, text, one.status, one.code)
		}
	}
	c.refused("POST", "/v1/streams/parted%2F0/replay", `{"to_stream":"parted"}`, 400, "invalid")
	c.refused("GET", "/v1/queues/orders/jobs/"+a.Job, "", 404, "not_found")
}

// TestReplay_Ends: a replay that is stopped, that cannot be stored, that cannot be read, or whose caller has lost a right says where it has ended, and why:
// in its job and in the audit log. It goes on there, and stores nothing twice.
func TestReplay_Ends(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]struct {
		end         func(s *rulesServer, streams *fakeStreams, stop func())
		state, code string
	}{
		"stopped":   {func(_ *rulesServer, _ *fakeStreams, stop func()) { stop() }, "stopped", ""},
		"dropped":   {func(_ *rulesServer, f *fakeStreams, _ func()) { f.change(func() { f.fail = engine.ErrNotFound }) }, "failed", "not_found"},
		"too old":   {func(_ *rulesServer, f *fakeStreams, _ func()) { f.change(func() { f.streams["orders"].oldest = 1100 }) }, "failed", "too_old"},
		"forbidden": {func(s *rulesServer, _ *fakeStreams, _ func()) { s.allow("read stream:*") }, "failed", "forbidden"},
		"revoked":   {func(s *rulesServer, _ *fakeStreams, _ func()) { s.revoke("u") }, "failed", "invalid_token"},
		"anonymous": {func(s *rulesServer, _ *fakeStreams, _ func()) { s.allow("read,publish stream:*") }, "failed", "unauthenticated"},
		"done":      {func(*rulesServer, *fakeStreams, func()) {}, "done", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			streams, log := filledStreams(t, 1200, "copy"), &lines{}
			s := serveRules(t, func(cfg *gateway.Config) {
				cfg.Engine.Streams, cfg.Audit = streams, slog.New(slog.NewJSONHandler(log, nil))
			}, "anonymous", "read,publish stream:*")
			h, token := client{t, s.addr}, []string{"Authorization", "Bearer " + tokenOf(t, "u", time.Hour)}
			if name == "anonymous" {
				token = nil
			}
			streams.hold(true) // no commit until then
			a := startReplay(t, h, `{"to_stream":"copy"}`, token...)
			job := "/v1/streams/orders/jobs/" + a.Job
			testkit.Eventually(t, "the replay begins", streams.waits)
			d.end(s, streams, func() { h.do("DELETE", job, "", token...) })
			streams.hold(false)
			var end map[string]any
			testkit.Eventually(t, "its end is recorded", func() bool {
				for _, line := range log.all(t) {
					if line["msg"] == "replay" {
						end = line
					}
				}
				return end != nil
			})
			code, _ := end["code"].(string)
			stored := streams.stored("copy")
			if end["state"] != d.state || code != d.code || end["replay"] != a.Replay || end["done"] != (d.state == "done") || end["after"] != float64(stored) || d.state != "done" && stored == 1200 {
				t.Errorf("%v, want %s %s, and %d messages are stored", end, d.state, d.code, stored)
			}
			s.snapshot.Store(auth.NewSnapshot(nil, nil, nil))
			s.allow("anonymous", "read,publish stream:*")
			for _, method := range []string{"GET", "DELETE"} {
				if _, text := h.do(method, job, "", token...); !strings.Contains(text, `"state":"`+d.state+`"`) || !strings.Contains(text, d.code) {
					t.Errorf("%s: the job is %s", method, text)
				}
			}
			streams.change(func() { streams.fail, streams.streams["orders"].oldest = nil, 0 })
			next := h.replay(fmt.Sprintf(`{"to_stream":"copy","after":%d,"replay":%q}`, max(0, stored-100), a.Replay), token...)
			if n := streams.stored("copy"); next.State != "done" || n != 1200 || next.Changed != int64(1200-stored) {
				t.Errorf("the rest: %+v, %d messages", next, n)
			}
			if _, list := h.do("GET", "/v1/streams/orders/jobs", "", token...); strings.Count(list, `"job":`) != 2 {
				t.Errorf("the jobs are %s", list)
			}
		})
	}
}

// unsureStreams answer some publishes with an error that does not say whether they are stored.
type unsureStreams struct {
	*fakeStreams
	random *rand.Rand
}

func (f unsureStreams) Publish(ctx context.Context, stream string, as *engine.RequestID, messages []engine.Message, done func(engine.Place, error)) error {
	switch f.random.IntN(1500) {
	case 0:
		return engine.ErrOutcomeUnknown
	case 1:
		return f.fakeStreams.Publish(ctx, stream, as, messages, func(engine.Place, error) { done(engine.Place{}, engine.ErrOutcomeUnknown) })
	}
	return f.fakeStreams.Publish(ctx, stream, as, messages, done)
}

// TestReplay_Unsure: a replay that fails again and again without knowing what is stored, and goes on where it was or before, stores each message once,
// and in order.
func TestReplay_Unsure(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		streams := filledStreams(t, 3000, "copy")
		random := rand.New(rand.NewPCG(1, 1))
		_, addr := serve(t, gateway.Config{Engine: engine.Engine{Streams: unsureStreams{streams, random}}})
		c := client{t, addr}
		a := c.replay(`{"to_stream":"copy"}`)
		for n := 0; a.State != "done"; n++ {
			if n > 200 {
				t.Fatalf("it does not end: %+v", a)
			}
			a = c.replay(fmt.Sprintf(`{"to_stream":"copy","after":%d,"replay":%q}`, max(0, a.After-random.Int64N(200)), a.Replay))
		}
		copies := streams.streams["copy"].messages
		for i, m := range copies {
			if string(m.Payload) != fmt.Sprint(i+1) {
				t.Fatalf("position %d has %s", i+1, m.Payload)
			}
		}
		if len(copies) != 3000 {
			t.Errorf("%d copies", len(copies))
		}
	})
}

// brokenStreams do not store the message at a position the first time.
type brokenStreams struct {
	*fakeStreams
	at int64
}

func (f *brokenStreams) Publish(ctx context.Context, stream string, as *engine.RequestID, messages []engine.Message, done func(engine.Place, error)) error {
	if as.Sequence == f.at {
		f.at = 0
		done(engine.Place{}, engine.ErrOutcomeUnknown)
		return nil
	}
	return f.fakeStreams.Publish(ctx, stream, as, messages, done)
}

// TestReplay_OneFails: a replay fails with the first message that is not stored, also if later ones are, and goes on there.
func TestReplay_OneFails(t *testing.T) {
	t.Parallel()
	streams := &brokenStreams{filledStreams(t, 10, "copy"), 4}
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Streams: streams}})
	c := client{t, addr}
	a := c.replay(`{"to_stream":"copy"}`)
	if a.State != "failed" || a.Error != string(engine.CodeUnknownOutcome) || a.After != 3 || streams.stored("copy") != 9 {
		t.Fatalf("%+v, %d are stored", a, streams.stored("copy"))
	}
	a = c.replay(fmt.Sprintf(`{"to_stream":"copy","after":3,"replay":%q}`, a.Replay))
	if a.State != "done" || a.Changed != 1 || a.Repeated != 6 || streams.stored("copy") != 10 {
		t.Errorf("tried again: %+v, %d are stored", a, streams.stored("copy"))
	}
}

// TestReplay_Rights: a replay needs to read the source and to write to the target, and goes no further when a right has ended.
func TestReplay_Rights(t *testing.T) {
	t.Parallel()
	streams := filledStreams(t, 3, "copy", "secret")
	c := serveClosed(t, func(cfg *gateway.Config) { cfg.Engine.Streams = streams })
	h := client{t, c.addr}
	user, reader := []string{"Authorization", "Bearer " + tokenOf(t, "u1", time.Hour, "read stream:orders", "publish stream:copy")}, []string{"Authorization", "Bearer " + tokenOf(t, "u2", time.Hour, "read stream:orders")}
	a := h.replay(`{"to_stream":"copy"}`, user...)
	if a.State != "done" || a.Changed != 3 {
		t.Fatalf("%+v", a)
	}
	for _, one := range []struct{ path, body, with string }{
		{"/v1/streams/orders/replay", `{"to_stream":"secret"}`, user[1]}, {"/v1/streams/orders/replay", `{"to_queue":"jobs"}`, user[1]},
		{"/v1/streams/secret/replay", `{"to_stream":"copy"}`, user[1]}, {"/v1/streams/orders/replay", `{"to_stream":"copy","dry_run":true}`, reader[1]},
	} {
		if status, text := h.do("POST", one.path, one.body, "Authorization", one.with); status != http.StatusForbidden {
			t.Errorf("%s %s: %d %s", one.path, one.body, status, text)
		}
	}
	if _, text := h.do("GET", "/v1/streams/orders/jobs", "", reader...); text != `{"jobs":[]}` {
		t.Errorf("jobs whose target the caller may not see: %s", text)
	}
	if status, _ := h.do("DELETE", "/v1/streams/orders/jobs/"+a.Job, "", reader...); status != http.StatusNotFound {
		t.Errorf("another one stops it: %d", status)
	}
	if status, _ := h.do("DELETE", "/v1/streams/orders/jobs/"+a.Job, "", user...); status != http.StatusOK {
		t.Errorf("it is not stopped: %d", status)
	}
}

// startReplay starts a replay of orders that does not end, because nothing is committed.
func startReplay(t *testing.T, h client, body string, headers ...string) replayAnswer {
	t.Helper()
	var a replayAnswer
	_, text := h.do("POST", "/v1/streams/orders/replay", body, headers...)
	if err := json.Unmarshal([]byte(text), &a); err != nil || a.State != "running" {
		t.Fatal(text, err)
	}
	return a
}

// TestReplay_Many: one user, who need be no administrator, does not keep others from starting jobs.
func TestReplay_Many(t *testing.T) {
	t.Parallel()
	streams := filledStreams(t, 1200, "copy")
	c := serveClosed(t, func(cfg *gateway.Config) { cfg.Engine.Streams = streams })
	h := client{t, c.addr}
	as := func(user string) []string {
		return []string{"Authorization", "Bearer " + tokenOf(t, user, time.Hour, "read stream:orders", "publish stream:copy")}
	}
	streams.hold(true)
	defer streams.hold(false)
	for range 2 {
		startReplay(t, h, `{"to_stream":"copy"}`, as("ann")...)
	}
	if status, text := h.do("POST", "/v1/streams/orders/replay", `{"to_stream":"copy"}`, as("ann")...); status != http.StatusTooManyRequests || !strings.Contains(text, "too_many_jobs") {
		t.Errorf("a third replay of a user: %d %s", status, text)
	}
	startReplay(t, h, `{"to_stream":"copy"}`, as("bob")...)
}
