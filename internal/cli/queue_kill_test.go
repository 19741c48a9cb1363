package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/websocket"
)

// asConsumer makes the test's own program consume the queue "jobs" of the server
// at that address, until its connection ends.
const asConsumer = "TIDEWIRE_TEST_AS_CONSUMER"

// consumed is what a consumer's process prints about a message.
type consumed struct {
	Payload  string
	Position int64
	Acked    bool // the acknowledgement was answered; otherwise: delivered
	At       int64
	By       int
}

// consume is the main function of a consumer's process. It writes every line
// before it continues, so that the output survives a kill.
func consume(addr string) (code int) {
	c, err := websocket.Dial(context.Background(), "ws://"+addr+"/ws", websocket.Config{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer c.Abort()
	lines := json.NewEncoder(os.Stdout)
	say(c, `{"type":"consume","queue":"jobs","credits":20}`)
	asked := make(map[int]consumed)
	for {
		raws, err := c.Read()
		now := time.Now().UnixNano()
		for _, raw := range raws {
			var m wireMessage
			if err := json.Unmarshal(raw.Payload, &m); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			switch m.Type {
			case "delivery":
				it := consumed{Payload: m.Payload, Position: m.Position, At: now}
				lines.Encode(it)
				asked[len(asked)+1] = it
				say(c, `{"type":"ack","queue":"jobs","delivery":%q,"id":%d}`, m.Delivery, len(asked))
			case "ok":
				it := asked[m.ID]
				it.Acked, it.At = true, now
				lines.Encode(it)
			}
		}
		if err != nil {
			return 0
		}
	}
}

// consumerOutput is the output of all consumers.
type consumerOutput struct {
	running sync.WaitGroup

	mu   sync.Mutex
	said []consumed
}

func (d *consumerOutput) read(from io.Reader, by int) {
	for lines := json.NewDecoder(bufio.NewReader(from)); ; {
		var it consumed
		if lines.Decode(&it) != nil {
			return
		}
		it.By = by
		d.mu.Lock()
		d.said = append(d.said, it)
		d.mu.Unlock()
	}
}

func (d *consumerOutput) acked() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, it := range d.said {
		if it.Acked {
			n++
		}
	}
	return n
}

// consumer starts a consumer's process.
func (d *consumerOutput) consumer(t *testing.T, addr string, number int) (kill func()) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), asConsumer+"="+addr)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	d.running.Go(func() {
		defer close(ended)
		d.read(out, number)
		cmd.Wait()
	})
	kill = func() {
		cmd.Process.Kill()
		<-ended
	}
	t.Cleanup(kill)
	return kill
}

// check compares the output of the consumers, which have all ended, with the
// answers to the producers.
func (d *consumerOutput) check(t *testing.T, enqueued map[string]int64) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	delivered, acked, at := make(map[string]bool), make(map[string]int64), make(map[int64]string)
	for _, it := range d.said {
		if it.Acked {
			if acked[it.Payload] != 0 {
				t.Errorf("%s was acknowledged with success twice", it.Payload)
			}
			acked[it.Payload] = it.At
			continue
		}
		delivered[it.Payload] = true
		if other, ok := at[it.Position]; ok && other != it.Payload {
			t.Errorf("position %d holds %s and %s", it.Position, other, it.Payload)
		}
		at[it.Position] = it.Payload
	}
	for _, it := range d.said {
		if answered := acked[it.Payload]; !it.Acked && answered != 0 && it.At > answered {
			t.Errorf("%s was delivered to %d %v after its acknowledgement", it.Payload, it.By, time.Duration(it.At-answered))
		}
	}
	for payload, position := range enqueued {
		if !delivered[payload] || at[position] != payload {
			t.Errorf("%s, enqueued at %d, was not delivered from there", payload, position)
		}
	}
}

// TestQueue_Killed: two servers share a queue, each with a consumer, and under
// load a consumer's process, a server or PostgreSQL is killed. Every
// acknowledged message is delivered, and none is delivered after the answer to
// its acknowledgement.
func TestQueue_Killed(t *testing.T) {
	t.Parallel()
	for _, victim := range []string{"consumer", "server", "postgres"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			for seed := range pgtest.Seeds() {
				killed(t, victim, rand.New(rand.NewPCG(seed, 5)))
			}
		})
	}
}

