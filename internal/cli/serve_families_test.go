package cli_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
)

// TestServe_RepeatedPublish: a repeated request gets the positions of the first
// one, over /ws and /v1, on another server, and after the first server was killed.
func TestServe_RepeatedPublish(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	one, two := serve(t, "--database-url", db.URL), serve(t, "--database-url", db.URL)
	shell{t, db.URL}.run("stream", "create", "orders")
	const three = `"messages":[{"payload":"a"},{"payload":"b"},{"payload":"c"}],"client":"p","sequence":1`
	const fewer, single = `"messages":[{"payload":"a"}],"client":"p","sequence":1`, `"payload":"a","client":"p","sequence":1`
	ws := func(w *wire, fields string, duplicate bool) {
		t.Helper()
		m := w.ask(`{"type":"publish","stream":"orders","id":1,%s}`, fields)
		if m.Position != 1 || m.Count != 3 || m.Duplicate != duplicate {
			t.Errorf("/ws, %s: %+v", fields, m)
		}
	}
	again := func(addr string) {
		t.Helper()
		w := wireDial(t, addr)
		for _, fields := range []string{three, fewer, single} {
			ws(w, fields, true)
			status, text := request(t, "POST", addr, "/v1/streams/orders/messages", "{"+fields+"}")
			if want := `{"position":1,"count":3,"duplicate":true}`; status != 200 || strings.TrimSpace(text) != want {
				t.Errorf("/v1, %s: %d %s, want %s", fields, status, text, want)
			}
		}
	}
	ws(wireDial(t, one.addr), three, false)
	again(one.addr)
	again(two.addr)
	one.cmd.Process.Kill()
	again(two.addr)
	again(serve(t, "--database-url", db.URL).addr)
}

// TestServe_Partitions: a stream with partitions, and publish requests that are
// repeated on another server.
func TestServe_Partitions(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	one, two := serve(t, "--database-url", db.URL), serve(t, "--database-url", db.URL)
	s := shell{t, db.URL}
	s.run("stream", "create", "orders", "--keyed", "--partitions", "4")
	a, b := wireDial(t, one.addr), wireDial(t, two.addr)
	first := a.ask(`{"type":"publish","stream":"orders","key":"k","payload":"once","client":"p","sequence":1,"id":1}`)
	again := b.ask(`{"type":"publish","stream":"orders","key":"k","payload":"once","client":"p","sequence":1,"id":2}`)
	if first.Position != 1 || first.Duplicate || again.Position != first.Position || again.Partition != first.Partition || !again.Duplicate {
		t.Errorf("stored at %+v, and repeated at %+v", first, again)
	}
	other := a.ask(`{"type":"publish","stream":"orders","key":"k","payload":"two","id":3}`)
	if other.Partition != first.Partition || other.Position <= 1 {
		t.Errorf("the same key: %+v after %+v", other, first)
	}
	b.ask(`{"type":"subscribe","stream":"orders/%d","from":"start","id":4}`, first.Partition)
	for _, want := range []string{"once", "two"} {
		if m, err := b.next(); err != nil || m.Payload != want {
			t.Fatalf("%+v, %v, want %s", m, err, want)
		}
	}
	for text, want := range map[string]string{
		`{"type":"subscribe","stream":"orders","id":5}`: "partitioned",
		`{"type":"publish","stream":"orders","messages":[{"key":"a","payload":""},{"key":"b","payload":""},{"key":"c","payload":""}],"id":6}`: "cross_partition",
	} {
		say(a.Conn, "%s", text)
		if m, err := a.next(); err != nil || m.Code != want {
			t.Errorf("%s: %+v, %v", text, m, err)
		}
	}
	if out := s.run("stream", "info", "orders"); !strings.Contains(out, "partitions: 4, orders/0 to orders/3\n") {
		t.Errorf("info: %s", out)
	}
	if out := s.run("stream", "publish", "orders", "--key", "k", "three"); !strings.HasPrefix(out, "published 1,") {
		t.Errorf("publish: %s", out)
	}
	if status, text := request(t, "GET", one.addr, "/v1/streams/orders", ""); status != 200 || !strings.Contains(text, `"partitions":4`) {
		t.Errorf("GET: %d %s", status, text)
	}
	s.in("", cli.ExitUsage, "stream", "create", "bad", "--partitions", "5000")
}

