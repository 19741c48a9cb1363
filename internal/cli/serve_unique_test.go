package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
)

// TestServeQueues_UniqueInOrder enqueues each job twice on one connection without
// waiting for answers: the first is stored, and the second is its duplicate.
func TestServeQueues_UniqueInOrder(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	p := serve(t, "--database-url", db.URL)
	for queue, options := range map[string]string{"jobs": `{}`, "urgent": `{"priorities":2}`, "ordered": `{"partitions":4}`} {
		if status, text := request(t, "POST", p.addr, "/v1/queues/"+queue, options); status != 200 {
			t.Fatalf("create: %d %s", status, text)
		}
		w := wireDial(t, p.addr)
		const pairs = 30
		for n := range 2 * pairs {
			say(w.Conn, `{"type":"enqueue","queue":%q,"payload":"%d","unique_key":"k%d","unique_ms":600000,"id":%d}`, queue, n, n/2, n)
		}
		answers := make(map[int]wireMessage)
		for len(answers) < 2*pairs {
			m, err := w.next()
			if err != nil || m.Type != "ok" {
				t.Fatalf("%s: %+v, %v", queue, m, err)
			}
			answers[m.ID] = m
		}
		stored := make(map[int64]bool)
		for n := range pairs {
			first, second := answers[2*n], answers[2*n+1]
			if first.Duplicate || !second.Duplicate || second.Position != first.Position {
				t.Errorf("%s, pair %d: %+v, then %+v; want the second to be the duplicate of the first", queue, n, first, second)
			}
			stored[first.Position] = true
		}
		if len(stored) != pairs {
			t.Errorf("%s: %d messages are stored, want %d", queue, len(stored), pairs)
		}
	}
}

// TestServeQueues_UniqueIsRepeatable: an enqueue with a unique key is repeated after the end of the period, by the other door
// as well, and gets the answer of the first one.
func TestServeQueues_UniqueIsRepeatable(t *testing.T) {
	t.Parallel()
	p := serve(t, "--database-url", migrated(t).URL)
	if status, text := request(t, "POST", p.addr, "/v1/queues/jobs", `{}`); status != 200 {
		t.Fatalf("create: %d %s", status, text)
	}
	w := wireDial(t, p.addr)
	overWebSocket := func(sequence int) wireMessage {
		t.Helper()
		return w.ask(`{"type":"enqueue","queue":"jobs","payload":"x","unique_key":"k","unique_ms":1000,"client":"c","sequence":%d,"id":%d}`, sequence, sequence)
	}
	overHTTP := func(sequence int) (m wireMessage) {
		t.Helper()
		r, err := http.NewRequest("POST", "http://"+p.addr+"/v1/queues/jobs/messages", bytes.NewReader([]byte(`{"payload":"x","unique_key":"k","unique_ms":1000}`)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", fmt.Sprint("c:", sequence))
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		if err := json.Unmarshal(text, &m); err != nil || answer.StatusCode != 200 {
			t.Fatalf("%d %s", answer.StatusCode, text)
		}
		return m
	}
	first := overWebSocket(1)
	sequence := 2
	for overHTTP(sequence).Duplicate { // until the period is over
		sequence++
	}
	for _, again := range []wireMessage{overWebSocket(1), overHTTP(1)} {
		if again.Position != first.Position || !again.Duplicate {
			t.Errorf("%+v, want that of %+v", again, first)
		}
	}
}
