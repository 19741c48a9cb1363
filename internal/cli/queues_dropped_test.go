package cli_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
)

// churn is a set of queues that two servers create and drop, with clients of both servers.
type churn struct {
	t       *testing.T
	servers []*program
	names   []string
	over    atomic.Bool // no more queues are created, and all are dropped

	mu   sync.Mutex
	told map[string]int // counts of answers and ends, by kind
}

func (c *churn) count(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told[what]++
}

// makeAndDrop creates and drops one queue several times. It can be used as soon as it is created.
func (c *churn) makeAndDrop(name string, random *rand.Rand) {
	for range 4 {
		pause := time.Duration(random.IntN(400)) * time.Millisecond
		shape := []string{`{}`, `{"partitions":2}`, `{"partitions":3}`, `{"priorities":2}`}[random.IntN(4)]
		maker, dropper := c.servers[random.IntN(2)], c.servers[random.IntN(2)]
		c.must("POST", maker, "/v1/queues/"+name, shape)
		c.must("POST", maker, "/v1/queues/"+name+"/messages", `{"payload":"first"}`)
		time.Sleep(pause)
		c.must("DELETE", dropper, "/v1/queues/"+name, "")
		time.Sleep(pause / 8)
	}
}

func (c *churn) must(method string, server *program, path, body string) {
	status, text, err := tryRequest(c.t.Context(), method, server.addr, path, body)
	if err != nil || status != 200 {
		c.t.Errorf("%s %s %s: %d %s %v", method, path, body, status, text, err)
	}
}

// enqueue enqueues to any of the queues: immediate, delayed, or unique messages.
func (c *churn) enqueue(w *wire, random *rand.Rand) {
	defer w.Abort()
	for id := 1; !c.over.Load(); id++ {
		how := []string{"", `,"delay_ms":100`, fmt.Sprintf(`,"unique_key":"k%d","unique_ms":60000`, id)}[random.IntN(3)]
		say(w.Conn, `{"type":"enqueue","queue":%q,"payload":"p"%s,"id":%d}`, c.names[random.IntN(len(c.names))], how, id)
		m, err := w.next()
		if err != nil || m.ID != id || m.Type != "ok" && m.Code != "not_found" {
			c.t.Errorf("enqueue %s: %+v, %v", how, m, err)
			return
		}
		c.count("enqueue " + m.Type + m.Code)
		time.Sleep(time.Duration(random.IntN(10)) * time.Millisecond)
	}
}

// consumer is one connection that consumes all queues, and starts again after each end.
type consumer struct {
	*churn
	w         *wire
	requests  int
	consuming map[string]bool // requested, and not ended
	asked     map[int]string  // the queues of unanswered consume requests
	acks      map[int]bool    // unanswered
}

// consume works until all queues are dropped and each consumption has ended.
func (c *consumer) consume() {
	messages := make(chan wireMessage)
	var reading sync.WaitGroup
	done := make(chan struct{})
	reading.Go(func() {
		defer close(messages)
		for m, err := c.w.next(); err == nil; m, err = c.w.next() {
			select {
			case messages <- m:
			case <-done:
			}
		}
	})
	defer reading.Wait()
	defer c.w.Abort()
	defer close(done)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	hung := time.After(40 * time.Second)
	for !c.over.Load() || len(c.consuming)+len(c.acks) > 0 {
		select {
		case m, open := <-messages:
			if !open {
				c.t.Error("the connection has ended")
				return
			}
			c.heard(m)
		case <-again.C:
			c.ask()
		case <-hung:
			c.t.Errorf("not told of the ends of %v, nor of %d acks", slices.Sorted(maps.Keys(c.consuming)), len(c.acks))
			return
		}
	}
}

func (c *consumer) ask() {
	for _, name := range c.names {
		if !c.consuming[name] && !c.over.Load() {
			c.requests++
			c.consuming[name], c.asked[c.requests] = true, name
			say(c.w.Conn, `{"type":"consume","queue":%q,"credits":5,"id":%d}`, name, c.requests)
		}
	}
}