// TestServe_Families: queues with priorities and with order by key, and unique
// messages.
func TestServe_Families(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	p := serve(t, "--database-url", db.URL)
	s := shell{t, db.URL}
	s.run("queue", "create", "urgent", "--priorities", "3")
	if status, text := request(t, "POST", p.addr, "/v1/queues/ordered", `{"partitions":4}`); status != 200 {
		t.Fatalf("create: %d %s", status, text)
	}
	if status, text := request(t, "POST", p.addr, "/v1/streams/shared", `{"keyed":true,"partitions":2}`); status != 200 {
		t.Fatalf("create: %d %s", status, text)
	}
	for path, want := range map[string]string{
		"/v1/queues/ordered": `{"queue":"ordered"}`, "/v1/queues/urgent": `{"queue":"urgent"}`, "/v1/queues/plain": `{"queue":"plain"}`,
		"/v1/streams/shared": `{"keyed":true,"partitions":2,"stream":"shared"}`,
	} {
		if status, text := request(t, "POST", p.addr, path, ""); status != 200 || strings.TrimSpace(text) != want {
			t.Errorf("POST %s without a body: %d %s, want %s", path, status, text, want)
		}
	}
	for path, body := range map[string]string{"/v1/queues/ordered": `{"partitions":3}`, "/v1/queues/shared": "", "/v1/streams/shared": `{"keyed":true}`} {
		if status, text := request(t, "POST", p.addr, path, body); status != 409 {
			t.Errorf("POST %s %s: %d %s, want 409", path, body, status, text)
		}
	}
	w := wireDial(t, p.addr)
	for n := range 9 {
		w.ask(`{"type":"enqueue","queue":"urgent","priority":%d,"payload":"%d/%d","id":%d}`, n%3, n%3, n, n)
	}
	w.ask(`{"type":"consume","queue":"urgent","credits":1,"id":10}`)
	for n := range 9 {
		m, err := w.next()
		if err != nil || !strings.HasPrefix(m.Payload, fmt.Sprint(2-n/3)+"/") {
			t.Fatalf("delivery %d: %+v, %v", n+1, m, err)
		}
		say(w.Conn, `{"type":"ack","queue":"urgent","delivery":%q}`, m.Delivery)
	}

	o := wireDial(t, p.addr)
	for n := range 6 {
		o.ask(`{"type":"enqueue","queue":"ordered","key":"k%d","payload":"%d","id":%d}`, n%2, n, n)
	}
	o.ask(`{"type":"consume","queue":"ordered","credits":10,"id":10}`)
	open := make(map[byte]string) // delivered and not acknowledged, by parity, which is the key's
	for n := 0; n < 6; {
		m, err := o.next()
		if err != nil {
			t.Fatal(err)
		}
		if m.Type != "delivery" {
			continue
		}
		parity := m.Payload[0] % 2
		if open[parity] >= m.Payload {
			t.Errorf("%s after %s", m.Payload, open[parity])
		}
		open[parity] = m.Payload
		o.ask(`{"type":"ack","queue":"ordered","delivery":%q,"id":%d}`, m.Delivery, 20+n)
		n++
	}

	first := w.ask(`{"type":"enqueue","queue":"urgent","payload":"u","unique_key":"report","unique_ms":600000,"id":30}`)
	again := w.ask(`{"type":"enqueue","queue":"urgent","payload":"u","unique_key":"report","unique_ms":600000,"id":31}`)
	if first.Duplicate || again.Position != first.Position && again.Duplicate {
		t.Errorf("a unique message: %+v, and then %+v", first, again)
	}
	for text, want := range map[string]string{
		`{"type":"enqueue","queue":"urgent","priority":3,"payload":"x","id":40}`:                                                                                                                 "invalid",
		`{"type":"enqueue","queue":"urgent","payload":"x","unique_ms":1000,"id":41}`:                                                                                                             "malformed",
		`{"type":"enqueue","queue":"urgent","payload":"x","unique_key":"k","unique_ms":1,"id":42}`:                                                                                               "invalid_duration",
		`{"type":"enqueue","queue":"ordered","messages":[{"key":"a","payload":""},{"key":"b","payload":""},{"key":"c","payload":""},{"key":"d","payload":""},{"key":"e","payload":""}],"id":43}`: "cross_partition",
	} {
		say(o.Conn, "%s", text)
		for {
			m, err := o.next()
			if err != nil {
				t.Fatal(err)
			}
			if m.Type == "delivery" {
				continue
			}
			if m.Code != want {
				t.Errorf("%s: %+v", text, m)
			}
			break
		}
	}
	if out := s.run("queue", "list"); !strings.Contains(out, "urgent") || strings.Contains(out, "urgent/0") {
		t.Errorf("list: %s", out)
	}
	s.in("", cli.ExitUsage, "queue", "create", "both", "--priorities", "2", "--partitions", "2")
}

// TestServe_PriorityThatTheQueueLacks: the error names the field, and its valid values.
func TestServe_PriorityThatTheQueueLacks(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	p := serve(t, "--database-url", db.URL)
	for queue, options := range map[string]string{"urgent": `{"priorities":3}`, "plain": `{}`, "ordered": `{"partitions":2}`} {
		if status, text := request(t, "POST", p.addr, "/v1/queues/"+queue, options); status != 200 {
			t.Fatalf("create: %d %s", status, text)
		}
	}
	w := wireDial(t, p.addr)
	for _, c := range []struct{ queue, fields, want string }{
		{"urgent", `"priority":3,"payload":"x"`, "priority: want 0 to 2, because the queue has 3 priorities"},
		{"plain", `"priority":1,"payload":"x"`, "priority: want none, because the queue has no priorities"},
		{"plain", `"priority":1,"payload":"x","unique_key":"k","unique_ms":1000`, "priority: want none, because the queue has no priorities"},
		{"ordered", `"priority":9,"messages":[{"payload":"x"},{"payload":"y"}]`, "priority: want none, because the queue has no priorities"},
	} {
		say(w.Conn, `{"type":"enqueue","queue":%q,"id":1,%s}`, c.queue, c.fields)
		if m, err := w.next(); err != nil || m.Code != "invalid" || m.Field != "priority" || m.Message != c.want {
			t.Errorf("%s, %s: %+v, %v; want %s", c.queue, c.fields, m, err, c.want)
		}
		want := fmt.Sprintf(`{"error":{"code":"invalid","message":%q,"retryable":false,"field":"priority"}}`, c.want)
		status, text := request(t, "POST", p.addr, "/v1/queues/"+c.queue+"/messages", "{"+c.fields+"}")
		if status != 400 || strings.TrimSpace(text) != want {
			t.Errorf("%s, %s: %d %s; want %s", c.queue, c.fields, status, text, want)
		}
	}
}
