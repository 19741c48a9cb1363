package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
)

// replayStreams are fakeStreams that a replay can look at. The streams whose names begin with "parted" have partitions.
type replayStreams struct{ *fakeStreams }

func (f replayStreams) Info(_ context.Context, name string) (info engine.StreamDetails, err error) {
	f.state.Lock()
	defer f.state.Unlock()
	s := f.streams[name]
	if s == nil {
		return info, engine.ErrNotFound
	}
	if strings.HasPrefix(name, "parted") {
		info.Partitions = 2
	}
	info.Head = int64(len(s.messages))
	return info, nil
}

func (f replayStreams) Retention(_ context.Context, name string) (engine.Retention, error) {
	if name == "jobs" {
		return engine.Retention{}, engine.ErrQueueStream
	}
	_, err := f.Info(context.Background(), name)
	return engine.Retention{}, err
}

type replayQueues struct{ *fakeQueues }

func (f replayQueues) Options(_ context.Context, name string) (engine.QueueOptions, error) {
	if f.queues[name] == nil {
		return engine.QueueOptions{}, engine.ErrNotFound
	}
	return engine.QueueOptions{}, nil
}

// replayAnswer is a job.
type replayAnswer struct {
	Job, State, Error, Replay              string
	Changed, Repeated, Bytes, After, Until int64
	First, Last                            struct{ Position int64 }
}

// replay starts a replay of orders, and returns it when it has ended.
func (c client) replay(body string, headers ...string) (a replayAnswer) {
	c.t.Helper()
	status, text := c.do("POST", "/v1/streams/orders/replay", body, headers...)
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if err := json.Unmarshal([]byte(text), &a); err != nil || status != http.StatusOK || time.Now().After(end) {
			c.t.Fatalf("%d %s %v", status, text, err)
		}
		if a.State != "running" {
			return a
		}
		status, text = c.do("GET", "/v1/streams/orders/jobs/"+a.Job, "", headers...)
	}
}

func filledStreams(t *testing.T, n int, names ...string) *fakeStreams {
	streams := newFakeStreams(t, append(names, "orders")...)
	for i := range n {
		streams.streams["orders"].messages = append(streams.streams["orders"].messages, engine.Message{
			Position: int64(i + 1), Key: fmt.Sprint("k", i%2), Headers: []byte(`{"a":1.50}`), Payload: fmt.Append(nil, i+1), Time: time.Unix(int64(i), 0)})
	}
	return streams
}

// TestReplay: messages keep what they have, and their order; a dry run counts them; a replay that is tried again stores none twice.
func TestReplay(t *testing.T) {
	t.Parallel()
	streams, queues := filledStreams(t, 1300, "copy", "parted", "jobs"), newFakeQueues(t, "mail", "orders")
	streams.streams["parted/0"] = streams.streams["orders"]
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Streams: replayStreams{streams}, Queues: replayQueues{queues}}})
	c := client{t, addr}
	dry := c.replay(`{"to_stream":"copy","after":100,"until":1250,"dry_run":true}`)
	if dry.State != "done" || dry.Changed != 1150 || dry.Bytes == 0 || dry.First.Position != 101 || dry.Last.Position != 1250 || len(streams.streams["copy"].messages) != 0 {
		t.Fatalf("a dry run: %+v", dry)
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

// TestReplay_Stopped: a replay that fails or is stopped says where, and goes on there.
func TestReplay_Stopped(t *testing.T) {
	t.Parallel()
	streams := filledStreams(t, 1200, "copy")
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Streams: replayStreams{streams}}})
	c := client{t, addr}
	streams.hold(true) // no commit until then
	_, text := c.do("POST", "/v1/streams/orders/replay", `{"to_stream":"copy"}`)
	var a replayAnswer
	if err := json.Unmarshal([]byte(text), &a); err != nil || a.State != "running" {
		t.Fatal(text, err)
	}
	job := "/v1/streams/orders/jobs/" + a.Job
	c.do("DELETE", job, "")
	streams.hold(false)
	waitFor(t, func() bool { _, text = c.do("GET", job, ""); return strings.Contains(text, `"state":"stopped"`) }, "the replay does not stop")
	if err := json.Unmarshal([]byte(text), &a); err != nil || a.After > 500 || a.Changed != a.After || a.After != int64(len(streams.streams["copy"].messages)) {
		t.Errorf("%s: the messages that it was storing are stored and counted: %d", text, len(streams.streams["copy"].messages))
	}
	if status, list := c.do("GET", "/v1/streams/orders/jobs", ""); status != http.StatusOK || !strings.Contains(list, a.Job) {
		t.Errorf("%d %s: without the job", status, list)
	}
	next := c.replay(fmt.Sprintf(`{"to_stream":"copy","after":%d,"replay":%q}`, a.After, a.Replay))
	if next.State != "done" || next.Changed+a.Changed != 1200 || len(streams.streams["copy"].messages) != 1200 {
		t.Errorf("the rest: %+v", next)
	}
}

