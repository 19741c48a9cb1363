package cli_test

import (
	"testing"
	"time"
)

// longPeriod is a period, in milliseconds, of which minutes are left: of four
// lengths one is like that, but for a moment in 42 hours.
func longPeriod() (best int64) {
	most := time.Duration(0)
	for period := 10 * time.Minute; period >= 7*time.Minute; period -= time.Minute {
		if left := period - time.Duration(time.Now().UnixNano())%period; left > most {
			best, most = period.Milliseconds(), left
		}
	}
	return best
}

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
		w, period := wireDial(t, p.addr), longPeriod()
		const pairs = 30
		for n := range 2 * pairs {
			say(w.Conn, `{"type":"enqueue","queue":%q,"payload":"%d","unique_key":"k%d","unique_ms":%d,"id":%d}`, queue, n, n/2, period, n)
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
