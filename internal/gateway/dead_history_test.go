package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/websocket"
)

// deadWorld is a queue whose messages die often, and operators that change its dead letters.
type deadWorld struct {
	t       *testing.T
	servers []database

	deaths, redriven, purged atomic.Int64
	calm                     atomic.Bool // nothing is nacked any more, except messages that are to be purged

	mu    sync.Mutex
	acked map[string]bool
}

// consumes takes deliveries until the test is over, and acknowledges some of them.
func (w *deadWorld) consumes(conn *websocket.Conn, random *rand.Rand, over *atomic.Bool) {
	say := func(text string) {
		conn.Queue(websocket.OpText, []byte(text))
		conn.Flush()
	}
	say(`{"type":"consume","queue":"q","credits":20}`)
	settling := make(map[int]func()) // by id: what it means that it is done
	for id := 0; !over.Load() || len(settling) > 0; {
		conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		read, err := conn.Read()
		for _, raw := range read {
			var m struct {
				Type, Delivery, Key, Payload string
				Attempt, ID                  int
			}
			if err := json.Unmarshal(raw.Payload, &m); err != nil {
				w.t.Error(err)
			}
			if m.Type == "ok" {
				if done := settling[m.ID]; done != nil {
					done()
				}
				delete(settling, m.ID)
				continue
			}
			if m.Type != "delivery" {
				w.t.Errorf("%s", raw.Payload)
				return
			}
			w.mu.Lock()
			if w.acked[m.Payload] {
				w.t.Errorf("%s was delivered after its acknowledgement", m.Payload)
			}
			w.mu.Unlock()
			id++
			if bad := m.Key == "bad"; bad || !w.calm.Load() && random.IntN(2) == 0 {
				if m.Attempt == 2 {
					settling[id] = func() { w.deaths.Add(1) }
				} else {
					settling[id] = func() {}
				}
				say(fmt.Sprintf(`{"type":"nack","id":%d,"queue":"q","delivery":%q,"delay_ms":1,"reason":"because %s"}`, id, m.Delivery, m.Payload))
				continue
			}
			settling[id] = func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.acked[m.Payload] = true
			}
			say(fmt.Sprintf(`{"type":"ack","id":%d,"queue":"q","delivery":%q}`, id, m.Delivery))
		}
		if err != nil && !isTimeout(err) {
			w.t.Error(err)
			return
		}
	}
}

