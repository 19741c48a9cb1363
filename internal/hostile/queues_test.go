package hostile

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// jobs is a queue with its producer and its consumers, one of which uses HTTP: each job is delivered at least once, and never again after an
// acknowledgement was answered.
type jobs struct {
	w      *world
	queue  string
	shared bool // attackers may enqueue, too; jobs have unique keys

	mu        sync.Mutex
	enqueued  map[string]int64 // positions, by payload
	delivered map[string]int
	acked     map[string]time.Time
}

func newJobs(w *world, queue string, shared bool) *jobs {
	return &jobs{w: w, queue: queue, shared: shared, enqueued: make(map[string]int64), delivered: make(map[string]int), acked: make(map[string]time.Time)}
}

func (*jobs) lines() int { return 3 }

func (j *jobs) make() {
	j.w.produce(work{who: "producer of " + j.queue, path: "/ws",
		ask: func(l *line, n int) {
			once := ""
			if j.shared {
				once = fmt.Sprintf(`"unique_key":"job-%d","unique_ms":600000,`, n)
			}
			l.ask(n, `{"type":"enqueue","queue":%q,%s"payload":"job %d","id":%d}`, j.queue, once, n, n)
		},
		done: func(n int, m message) {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.enqueued[fmt.Sprint("job ", n)] = m.Position
		}})
}

func (j *jobs) take() {
	side(3, func(i int) {
		if i == 0 {
			j.receive("HTTP-consumer of " + j.queue)
			return
		}
		who := fmt.Sprintf("consumer %d of %s", i, j.queue)
		var asked []string // payloads; the acknowledgement's id is the place
		j.w.consume(who, "/ws",
			func(l *line) {
				asked = nil
				l.ask(joinID, `{"type":"consume","queue":%q,"credits":8,"id":%d}`, j.queue, joinID)
			},
			func(l *line, m message) {
				switch {
				case m.Type == "delivery":
					j.gotten(who, m.Payload)
					asked = append(asked, m.Payload)
					l.ask(len(asked), `{"type":"ack","queue":%q,"delivery":%q,"id":%d}`, j.queue, m.Delivery, len(asked))
				case m.Type == "ok" && m.ID <= len(asked):
					j.done(who, asked[m.ID-1])
				}
			},
			j.finished)
	})
}

// receive is a consumer that uses HTTP.
func (j *jobs) receive(who string) {
	for !j.w.over(j.finished) && j.w.giveUp.Err() == nil {
		var got struct{ Deliveries []message }
		j.w.request(who, "POST", "/v1/queues/"+j.queue+"/receive?max=5&wait_ms=500", "", &got)
		for _, m := range got.Deliveries {
			j.gotten(who, m.Payload)
			var answer struct{ Count int }
			for range 2 { // the next server may acknowledge what the last one did not
				if j.w.request(who, "POST", "/v1/queues/"+j.queue+"/ack", fmt.Sprintf(`{"delivery":%q}`, m.Delivery), &answer) && answer.Count == 1 {
					j.done(who, m.Payload)
					break
				}
			}
		}
	}
}

func (j *jobs) gotten(who, payload string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !strings.HasPrefix(payload, "job ") {
		if !j.shared {
			j.w.fault(who, "not its own", "%q", payload)
		}
		return
	}
	j.delivered[payload]++
	if at := j.acked[payload]; !at.IsZero() {
		j.w.fault(who, "delivered again", "%q, %v after its acknowledgement was answered", payload, time.Since(at))
	}
}

func (j *jobs) done(who, payload string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.acked[payload].IsZero() && strings.HasPrefix(payload, "job ") {
		j.w.fault(who, "acknowledged twice", "%q", payload)
	}
	j.acked[payload] = time.Now()
}

// finished reports whether all enqueued jobs are acknowledged. An acknowledgement whose answer was lost in a stop may have taken effect: so an empty queue
// counts too.
func (j *jobs) finished() bool {
	j.mu.Lock()
	left := 0
	for payload := range j.enqueued {
		if j.acked[payload].IsZero() {
			left++
		}
	}
	j.mu.Unlock()
	if left == 0 {
		return true
	}
	var stats struct{ Ready, Leased, Delayed int }
	return j.w.request("operator of "+j.queue, "GET", "/v1/queues/"+j.queue, "", &stats) && stats.Ready+stats.Leased+stats.Delayed == 0
}

func (j *jobs) check(context.Context, *pgxpool.Pool) error {
	for payload, position := range j.enqueued {
		if j.delivered[payload] == 0 {
			j.w.fault("producer of "+j.queue, "lost", "%s, enqueued at %d, was never delivered", payload, position)
		}
	}
	j.w.sent += len(j.enqueued)
	j.w.t.Logf("queue %s: %d enqueued, %d delivered, %d acknowledged", j.queue, len(j.enqueued), len(j.delivered), len(j.acked))
	return nil
}