// TestReplay_Fails: a replay whose messages cannot be stored fails, and all requests on the job say why.
func TestReplay_Fails(t *testing.T) {
	t.Parallel()
	streams := filledStreams(t, 1200, "copy")
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Streams: replayStreams{streams}}})
	c := client{t, addr}
	streams.hold(true) // no commit until then
	_, text := c.do("POST", "/v1/streams/orders/replay", `{"to_stream":"copy"}`)
	var a replayAnswer
	if err := json.Unmarshal([]byte(text), &a); err != nil || a.State != "running" {
		t.Fatal(text, err)
	}
	streams.change(func() { streams.fail = engine.ErrNotFound })
	streams.hold(false)
	job := "/v1/streams/orders/jobs/" + a.Job
	waitFor(t, func() bool { _, text = c.do("GET", job, ""); return strings.Contains(text, `"state":"failed"`) }, "the replay does not fail")
	for _, method := range []string{"GET", "DELETE"} {
		if status, text := c.do(method, job, ""); status != http.StatusOK || !strings.Contains(text, `"error":"not_found"`) {
			t.Errorf("%s: %d %s", method, status, text)
		}
	}
	if _, list := c.do("GET", "/v1/streams/orders/jobs", ""); !strings.Contains(list, `"error":"not_found"`) {
		t.Errorf("%s", list)
	}
}

// TestReplay_Rights: a replay needs to read the source and to write to the target, and goes no further when a right has ended.
func TestReplay_Rights(t *testing.T) {
	t.Parallel()
	streams := filledStreams(t, 3, "copy", "secret")
	c := serveClosed(t, func(cfg *gateway.Config) { cfg.Engine.Streams = replayStreams{streams} })
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

// TestReplay_EndIsRecorded: the audit log has the end of each replay, however it ended, and up to which position it has stored.
func TestReplay_EndIsRecorded(t *testing.T) {
	t.Parallel()
	streams, log := filledStreams(t, 1200, "copy"), &lines{}
	c := serveClosed(t, func(cfg *gateway.Config) {
		cfg.Engine.Streams, cfg.Audit = replayStreams{streams}, slog.New(slog.NewJSONHandler(log, nil))
	})
	h := client{t, c.addr}
	user := []string{"Authorization", "Bearer " + tokenOf(t, "u", time.Hour, "read stream:*", "publish stream:*")}
	wantEnd := func(a replayAnswer) {
		t.Helper()
		waitFor(t, func() bool {
			for _, line := range log.all(t) {
				if line["replay"] == a.Replay && line["state"] == a.State && line["after"] == float64(a.After) {
					return true
				}
			}
			return false
		}, fmt.Sprintf("the end of %+v is not recorded", a))
	}
	wantEnd(h.replay(`{"to_stream":"copy","until":700}`, user...))
	h.replay(`{"to_stream":"copy","dry_run":true}`, user...)
	streams.hold(true)
	_, text := h.do("POST", "/v1/streams/orders/replay", `{"to_stream":"copy"}`, user...)
	var a replayAnswer
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		t.Fatal(text, err)
	}
	job := "/v1/streams/orders/jobs/" + a.Job
	h.do("DELETE", job, "", user...)
	streams.hold(false)
	waitFor(t, func() bool { _, text = h.do("GET", job, "", user...); return strings.Contains(text, `"stopped"`) }, "it does not stop")
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		t.Fatal(text, err)
	}
	wantEnd(a)
	streams.change(func() { streams.streams["orders"].oldest = 2 }) // it cannot be read from its beginning
	failed := a
	streams.hold(true)
	_, text = h.do("POST", "/v1/streams/orders/replay", `{"to_stream":"copy","after":1}`, user...)
	if err := json.Unmarshal([]byte(text), &failed); err != nil {
		t.Fatal(text, err)
	}
	streams.change(func() { streams.streams["orders"].oldest = 1100 })
	streams.hold(false)
	waitFor(t, func() bool {
		_, text = h.do("GET", "/v1/streams/orders/jobs/"+failed.Job, "", user...)
		return strings.Contains(text, `"failed"`)
	}, "it does not fail")
	if err := json.Unmarshal([]byte(text), &failed); err != nil {
		t.Fatal(text, err)
	}
	wantEnd(failed)
	if n := len(slices.DeleteFunc(log.all(t), func(line map[string]any) bool { return line["msg"] != "replay" })); n != 3 {
		t.Errorf("%d lines, want those of three ends", n)
	}
}
