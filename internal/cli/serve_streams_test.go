package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/websocket"
)

// wireMessage is any message of /ws about streams and queues.
type wireMessage struct {
	Type, Code, Payload, Delivery string
	Stream, Queue                 string
	Message, Field                string
	ID                            int
	Position                      int64
	Attempt                       int
	Count                         int
	Next, Last                    int64
	Partition                     int
	Duplicate                     bool
	Events                        []struct{ Position int64 }
}

// wire is a connection to /ws.
type wire struct {
	t *testing.T
	*websocket.Conn
	unread []wireMessage
}

func wireDial(t *testing.T, addr string) *wire {
	t.Helper()
	c, err := websocket.Dial(t.Context(), "ws://"+addr+"/ws", websocket.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Abort)
	c.SetReadDeadline(time.Now().Add(time.Minute))
	return &wire{t: t, Conn: c}
}

// next returns the next message, or an error at the end of the connection.
func (w *wire) next() (m wireMessage, err error) {
	for len(w.unread) == 0 {
		messages, err := w.Read()
		for _, raw := range messages {
			var m wireMessage
			if err := json.Unmarshal(raw.Payload, &m); err != nil {
				return m, fmt.Errorf("%s: %w", raw.Payload, err)
			}
			w.unread = append(w.unread, m)
		}
		if err != nil && len(w.unread) == 0 {
			return m, err
		}
	}
	m, w.unread = w.unread[0], w.unread[1:]
	return m, nil
}

// ask sends a request and returns its answer. next returns the messages before
// it later.
func (w *wire) ask(format string, args ...any) wireMessage {
	w.t.Helper()
	say(w.Conn, format, args...)
	var others []wireMessage
	for {
		m, err := w.next()
		switch {
		case err != nil || m.Type == "error":
			w.t.Fatalf("%s: %+v, %v", fmt.Sprintf(format, args...), m, err)
		case m.Type == "ok":
			w.unread = append(others, w.unread...)
			return m
		}
		others = append(others, m)
	}
}

// request makes an HTTP request.
func request(t *testing.T, method, addr, path, body string) (status int, answer string) {
	t.Helper()
	status, answer, err := tryRequest(t.Context(), method, addr, path, body)
	if err != nil {
		t.Fatal(err)
	}
	return status, answer
}

// tryRequest is request for connections that may be aborted.
func tryRequest(ctx context.Context, method, addr, path, body string) (status int, answer string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+addr+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, strings.TrimSpace(string(text)), err
}

