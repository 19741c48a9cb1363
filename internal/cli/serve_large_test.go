package cli_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
	"github.com/tidewire/tidewire/websocket"
)

// TestServe_LargeMessage: a message that is larger than --max-message, which another program has stored, is not read by the server. Each
// reader gets an error that names it, and goes on after it. In a queue it becomes a dead letter.
func TestServe_LargeMessage(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	sizes := []int{1000, 3 << 20, 2000}
	appending := func(name string, opts stream.Options) {
		t.Helper()
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
		for _, size := range sizes {
			if _, err := a.Append(t.Context(), stream.Message{Key: "k", Payload: []byte(strings.Repeat("x", size))}); err != nil {
				t.Fatal(err)
			}
		}
	}
	appending("orders", stream.Options{Keyed: true})
	appending("parts", stream.Options{Partitions: 1})
	q, err := queue.Ensure(t.Context(), db.Pool, "jobs", queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	enqueuer := queue.NewEnqueuer(q, queue.EnqueuerConfig{})
	enqueuer.Start()
	defer enqueuer.Stop()
	for _, size := range sizes {
		if _, err := enqueuer.Enqueue(t.Context(), queue.Message{Payload: []byte(strings.Repeat("x", size))}); err != nil {
			t.Fatal(err)
		}
	}
	p := serve(t, "--database-url", db.URL)
	for _, query := range []string{"", "&key=k"} {
		for _, one := range []struct {
			after, status int
			has           string
		}{{0, 200, `"next":1}`}, {1, 422, `"position":2,"size":3145728`}, {2, 200, `"next":3}`}} {
			status, text := request(t, "GET", p.addr, fmt.Sprintf("/v1/streams/orders/messages?after=%d%s", one.after, query), "")
			if status != one.status || !strings.Contains(text, one.has) {
				t.Errorf("GET after=%d%s: %d %.300s", one.after, query, status, text)
			}
		}
	}
	for after, want := range map[int]string{0: "id: 1", 1: `"position":2`, 2: "id: 3"} {
		answer, err := http.Get(fmt.Sprintf("http://%s/v1/streams/orders/follow?after=%d", p.addr, after))
		if err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(answer.Body); lines.Scan() && !strings.Contains(lines.Text(), want); {
		}
		answer.Body.Close()
	}
	c, err := websocket.Dial(t.Context(), "ws://"+p.addr+"/ws", websocket.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Abort()
	c.SetReadDeadline(time.Now().Add(time.Minute))
	var unread []websocket.Message // one read may have the messages of several steps
	for _, step := range []struct{ ask, want string }{
		{`{"type":"subscribe","stream":"orders","after":0,"id":1}`, `"position":1,`},
		{"", `"type":"error","subscription":"orders","code":"message_too_large"`},
		{`{"type":"subscribe","stream":"orders","after":2,"id":1}`, `"position":3,`},
		{`{"type":"subscribe","stream":"parts","group":"g","share":true,"id":1}`, `"position":1,`},
		{"", `"type":"parked","stream":"parts","subscription":"parts","partition":0,"code":"message_too_large","position":2,"size":3145728,"oldest":3`},
		{`{"type":"commit","stream":"parts","group":"g","partition":0,"position":2,"id":1}`, `"position":3,`},
		{`{"type":"consume","queue":"jobs","id":1}`, `"position":1,`},
		{"", `"position":3,`},
	} {
		if step.ask != "" {
			say(c, "%s", step.ask)
		}
		for found := false; !found; {
			if len(unread) == 0 {
				messages, err := c.Read()
				if err != nil {
					t.Fatalf("no %s: %v", step.want, err)
				}
				for _, m := range messages { // valid until the next Read
					unread = append(unread, websocket.Message{Payload: bytes.Clone(m.Payload)})
				}
			}
			found = strings.Contains(string(unread[0].Payload), step.want)
			unread = unread[1:]
		}
	}
	for text := ""; !strings.Contains(text, `"reason":"message_too_large: 3145728 bytes"`); {
		if _, text = request(t, "GET", p.addr, "/v1/queues/jobs/dead", ""); len(text) > 1000 {
			t.Fatalf("the dead letters are %d bytes", len(text))
		}
	}
}