func killed(t *testing.T, victim string, random *rand.Rand) {
	const total = 1000
	url, crash := "", func() {}
	if victim == "postgres" {
		server := pgtest.Start(t)
		url, crash = server.URL(), func() { pgtest.Crash(t, server) }
	} else {
		url = migrated(t).URL
	}
	one, two := serve(t, "--database-url", url), serve(t, "--database-url", url)
	request(t, "POST", one.addr, "/v1/queues/jobs", "")
	var all consumerOutput
	first := all.consumer(t, one.addr, 1)
	all.consumer(t, two.addr, 2)

	answered := make(chan map[string]int64, 1)
	producer := wireDial(t, two.addr)
	go func() { answered <- enqueue(producer, total) }()
	at := 200 + random.IntN(total/2)
	for deadline := time.Now().Add(time.Minute); all.acked() < at && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	switch victim {
	case "consumer":
		first()
		all.consumer(t, one.addr, 3)
	case "server":
		one.cmd.Process.Kill()
		all.consumer(t, two.addr, 3)
	case "postgres":
		crash()
	}
	enqueued := <-answered
	if len(enqueued) != total {
		t.Errorf("%d of %d enqueued", len(enqueued), total)
	}
	awaitEmpty(t, two.addr)
	two.stop(t) // this also ends its consumers
	if victim != "server" {
		one.stop(t)
	}
	all.running.Wait()
	all.check(t, enqueued)
}

// enqueue keeps eight messages in flight and returns the acknowledged positions.
func enqueue(w *wire, total int) map[string]int64 {
	positions := make(map[string]int64)
	sent := 0
	next := func() {
		if sent < total {
			sent++
			say(w.Conn, `{"type":"enqueue","queue":"jobs","payload":"message %d","id":%d}`, sent, sent)
		}
	}
	for range 8 {
		next()
	}
	for len(positions) < total {
		m, err := w.next()
		if err != nil || m.Type != "ok" {
			w.t.Errorf("enqueue: %+v, %v", m, err)
			break
		}
		positions[fmt.Sprintf("message %d", m.ID)] = m.Position
		next()
	}
	return positions
}

// awaitEmpty waits until the queue is empty: also of messages of killed
// consumers, whose lease lasts 15 s.
func awaitEmpty(t *testing.T, addr string) {
	t.Helper()
	var left struct{ Ready, Leased, Delayed int }
	for deadline := time.Now().Add(90 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		status, text := request(t, "GET", addr, "/v1/queues/jobs", "")
		if status != 200 {
			continue
		}
		if err := json.Unmarshal([]byte(text), &left); err != nil {
			t.Fatalf("stats: %s", text)
		}
		if left.Ready+left.Leased+left.Delayed == 0 {
			return
		}
	}
	t.Errorf("the queue still holds %+v", left)
}

// TestQueue_KilledServerCountsNoAttempt kills the server of a queue that allows
// one attempt: no message becomes a dead letter.
func TestQueue_KilledServerCountsNoAttempt(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	const jobs = 20
	one := serve(t, "--database-url", db.URL)
	if status, text := request(t, "POST", one.addr, "/v1/queues/jobs", `{"max_attempts":1}`); status != 200 {
		t.Fatalf("create: %d %s", status, text)
	}
	w := wireDial(t, one.addr)
	enqueueMany(t, w, jobs)
	w.ask(`{"type":"consume","queue":"jobs","credits":2,"id":2}`)
	for range 2 {
		mustNext(t, w)
	}
	one.cmd.Process.Kill()

	two := serve(t, "--database-url", db.URL)
	w = wireDial(t, two.addr)
	w.ask(`{"type":"consume","queue":"jobs","credits":2,"id":2}`)
	got := make(map[string]int)
	for range jobs { // two of them after the lease of the killed server has expired
		m := mustNext(t, w)
		got[m.Payload] = m.Attempt
		w.ask(`{"type":"ack","queue":"jobs","delivery":%q,"id":3}`, m.Delivery)
	}
	for payload, attempt := range got {
		if attempt != 1 {
			t.Errorf("%s came at attempt %d, want 1", payload, attempt)
		}
	}
	awaitEmpty(t, two.addr)
	if _, text := request(t, "GET", two.addr, "/v1/queues/jobs", ""); len(got) != jobs || !strings.Contains(text, `"dead":0,`) {
		t.Errorf("%d of %d messages delivered, in the end %s; want no dead letter", len(got), jobs, text)
	}
}

// mustNext returns the next delivery.
func mustNext(t *testing.T, w *wire) wireMessage {
	t.Helper()
	for {
		m, err := w.next()
		if err != nil {
			t.Fatal(err)
		}
		if m.Type == "delivery" {
			return m
		}
	}
}