// TestServeStreams_OverTheWire: a client's requests for a stream, with two
// servers on one database.
func TestServeStreams_OverTheWire(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	one, two := serve(t, "--database-url", db.URL), serve(t, "--database-url", db.URL)
	if status, text := request(t, "POST", one.addr, "/v1/streams/orders", `{"keyed":true}`); status != 200 {
		t.Fatalf("create: %d %s", status, text)
	}
	reader := wireDial(t, two.addr)
	reader.ask(`{"type":"subscribe","stream":"orders","from":"start","id":1}`)
	writer := wireDial(t, one.addr)
	for n := 1; n <= 3; n++ {
		if m := writer.ask(`{"type":"publish","stream":"orders","key":"k","headers":{"n":%d},"payload":"%d","id":%d}`, n, n, n); m.Position != int64(n) || m.ID != n {
			t.Errorf("publish %d: %+v", n, m)
		}
	}
	if m := writer.ask(`{"type":"publish","stream":"orders","messages":[{"payload":"4"},{"payload_base64":"NQ=="}],"id":4}`); m.Position != 4 || m.Count != 2 {
		t.Errorf("publish of two: %+v", m)
	}
	for n := 1; n <= 5; n++ {
		if m, err := reader.next(); err != nil || m.Type != "message" || m.Position != int64(n) || m.Payload != fmt.Sprint(n) {
			t.Fatalf("message %d: %+v, %v", n, m, err)
		}
	}
	if m := reader.ask(`{"type":"commit","stream":"orders","group":"g","position":3,"id":9}`); m.Position != 3 {
		t.Errorf("commit: %+v", m)
	}
	group := wireDial(t, one.addr)
	if m := group.ask(`{"type":"subscribe","stream":"orders","group":"g","id":1}`); m.Position != 3 {
		t.Errorf("subscribe as a group: %+v", m)
	}
	if m, err := group.next(); err != nil || m.Position != 4 {
		t.Errorf("the group got %+v, %v", m, err)
	}
	for path, want := range map[string]string{
		"/v1/streams/orders":                          `"head":5}`,
		"/v1/streams/orders/groups":                   `{"groups":[{"group":"g","offset":3,"lag":2}],"next":"g"}`,
		"/v1/streams/orders/messages?after=3&limit=1": `"position":4`,
		"/v1/streams/orders/messages?key=k&limit=9":   `"payload":"3"`,
		"/v1/streams":                                 `"stream":"orders"`,
	} {
		if status, text := request(t, "GET", two.addr, path, ""); status != 200 || !strings.Contains(text, want) {
			t.Errorf("GET %s: %d %s", path, status, text)
		}
	}
	say(writer.Conn, `{"type":"publish","stream":"none","payload":"x","id":5}`)
	if m, err := writer.next(); err != nil || m.Code != "not_found" {
		t.Errorf("publish to no stream: %+v, %v", m, err)
	}
	if status, text := request(t, "DELETE", one.addr, "/v1/streams/orders", ""); status != 200 {
		t.Errorf("drop: %d %s", status, text)
	}
	for m, err := reader.next(); m.Code != "stream_gone"; m, err = reader.next() {
		if err != nil {
			t.Fatalf("the subscription of a dropped stream: %v", err)
		}
	}
	say(writer.Conn, `{"type":"publish","stream":"orders","payload":"x","id":6}`)
	if m, err := writer.next(); err != nil || m.Code != "not_found" {
		t.Errorf("publish to a dropped stream: %+v, %v", m, err)
	}
	if code := one.stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestServeStreams_AnAnsweredPublishIsThere after the server was killed under
// load, at the acknowledged position. A subscriber that resumes on another
// server misses nothing and gets nothing twice.
func TestServeStreams_AnAnsweredPublishIsThere(t *testing.T) {
	t.Parallel()
	for range pgtest.Seeds() {
		db := migrated(t)
		one, two := serve(t, "--database-url", db.URL), serve(t, "--database-url", db.URL)
		request(t, "POST", one.addr, "/v1/streams/s", "")
		var answered sync.Map // payloads by position
		var count atomic.Int64
		var running sync.WaitGroup
		for i := range 3 {
			w := wireDial(t, one.addr)
			running.Go(func() { publishUntilCut(w, i, &answered, &count) })
		}
		sub := wireDial(t, one.addr)
		say(sub.Conn, `{"type":"subscribe","stream":"s","from":"start"}`)
		var seen []wireMessage
		running.Go(func() {
			for m, err := sub.next(); err == nil; m, err = sub.next() {
				if m.Type == "message" {
					seen = append(seen, m)
				}
			}
		})
		for deadline := time.Now().Add(30 * time.Second); count.Load() < 500 && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		one.cmd.Process.Kill()
		running.Wait()

		last := int64(0)
		if len(seen) > 0 {
			last = seen[len(seen)-1].Position
		}
		again := wireDial(t, two.addr)
		again.ask(`{"type":"subscribe","stream":"s","after":%d,"id":1}`, last)
		wireDial(t, two.addr).ask(`{"type":"publish","stream":"s","payload":"the end","id":2}`)
		for {
			m, err := again.next()
			if err != nil {
				t.Fatal(err)
			}
			if m.Payload == "the end" {
				break
			}
			seen = append(seen, m)
		}
		checkSeen(t, seen, &answered, int(count.Load()))
		two.stop(t)
	}
}

// publishUntilCut keeps a few publishes in flight.
func publishUntilCut(w *wire, number int, answered *sync.Map, count *atomic.Int64) {
	sent := 0
	for range 8 {
		sent++
		say(w.Conn, `{"type":"publish","stream":"s","payload":"%d/%d","id":%d}`, number, sent, sent)
	}
	for m, err := w.next(); err == nil; m, err = w.next() {
		if m.Type != "ok" {
			w.t.Errorf("publish: %+v", m)
			return
		}
		answered.Store(m.Position, fmt.Sprintf("%d/%d", number, m.ID))
		count.Add(1)
		sent++
		say(w.Conn, `{"type":"publish","stream":"s","payload":"%d/%d","id":%d}`, number, sent, sent)
	}
}

// checkSeen compares what a subscriber received with the acknowledged publishes.
func checkSeen(t *testing.T, seen []wireMessage, answered *sync.Map, count int) {
	t.Helper()
	if count < 500 || len(seen) < count {
		t.Errorf("%d answered, %d seen", count, len(seen))
	}
	at := make(map[int64]string)
	twice := make(map[string]bool)
	last := int64(0)
	for _, m := range seen {
		if m.Position <= last {
			t.Errorf("position %d after %d", m.Position, last)
		}
		if last = m.Position; twice[m.Payload] {
			t.Errorf("%q twice", m.Payload)
		}
		at[m.Position], twice[m.Payload] = m.Payload, true
	}
	answered.Range(func(position, payload any) bool {
		if at[position.(int64)] != payload {
			t.Errorf("answered %q at %d, where %q was seen", payload, position, at[position.(int64)])
		}
		return true
	})
}
