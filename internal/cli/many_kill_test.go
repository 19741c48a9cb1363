package cli_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/websocket"
)

// crowd is a set of clients of two servers that publish to many streams, subscribe to them,
// and work through many queues. It records their answers.
type crowd struct {
	t       *testing.T
	streams int
	queues  int
	addrs   [2]atomic.Pointer[string]
	over    atomic.Bool // nothing new is sent
	settled atomic.Bool // nothing new is sent, and everything sent is answered

	mu        sync.Mutex
	stored    map[string]map[int64]string // by stream and position, as acknowledged
	followed  map[string][]wireMessage
	enqueued  map[string]bool      // payloads whose enqueueing was acknowledged
	delivered map[string]int       // how often
	acked     map[string]time.Time // time at which the ack was answered
	answers   int
}

func newCrowd(t *testing.T, streams, queues int, addrs ...string) *crowd {
	c := &crowd{
		t: t, streams: streams, queues: queues, stored: make(map[string]map[int64]string), followed: make(map[string][]wireMessage),
		enqueued: make(map[string]bool), delivered: make(map[string]int), acked: make(map[string]time.Time),
	}
	for i, addr := range addrs {
		c.addrs[i].Store(&addr)
	}
	for i := range streams {
		c.stored[fmt.Sprint("s", i)] = make(map[int64]string)
	}
	return c
}

