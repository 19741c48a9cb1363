package cli_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// enqueueMany enqueues messages with numbers from 1 on.
func enqueueMany(t *testing.T, w *wire, messages int) {
	t.Helper()
	var all []string
	for i := range messages {
		all = append(all, fmt.Sprintf(`{"payload":"%d"}`, i+1))
	}
	if m := w.ask(`{"type":"enqueue","queue":"jobs","messages":[%s],"id":1}`, strings.Join(all, ",")); m.Count != messages {
		t.Fatalf("enqueue: %+v", m)
	}
}

// wantLeased checks that the servers have claimed exactly that many messages.
func wantLeased(t *testing.T, addr string, want int) {
	t.Helper()
	status, text := request(t, "GET", addr, "/v1/queues/jobs", "")
	var stats struct{ Leased int }
	if err := json.Unmarshal([]byte(text), &stats); err != nil || status != 200 {
		t.Fatalf("stats: %d %s", status, text)
	}
	if stats.Leased != want {
		t.Errorf("%d messages are claimed, want the %d that there are credits for", stats.Leased, want)
	}
}

// TestServeQueues_CreditsAreAllThatIsClaimed: a worker of one server keeps a
// message for long. All other messages go to the worker of the other server, no
// matter when they were enqueued.
func TestServeQueues_CreditsAreAllThatIsClaimed(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{false, true} {
		t.Run(fmt.Sprintf("enqueued before %t", before), func(t *testing.T) {
			t.Parallel()
			db := migrated(t)
			one, two := serve(t, "--database-url", db.URL), serve(t, "--database-url", db.URL)
			if status, text := request(t, "POST", one.addr, "/v1/queues/jobs", `{}`); status != 200 {
				t.Fatalf("create: %d %s", status, text)
			}
			const jobs = 40
			producer := wireDial(t, one.addr)
			if before {
				enqueueMany(t, producer, jobs)
			}
			slow, quick := wireDial(t, one.addr), wireDial(t, two.addr)
			slow.ask(`{"type":"consume","queue":"jobs","credits":1,"id":1}`)
			if !before {
				enqueueMany(t, producer, jobs)
			}
			kept, err := slow.next()
			if err != nil || kept.Type != "delivery" {
				t.Fatalf("%+v, %v", kept, err)
			}
			wantLeased(t, one.addr, 1)
			quick.ask(`{"type":"consume","queue":"jobs","credits":1,"id":1}`)
			for i := range jobs - 1 {
				m, err := quick.next()
				if err != nil || m.Type != "delivery" || m.Payload == kept.Payload {
					t.Fatalf("job %d of the quick worker: %+v, %v", i+1, m, err)
				}
				if i < jobs-2 {
					quick.ask(`{"type":"ack","queue":"jobs","delivery":%q,"id":2}`, m.Delivery)
				}
			}
		})
	}
}

// received asks a server for messages, for two seconds if there are none.
func received(t *testing.T, addr string, most int) []wireMessage {
	t.Helper()
	status, text := request(t, "POST", addr, fmt.Sprintf("/v1/queues/jobs/receive?max=%d&wait_ms=2000", most), "")
	var answer struct{ Deliveries []wireMessage }
	if err := json.Unmarshal([]byte(text), &answer); err != nil || status != 200 {
		t.Fatalf("receive: %d %s", status, text)
	}
	return answer.Deliveries
}

// TestServeQueues_ReceiveTakesWhatItReturns: messages that an HTTP client did not
// request are available to the clients of another server.
func TestServeQueues_ReceiveTakesWhatItReturns(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	one, two := serve(t, "--database-url", db.URL), serve(t, "--database-url", db.URL)
	if status, text := request(t, "POST", one.addr, "/v1/queues/jobs", `{}`); status != 200 {
		t.Fatalf("create: %d %s", status, text)
	}
	const jobs = 60
	enqueueMany(t, wireDial(t, one.addr), jobs)
	kept := received(t, one.addr, 1)
	if len(kept) != 1 {
		t.Fatalf("the first server gave %d messages, want 1", len(kept))
	}
	wantLeased(t, two.addr, 1)
	// Less than the 30 s lease of the messages that the first server returned.
	deadline := time.Now().Add(25 * time.Second)
	others := 0
	for others < jobs-1 && time.Now().Before(deadline) {
		others += len(received(t, two.addr, 10))
	}
	_, metrics := request(t, "GET", one.addr, "/metrics", "")
	for _, line := range []string{"tidewire_queue_claimed_positions_total 1\n", "tidewire_queue_exhausted_messages_total 0\n", "tidewire_queue_vacuums_total 0\n"} {
		if !strings.Contains(metrics, line) {
			t.Errorf("the first server's metrics have no line %q", line)
		}
	}
	if others != jobs-1 {
		t.Errorf("the other server gave %d messages, want the %d that are left", others, jobs-1)
	}
}
