package cli_test

import (
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
)

// answer sends a request and returns the error code of its answer, or its type.
func (w *wire) answer(text string) string {
	w.t.Helper()
	w.Queue(1, []byte(text))
	w.Flush()
	for {
		m, err := w.next()
		switch {
		case err != nil:
			w.t.Fatalf("%s: %v", text, err)
		case m.Type == "error":
			return m.Code
		case m.Type == "ok":
			return m.Type
		}
	}
}

// TestServe_NamesOfTheServer: no client writes to, drops, or creates objects that
// are reserved for the server.
func TestServe_NamesOfTheServer(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	s := serve(t, "--database-url", db.URL, "--stored-rooms", "lobby")
	client := wireDial(t, s.addr)
	for _, text := range []string{
		`{"type":"publish","stream":"tidewire.rooms","key":"lobby","payload":"","id":1}`,
		`{"type":"subscribe","stream":"tidewire.rooms","from":"start","id":1}`,
		`{"type":"commit","stream":"tidewire.rooms","group":"g","position":1,"id":1}`,
		`{"type":"enqueue","queue":"tidewire.x","payload":"","id":1}`,
		`{"type":"consume","queue":"tidewire.x","id":1}`,
		`{"type":"append","store":"tidewire.x","events":[{"type":"a","tags":[]}],"id":1}`,
	} {
		if code := client.answer(text); code != "invalid_name" {
			t.Errorf("%s: %s, want invalid_name", text, code)
		}
	}
	for _, path := range []string{
		"DELETE /v1/streams/tidewire.rooms", "POST /v1/streams/tidewire.rooms", "GET /v1/streams/tidewire.rooms", "GET /v1/streams/tidewire.rooms/messages",
		"POST /v1/streams/tidewire.rooms/messages", "POST /v1/queues/tidewire.rooms", "DELETE /v1/queues/tidewire.rooms", "GET /v1/events?store=tidewire.x",
		"POST /v1/streams/orders/groups/tidewire.g/commit",
	} {
		method, path, _ := strings.Cut(path, " ")
		if status, text := request(t, method, s.addr, path, `{}`); status != 400 || !strings.Contains(text, "invalid_name") {
			t.Errorf("%s %s: %d %s, want 400 invalid_name", method, path, status, text)
		}
	}
	if status, text := request(t, "GET", s.addr, "/v1/streams", ""); status != 200 || strings.Contains(text, "tidewire.") {
		t.Errorf("streams: %d %s", status, text)
	}
	for _, text := range []string{`{"type":"join","room":"lobby","id":1}`, `{"type":"chat","room":"lobby","text":"x","id":2}`} {
		if code := client.answer(text); code != "ok" {
			t.Errorf("%s: %s", text, code)
		}
	}
	if code := s.stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestServe_StreamsOfQueues can only be read by clients: only the queue writes.
func TestServe_StreamsOfQueues(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	s := serve(t, "--database-url", db.URL)
	client := wireDial(t, s.addr)
	request(t, "POST", s.addr, "/v1/streams/jobs", "") // unused until the queue is created
	for _, queue := range []string{"jobs", "ranked"} {
		options := map[string]string{"ranked": `{"priorities":2}`}[queue]
		if status, text := request(t, "POST", s.addr, "/v1/queues/"+queue, options); status != 200 {
			t.Fatalf("queue: %d %s", status, text)
		}
		if code := client.answer(`{"type":"enqueue","queue":"` + queue + `","payload":"job","id":1}`); code != "ok" {
			t.Errorf("enqueue: %s", code)
		}
	}
	for name, escaped := range map[string]string{"jobs": "jobs", "ranked/1": "ranked%2F1"} {
		for _, text := range []string{
			`{"type":"publish","stream":"` + name + `","payload":"forged","id":1}`,
			`{"type":"commit","stream":"` + name + `","group":"g","position":1,"id":1}`,
			`{"type":"subscribe","stream":"` + name + `","group":"g","id":1}`,
		} {
			if code := client.answer(text); code != "queue_stream" {
				t.Errorf("%s: %s, want queue_stream", text, code)
			}
		}
		for _, path := range []string{"DELETE /v1/streams/" + escaped, "POST /v1/streams/" + escaped + "/messages"} {
			method, path, _ := strings.Cut(path, " ")
			if status, text := request(t, method, s.addr, path, `{"payload":"forged"}`); status != 409 || !strings.Contains(text, "queue_stream") {
				t.Errorf("%s %s: %d %s, want 409 queue_stream", method, path, status, text)
			}
		}
		if status, text := request(t, "GET", s.addr, "/v1/streams/"+escaped+"/messages", ""); status != 200 || strings.Contains(text, "forged") {
			t.Errorf("reading %s: %d %s", name, status, text)
		}
		if code := client.answer(`{"type":"subscribe","stream":"` + name + `","id":1}`); code != "ok" {
			t.Errorf("subscribe to %s: %s", name, code)
		}
	}
	if code := s.stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestServe_StreamsInUse: a queue cannot take the name of a stream that has
// messages or groups, whoever creates it, and neither of them is lost.
func TestServe_StreamsInUse(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	s := serve(t, "--database-url", db.URL)
	client := wireDial(t, s.addr)
	for _, name := range []string{"orders", "read", "split"} {
		options := map[string]string{"split": `{"partitions":2}`}[name]
		if status, text := request(t, "POST", s.addr, "/v1/streams/"+name, options); status != 200 {
			t.Fatalf("stream %s: %d %s", name, status, text)
		}
	}
	for _, text := range []string{
		`{"type":"publish","stream":"orders","payload":"kept","id":1}`, `{"type":"commit","stream":"read","group":"g","position":0,"id":1}`,
		`{"type":"publish","stream":"split","payload":"kept","id":1}`,
	} {
		if code := client.answer(text); code != "ok" {
			t.Fatalf("%s: %s", text, code)
		}
	}
	for _, name := range []string{"orders", "read", "split"} {
		for _, options := range []string{"", `{"max_attempts":3}`, `{"priorities":2}`} {
			if status, text := request(t, "POST", s.addr, "/v1/queues/"+name, options); status != 409 || !strings.Contains(text, `"exists"`) || !strings.Contains(text, "drop that one first") {
				t.Errorf("queue %s %s: %d %s, want 409 exists", name, options, status, text)
			}
		}
		if code, _, text := run(t, nil, "queue", "create", name, "--database-url", db.URL); code != cli.ExitUsage || !strings.Contains(text, "drop") {
			t.Errorf("queue create %s: exit code %d, %s", name, code, text)
		}
		if status, _ := request(t, "DELETE", s.addr, "/v1/queues/"+name, ""); status != 404 {
			t.Errorf("drop of a queue %s that is none: %d", name, status)
		}
	}
	if status, text := request(t, "GET", s.addr, "/v1/streams/orders/messages", ""); status != 200 || !strings.Contains(text, "kept") {
		t.Errorf("the stream's messages: %d %s", status, text)
	}
}