// dial tries the two servers in turn until one answers, or the test is over.
func (c *crowd) dial(turn *int) *wire {
	for c.t.Context().Err() == nil {
		*turn++
		conn, err := websocket.Dial(c.t.Context(), "ws://"+*c.addrs[*turn%2].Load()+"/ws", websocket.Config{})
		if err == nil {
			c.t.Cleanup(conn.Abort)
			conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
			return &wire{t: c.t, Conn: conn}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// publish publishes as a producer to each stream in turn, and repeats requests that were not
// answered.
func (c *crowd) publish(number int) {
	type request struct{ stream, payload string }
	flight := make(map[int]request)
	turn, sent := number, 0
	w := c.dial(&turn)
	send := func(id int) {
		r := flight[id]
		say(w.Conn, `{"type":"publish","stream":%q,"client":"p%d","sequence":%d,"payload":%q,"id":%d}`, r.stream, number, id, r.payload, id)
	}
	more := func() {
		sent++
		flight[sent] = request{fmt.Sprint("s", (sent*7+number)%c.streams), fmt.Sprint(number, "/", sent)}
		send(sent)
	}
	for range 16 {
		more()
	}
	for len(flight) > 0 {
		m, err := w.next()
		if err != nil {
			if w = c.dial(&turn); w == nil {
				return
			}
			for _, id := range slices.Sorted(maps.Keys(flight)) {
				send(id)
			}
			continue
		}
		r, known := flight[m.ID]
		switch {
		case m.Type == "ok" && known:
			c.answered(r.stream, r.payload, m.Position)
			delete(flight, m.ID)
			if !c.over.Load() {
				more()
			}
		case m.Code == "outcome_unknown" || m.Code == "unavailable" || m.Code == "shutting_down":
			send(m.ID)
		default:
			c.t.Errorf("publish: %+v", m)
			return
		}
	}
}

func (c *crowd) answered(stream, payload string, position int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers++
	if other, ok := c.stored[stream][position]; ok && other != payload {
		c.t.Errorf("%s: %s and %s were answered with position %d", stream, other, payload, position)
	}
	c.stored[stream][position] = payload
}

// follow subscribes to every second stream, and resumes after the last message seen, until
// all acknowledged messages have arrived.
func (c *crowd) follow(number int) {
	turn := number
	last := make(map[string]int64)
	for i := number; i < c.streams; i += 2 {
		last[fmt.Sprint("s", i)] = 0
	}
	for !c.followedAll(last) {
		w := c.dial(&turn)
		if w == nil {
			return
		}
		for s, after := range last {
			say(w.Conn, `{"type":"subscribe","stream":%q,"after":%d}`, s, after)
		}
		w.SetReadDeadline(time.Now().Add(3 * time.Second)) // and then again
		for m, err := w.next(); err == nil; m, err = w.next() {
			if m.Type != "message" {
				continue
			}
			if m.Position <= last[m.Stream] {
				c.t.Errorf("%s: position %d came after %d", m.Stream, m.Position, last[m.Stream])
			}
			last[m.Stream] = m.Position
			c.mu.Lock()
			c.followed[m.Stream] = append(c.followed[m.Stream], m)
			c.mu.Unlock()
		}
		w.Abort()
	}
}

// followedAll reports whether all publishes are answered, and the last positions have arrived.
func (c *crowd) followedAll(last map[string]int64) bool {
	if !c.settled.Load() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for s, seen := range last {
		for position := range c.stored[s] {
			if position > seen {
				return false
			}
		}
	}
	return true
}

// enqueue enqueues to each queue in turn. The outcome of an unanswered request is unknown.
func (c *crowd) enqueue(number int) {
	turn, sent := number, 0
	for !c.over.Load() {
		w := c.dial(&turn)
		if w == nil {
			return
		}
		flight := make(map[int]string)
		for err := error(nil); err == nil && !(c.over.Load() && len(flight) == 0); {
			for len(flight) < 8 && !c.over.Load() {
				sent++
				flight[sent] = fmt.Sprint("job ", number, "/", sent)
				say(w.Conn, `{"type":"enqueue","queue":"q%d","payload":%q,"id":%d}`, sent%c.queues, flight[sent], sent)
			}
			var m wireMessage
			if m, err = w.next(); err == nil && m.Type == "ok" {
				c.mu.Lock()
				c.enqueued[flight[m.ID]] = true
				c.mu.Unlock()
			}
			delete(flight, m.ID)
		}
		w.Abort()
	}
}

// work consumes all queues until every enqueued message was delivered.
func (c *crowd) work(number int) {
	turn := number
	for !c.worked() {
		w := c.dial(&turn)
		if w == nil {
			return
		}
		for q := range c.queues {
			say(w.Conn, `{"type":"consume","queue":"q%d","credits":4}`, q)
		}
		asked, acks := make(map[int]string), 0
		w.SetReadDeadline(time.Now().Add(3 * time.Second))
		for m, err := w.next(); err == nil; m, err = w.next() {
			c.mu.Lock()
			switch {
			case m.Type == "delivery":
				if at, done := c.acked[m.Payload]; done {
					c.t.Errorf("%s was delivered %v after its acknowledgement was answered", m.Payload, time.Since(at))
				}
				c.delivered[m.Payload]++
				acks++
				asked[acks] = m.Payload
				say(w.Conn, `{"type":"ack","queue":%q,"delivery":%q,"id":%d}`, m.Queue, m.Delivery, acks)
			case m.Type == "ok" && m.ID > 0 && m.Count == 1:
				c.acked[asked[m.ID]] = time.Now()
			}
			c.mu.Unlock()
		}
		w.Abort()
	}
}

func (c *crowd) worked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.settled.Load() {
		return false
	}
	for payload := range c.enqueued {
		if c.delivered[payload] == 0 {
			return false
		}
	}
	return true
}

// check reads all streams, and compares them with the answers.
func (c *crowd) check(addr string) {
	published := make(map[string]bool)
	for s, stored := range c.stored {
		var there struct{ Messages []wireMessage }
		for after := int64(0); ; {
			status, text := request(c.t, "GET", addr, fmt.Sprintf("/v1/streams/%s/messages?after=%d&limit=1000", s, after), "")
			var page struct{ Messages []wireMessage }
			if err := json.Unmarshal([]byte(text), &page); err != nil || status != 200 {
				c.t.Fatalf("%s: %d %s", s, status, text)
			}
			if len(page.Messages) == 0 {
				break
			}
			there.Messages = append(there.Messages, page.Messages...)
			after = page.Messages[len(page.Messages)-1].Position
		}
		for i, m := range there.Messages {
			if published[m.Payload] || stored[m.Position] != m.Payload || i < len(c.followed[s]) &&
				(c.followed[s][i].Position != m.Position || c.followed[s][i].Payload != m.Payload) {
				c.t.Errorf("%s: at %d is %s, answered was %s; twice: %v", s, m.Position, m.Payload, stored[m.Position], published[m.Payload])
			}
			published[m.Payload] = true
		}
		if len(there.Messages) != len(stored) || len(c.followed[s]) != len(stored) {
			c.t.Errorf("%s: %d messages, %d were answered and %d came to the subscription", s, len(there.Messages), len(stored), len(c.followed[s]))
		}
	}
}

// TestMany_Killed: two servers share many streams and queues. When a server or PostgreSQL is
// killed, clients reconnect to the other server and repeat unanswered requests. Acknowledged
// messages are stored once; subscriptions miss nothing; enqueued messages are delivered, and not
// again after their acknowledgement was answered.
func TestMany_Killed(t *testing.T) {
	t.Parallel()
	for _, victim := range []string{"server", "postgres"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			for seed := range pgtest.Seeds() {
				manyKilled(t, victim, rand.New(rand.NewPCG(seed, 16)))
			}
		})
	}
}

