package cli_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/cli"
)

// TestServeQueues_OverTheWire: a client's requests for a queue, with two servers
// on one database.
func TestServeQueues_OverTheWire(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	one, two := serve(t, "--database-url", db.URL), serve(t, "--database-url", db.URL)
	if status, text := request(t, "POST", one.addr, "/v1/queues/jobs", `{"max_attempts":2}`); status != 200 {
		t.Fatalf("create: %d %s", status, text)
	}
	consumer := wireDial(t, two.addr)
	consumer.ask(`{"type":"consume","queue":"jobs","credits":2,"id":1}`)
	producer := wireDial(t, one.addr)
	if m := producer.ask(`{"type":"enqueue","queue":"jobs","messages":[{"payload":"1"},{"payload":"2"},{"payload":"3"}],"id":1}`); m.Position != 1 || m.Count != 3 {
		t.Errorf("enqueue: %+v", m)
	}
	var got []wireMessage
	for len(got) < 2 {
		m, err := consumer.next()
		if err != nil || m.Type != "delivery" || m.Attempt != 1 || m.Payload != fmt.Sprint(len(got)+1) {
			t.Fatalf("delivery %d: %+v, %v", len(got)+1, m, err)
		}
		got = append(got, m)
	}
	if m := consumer.ask(`{"type":"ack","queue":"jobs","delivery":%q,"id":2}`, got[0].Delivery); m.Count != 1 {
		t.Errorf("ack: %+v", m)
	}
	third, err := consumer.next()
	if err != nil || third.Payload != "3" {
		t.Fatalf("after the ack came %+v, %v", third, err)
	}
	consumer.ask(`{"type":"nack","queue":"jobs","delivery":%q,"delay_ms":1,"reason":"not now","id":3}`, got[1].Delivery)
	again, err := consumer.next()
	if err != nil || again.Payload != "2" || again.Attempt != 2 {
		t.Fatalf("after the nack came %+v, %v", again, err)
	}
	consumer.ask(`{"type":"nack","queue":"jobs","delivery":%q,"reason":"no good","id":4}`, again.Delivery)
	consumer.Abort() // this releases the third, also to the other server's clients
	var received struct{ Deliveries []wireMessage }
	for deadline := time.Now().Add(30 * time.Second); len(received.Deliveries) == 0 && time.Now().Before(deadline); {
		_, text := request(t, "POST", one.addr, "/v1/queues/jobs/receive?max=5&wait_ms=2000", "")
		if err := json.Unmarshal([]byte(text), &received); err != nil {
			t.Fatalf("receive: %s", text)
		}
	}
	if len(received.Deliveries) != 1 || received.Deliveries[0].Payload != "3" {
		t.Fatalf("received %+v", received)
	}
	if status, text := request(t, "POST", one.addr, "/v1/queues/jobs/ack", fmt.Sprintf(`{"delivery":%q}`, received.Deliveries[0].Delivery)); status != 200 {
		t.Errorf("ack: %d %s", status, text)
	}
	if status, text := request(t, "GET", two.addr, "/v1/queues/jobs", ""); status != 200 || !strings.Contains(text, `"dead":1`) || !strings.Contains(text, `"delayed":0`) {
		t.Errorf("stats: %d %s", status, text)
	}
	s := shell{t, db.URL}
	if out := s.run("queue", "peek", "jobs", "--dead"); !strings.Contains(out, `"payload":"2","attempts":2,"reason":"no good"`) {
		t.Errorf("dead letters: %s", out)
	}
	if out := s.run("queue", "redrive", "jobs"); out != "redriven 1\n" {
		t.Errorf("redrive: %s", out)
	}
	if _, text := request(t, "POST", one.addr, "/v1/queues/jobs/receive?wait_ms=20000", ""); json.Unmarshal([]byte(text), &received) != nil || len(received.Deliveries) != 1 || received.Deliveries[0].Attempt != 1 {
		t.Fatalf("received after the redrive: %s", text)
	}
	if status, text := request(t, "POST", one.addr, "/v1/queues/jobs/nack", fmt.Sprintf(`{"delivery":%q,"dead":true,"reason":"hopeless"}`, received.Deliveries[0].Delivery)); status != 200 {
		t.Errorf("nack: %d %s", status, text)
	}
	if out := s.run("queue", "peek", "jobs", "--dead"); !strings.Contains(out, `"attempts":1,"reason":"hopeless"`) {
		t.Errorf("dead letters: %s", out)
	}
	if out := s.run("queue", "purge", "jobs", "--yes"); !strings.HasPrefix(out, "purged ") {
		t.Errorf("purge: %s", out)
	}
	if out := s.run("queue", "list"); !strings.Contains(out, "jobs") {
		t.Errorf("list: %s", out)
	}
	s.in("", cli.ExitUsage, "queue", "drop", "jobs")
	s.in("", cli.ExitFailure, "queue", "stats", "none")
	if code := two.stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