// call makes an HTTP request to one of the servers.
func (w *deadWorld) call(method string, server int, path, body string) string {
	r, err := http.NewRequestWithContext(w.t.Context(), method, "http://"+w.servers[server].addr+"/v1/queues/q"+path, strings.NewReader(body))
	if err != nil {
		w.t.Error(err)
		return ""
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != 200 {
		w.t.Errorf("%s %s %s: %s %s", method, path, body, resp.Status, text)
	}
	return string(text)
}

// job runs a job to its end, and returns how many dead letters it has changed.
func (w *deadWorld) job(server int, act, body string) int64 {
	var one struct {
		Job, State string
		Changed    int64
	}
	for text := w.call("POST", server, "/dead/"+act, body); ; text = w.call("GET", server, "/jobs/"+one.Job, "") {
		if err := json.Unmarshal([]byte(text), &one); err != nil || w.t.Failed() {
			w.t.Errorf("%s: %v", text, err)
			return 0
		}
		if one.State == "done" {
			return one.Changed
		}
		if one.State != "running" {
			w.t.Errorf("the job ended: %s", text)
			return 0
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// some redrives or purges the dead letters of the first page, by their positions. Others are asked for too.
func (w *deadWorld) some(server int, act, filter string) int64 {
	var page struct{ Dead []struct{ Position int64 } }
	json.Unmarshal([]byte(w.call("GET", server, "/dead?limit=20&"+filter, "")), &page)
	positions := []int64{1 << 40}
	for _, d := range page.Dead {
		positions = append(positions, d.Position)
	}
	list, _ := json.Marshal(positions)
	var got struct{ Count int64 }
	json.Unmarshal([]byte(w.call("POST", server, "/dead/"+act, fmt.Sprintf(`{"positions":%s}`, list))), &got)
	return got.Count
}

// operates changes dead letters in one of many ways.
func (w *deadWorld) operates(random *rand.Rand) {
	server := random.IntN(2)
	switch random.IntN(7) {
	case 0:
		w.redriven.Add(w.job(server, "redrive", `{"all":true}`))
	case 1:
		w.redriven.Add(w.job(server, "redrive", fmt.Sprintf(`{"filter":{"key":"k%d"}}`, random.IntN(5))))
	case 2:
		w.redriven.Add(w.job(server, "redrive", fmt.Sprintf(`{"filter":{"reason":"BECAUSE %d","min_attempts":2}}`, random.IntN(10))))
	case 3:
		w.purged.Add(w.job(server, "purge", `{"filter":{"key":"bad"}}`))
	case 4:
		w.redriven.Add(w.some(server, "redrive", "reason=because"))
	case 5:
		w.purged.Add(w.some(server, "purge", "key=bad"))
	case 6:
		w.call("POST", server, "/pause", "")
		time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond)
		w.call("POST", 1-server, "/resume", "")
	}
}

// TestDead_History: consumers at two servers nack what others redrive and purge, some or all, while the queue is paused and resumed. What is
// acknowledged does not come again, what is purged is gone, nothing else is, and the counts of all requests and jobs add up to the number of deaths.
func TestDead_History(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]engine.QueueOptions{"plain": {}, "partitions": {Partitions: 3}, "priorities": {Priorities: 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range pgtest.Seeds() {
				db := migrated.Open(t)
				w := &deadWorld{t: t, servers: []database{serveDatabase(t, db, nil), serveDatabase(t, db, nil)}, acked: make(map[string]bool)}
				opts.MaxAttempts, opts.RetryMin, opts.RetryMax = 2, time.Millisecond, time.Millisecond
				if err := w.servers[0].engine.Queues.Create(t.Context(), "q", &opts); err != nil {
					t.Fatal(err)
				}
				w.history(rand.New(rand.NewPCG(seed, 77)), opts.Priorities)
			}
		})
	}
}

func (w *deadWorld) history(random *rand.Rand, priorities int) {
	const messages = 400
	var consuming, operating sync.WaitGroup
	var over atomic.Bool
	for n := range 4 {
		own := rand.New(rand.NewPCG(random.Uint64(), 0))
		conn := dial(w.t, "ws://"+w.servers[n%2].addr+"/ws")
		consuming.Go(func() { w.consumes(conn, own, &over) })
	}
	for range 2 {
		own := rand.New(rand.NewPCG(random.Uint64(), 0))
		operating.Go(func() {
			for range 25 {
				w.operates(own)
			}
		})
	}
	bad := 0
	for n := range messages {
		key := fmt.Sprint("k", n%7)
		if n%10 == 0 {
			key = "bad"
			bad++
		}
		body := fmt.Sprintf(`{"payload":"%d","key":%q}`, n, key)
		if priorities > 0 {
			body = fmt.Sprintf(`{"payload":"%d","key":%q,"priority":%d}`, n, key, n%priorities)
		}
		w.call("POST", n%2, "/messages", body)
	}
	operating.Wait()
	w.calm.Store(true)
	done := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.acked) == messages-bad && int(w.purged.Load()) == bad
	}
	for deadline := time.Now().Add(patience); !done() && !w.t.Failed(); {
		w.redriven.Add(w.job(0, "redrive", `{"filter":{"reason":"because"}}`))
		time.Sleep(10 * time.Millisecond)
		w.purged.Add(w.job(1, "purge", `{"filter":{"key":"bad"}}`))
		if time.Now().After(deadline) {
			w.t.Errorf("%d are acknowledged, want %d; %d are purged, want %d: %s", len(w.acked), messages-bad, w.purged.Load(), bad, w.call("GET", 0, "", ""))
		}
	}
	over.Store(true)
	consuming.Wait()
	if deaths, changed := w.deaths.Load(), w.redriven.Load()+w.purged.Load(); deaths != changed {
		w.t.Errorf("%d have died, %d were redriven and %d purged", deaths, w.redriven.Load(), w.purged.Load())
	}
	w.t.Logf("%d deaths, %d redriven, %d purged", w.deaths.Load(), w.redriven.Load(), w.purged.Load())
}
