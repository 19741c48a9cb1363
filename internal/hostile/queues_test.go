package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// jobs is a queue with its producer and its consumers, one of which uses HTTP:
// each job is delivered at least once, and never again after an acknowledgement
// was answered.
type jobs struct {
	w      *world
	queue  string
	shared bool // attackers may enqueue, too; jobs have unique keys

	mu        sync.Mutex
	enqueued  map[int]int64 // positions, by number
	delivered map[string]int
	acked     map[string]time.Time
}

func newJobs(w *world, queue string, shared bool) *jobs {
	return &jobs{w: w, queue: queue, shared: shared, enqueued: make(map[int]int64), delivered: make(map[string]int), acked: make(map[string]time.Time)}
}

func (j *jobs) make() {
	pending := make(map[int]bool)
	next := 1
	j.w.keep("producer of "+j.queue, "/ws", func(l *line) error {
		say := func(n int) {
			once := ""
			if j.shared {
				once = fmt.Sprintf(`"unique_key":"job-%d","unique_ms":600000,`, n)
			}
			l.ask(n, `{"type":"enqueue","queue":%q,%s"payload":"job %d","id":%d}`, j.queue, once, n, n)
		}
		for n := range pending {
			say(n)
		}
		for {
			for j.w.producing.Err() == nil && len(pending) < window && !l.in.stopping() {
				pending[next] = true
				say(next)
				next++
			}
			if j.w.producing.Err() != nil && len(pending) == 0 {
				return nil
			}
			err := l.next(func(m message) {
				if m.Type != "ok" {
					l.refused(m)
					return
				}
				delete(pending, m.ID)
				j.mu.Lock()
				j.enqueued[m.ID] = m.Position
				j.mu.Unlock()
			})
			if err != nil {
				return err
			}
			time.Sleep(j.w.pause)
		}
	})
}

func (j *jobs) take() {
	var consuming sync.WaitGroup
	for n := range 2 {
		consuming.Go(func() { j.consume(fmt.Sprintf("consumer %d of %s", n, j.queue)) })
	}
	consuming.Go(func() { j.receive("HTTP-consumer of " + j.queue) })
	consuming.Wait()
}

func (j *jobs) consume(who string) {
	j.w.keep(who, "/ws", func(l *line) error {
		asked := make(map[int]string) // payloads, by the acknowledgement's id
		l.ask(1, `{"type":"consume","queue":%q,"credits":8,"id":1}`, j.queue)
		var deadline time.Time
		var ended bool
		for {
			err := l.next(func(m message) {
				switch m.Type {
				case "delivery":
					j.gotten(who, m.Payload)
					id := len(asked) + 2
					asked[id] = m.Payload
					l.ask(id, `{"type":"ack","queue":%q,"delivery":%q,"id":%d}`, j.queue, m.Delivery, id)
				case "ok":
					if payload := asked[m.ID]; payload != "" {
						j.done(who, payload)
					}
				default:
					if m.Code != "lease_lost" { // it was too slow: another consumer gets the job
						l.refused(m)
					}
				}
			})
			if err != nil {
				return err
			}
			if ended, deadline = j.w.ending(deadline); ended && (j.finished() || time.Now().After(deadline)) {
				return nil
			}
		}
	})
}

// receive is a consumer that uses HTTP.
func (j *jobs) receive(who string) {
	var deadline time.Time
	var ended bool
	for ; ; time.Sleep(10 * time.Millisecond) {
		if ended, deadline = j.w.ending(deadline); ended && (j.finished() || time.Now().After(deadline)) {
			return
		}
		var got struct{ Deliveries []message }
		if !j.w.request(who, "POST", "/v1/queues/"+j.queue+"/receive?max=5&wait_ms=500", nil, &got) {
			continue
		}
		for _, m := range got.Deliveries {
			j.gotten(who, m.Payload)
			body, _ := json.Marshal(map[string]string{"delivery": m.Delivery})
			var answer struct{ Count int }
			if j.w.request(who, "POST", "/v1/queues/"+j.queue+"/ack", bytes.NewReader(body), &answer) && answer.Count == 1 {
				j.done(who, m.Payload)
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

// finished reports whether all enqueued jobs are acknowledged. An
// acknowledgement whose answer was lost in a stop may have taken effect: so an
// empty queue counts too.
func (j *jobs) finished() bool {
	j.mu.Lock()
	left := 0
	for n := range j.enqueued {
		if j.acked[fmt.Sprint("job ", n)].IsZero() {
			left++
		}
	}
	j.mu.Unlock()
	if left == 0 {
		return true
	}
	var stats struct{ Ready, Leased, Delayed int }
	return j.w.get("operator of "+j.queue, "/v1/queues/"+j.queue, &stats) && stats.Ready+stats.Leased+stats.Delayed == 0
}

func (j *jobs) check(context.Context, *pgxpool.Pool) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for n, position := range j.enqueued {
		if j.delivered[fmt.Sprint("job ", n)] == 0 {
			j.w.fault("producer of "+j.queue, "lost", "job %d, enqueued at %d, was never delivered", n, position)
		}
	}
	j.w.sent += len(j.enqueued)
	j.w.t.Logf("queue %s: %d enqueued, %d delivered, %d acknowledged", j.queue, len(j.enqueued), len(j.delivered), len(j.acked))
	return nil
}