func (c *consumer) heard(m wireMessage) {
	name, asked := c.asked[m.ID]
	switch {
	case asked && (m.Type == "ok" || m.Code == "not_found"):
		if delete(c.asked, m.ID); m.Code != "" {
			delete(c.consuming, name)
		}
		c.count("consume " + m.Type + m.Code)
	case c.acks[m.ID] && (m.Type == "ok" || slices.Contains([]string{"lease_lost", "not_settled", "not_consuming"}, m.Code)):
		delete(c.acks, m.ID)
		c.count("ack " + m.Type + m.Code)
	case m.Type == "delivery":
		c.requests++
		c.acks[c.requests] = true
		say(c.w.Conn, `{"type":"ack","queue":%q,"delivery":%q,"id":%d}`, m.Queue, m.Delivery, c.requests)
	case m.ID == 0 && m.Code == "queue_gone" && c.consuming[m.Queue]:
		delete(c.consuming, m.Queue)
		c.count("end " + m.Code)
	default:
		c.t.Errorf("consumer: %+v", m)
		delete(c.consuming, m.Queue)
	}
}

// awaitNoQueues waits until no goroutine of the server serves a queue.
func awaitNoQueues(t *testing.T, p *program) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		_, profile := request(t, "GET", p.addr, "/debug/pprof/goroutine?debug=1", "")
		if !strings.Contains(profile, "tidewire/queue.") {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("all queues are dropped, and there is left:\n%s", profile)
			return
		}
	}
}

// TestServe_QueuesDropped: two servers create and drop queues of all kinds, repeatedly with the
// same names, while their clients enqueue and consume. Each consumption ends once, because its
// queue is gone; each acknowledgement is answered; and the servers keep nothing of the queues.
func TestServe_QueuesDropped(t *testing.T) {
	t.Parallel()
	for seed := range pgtest.Seeds() {
		queuesDropped(t, seed)
	}
}

func queuesDropped(t *testing.T, seed uint64) {
	db := migrated(t)
	c := &churn{t: t, told: make(map[string]int)}
	for range 2 {
		c.servers = append(c.servers, serve(t, "--database-url", db.URL, "--profile"))
	}
	for i := range 6 {
		c.names = append(c.names, fmt.Sprint("q", i))
	}
	var clients, droppers sync.WaitGroup
	for i := range 4 {
		w := wireDial(t, c.servers[i%2].addr)
		clients.Go(func() { c.enqueue(w, rand.New(rand.NewPCG(seed, uint64(i)))) })
		own := &consumer{
			churn: c, w: wireDial(t, c.servers[i%2].addr),
			consuming: make(map[string]bool), asked: make(map[int]string), acks: make(map[int]bool),
		}
		clients.Go(own.consume)
	}
	for i, name := range c.names {
		droppers.Go(func() { c.makeAndDrop(name, rand.New(rand.NewPCG(seed, uint64(100+i)))) })
	}
	droppers.Wait()
	c.over.Store(true)
	clients.Wait()
	t.Log(c.told)
	for _, s := range c.servers {
		awaitNoQueues(t, s)
		s.stop(t)
	}
}

// TestServe_QueueGoneWithoutCredit: a consumer without credit is also told about the end of the
// queue, on either node.
func TestServe_QueueGoneWithoutCredit(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	one, two := serve(t, "--database-url", db.URL), serve(t, "--database-url", db.URL)
	for _, dropper := range []*program{one, two} {
		request(t, "POST", one.addr, "/v1/queues/jobs", "")
		request(t, "POST", one.addr, "/v1/queues/jobs/messages", `{"payload":"p"}`)
		w := wireDial(t, one.addr)
		say(w.Conn, `{"type":"consume","queue":"jobs","credits":1,"id":1}`)
		for _, want := range []string{"ok", "delivery"} {
			if m, err := w.next(); err != nil || m.Type != want {
				t.Fatalf("%+v, %v, want %s", m, err, want)
			}
		}
		began := time.Now()
		if status, text := request(t, "DELETE", dropper.addr, "/v1/queues/jobs", ""); status != 200 {
			t.Fatalf("%d %s", status, text)
		}
		if m, err := w.next(); err != nil || m.Code != "queue_gone" {
			t.Errorf("%+v, %v after %v", m, err, time.Since(began))
		}
		w.Abort()
	}
}