func manyKilled(t *testing.T, victim string, random *rand.Rand) {
	const streams, queues = 100, 12
	url, crash := "", func() {}
	if victim == "postgres" {
		server := pgtest.Start(t)
		url, crash = server.URL(), func() { pgtest.Crash(t, server) }
	} else {
		url = migrated(t).URL
	}
	servers := []*program{serve(t, "--database-url", url), serve(t, "--database-url", url)}
	for i := range streams {
		request(t, "POST", servers[i%2].addr, fmt.Sprint("/v1/streams/s", i), "")
	}
	for i := range queues {
		request(t, "POST", servers[i%2].addr, fmt.Sprint("/v1/queues/q", i), "")
	}
	c := newCrowd(t, streams, queues, servers[0].addr, servers[1].addr)
	var sending, running sync.WaitGroup
	for n := range 4 {
		sending.Go(func() { c.publish(n) })
	}
	for n := range 2 {
		sending.Go(func() { c.enqueue(n) })
		running.Go(func() { c.follow(n) })
		running.Go(func() { c.work(n) })
	}
	for n := range 3 {
		c.await((n + 1) * (300 + random.IntN(400)))
		if victim == "postgres" {
			crash()
			continue
		}
		servers[n%2].cmd.Process.Kill()
		servers[n%2] = serve(t, "--database-url", url)
		c.addrs[n%2].Store(&servers[n%2].addr)
	}
	c.await(2500)
	c.over.Store(true)
	sending.Wait()
	c.settled.Store(true)
	running.Wait()
	c.check(servers[0].addr)
	t.Logf("%d answers, %d enqueued, %d delivered", c.answers, len(c.enqueued), len(c.delivered))
	for _, s := range servers {
		s.stop(t)
	}
}

// await waits until that many publishes were answered.
func (c *crowd) await(answers int) {
	c.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		c.mu.Lock()
		enough := c.answers >= answers
		c.mu.Unlock()
		if enough {
			return
		}
		if time.Now().After(deadline) {
			c.t.Errorf("%d answers after a minute, want %d", c.answers, answers)
			return
		}
	}
}

// TestServe_MadeAgainElsewhere: a stream and a queue that another node has dropped can be used at
// once after this node has created them again.
func TestServe_MadeAgainElsewhere(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	one, two := serve(t, "--database-url", db.URL), serve(t, "--database-url", db.URL)
	for range 3 {
		for path, more := range map[string]string{"/v1/streams/s": "/messages", "/v1/queues/q": "/messages"} {
			for _, r := range []struct{ method, addr, path, body string }{
				{"POST", two.addr, path, ""}, {"POST", two.addr, path + more, `{"payload":"before"}`},
				{"DELETE", one.addr, path, ""},
				{"POST", two.addr, path, ""}, {"POST", two.addr, path + more, `{"payload":"after"}`},
			} {
				if status, text := request(t, r.method, r.addr, r.path, r.body); status != 200 {
					t.Errorf("%s %s: %d %s", r.method, r.path, status, text)
				}
			}
		}
	}
}
