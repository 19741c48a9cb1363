package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
)

// sseClient follows a path as a browser does: it comes back with the id that came last.
type sseClient struct {
	t     *testing.T
	path  string
	addrs *[2]atomic.Pointer[string]
	last  string // id
	got   []string
	begun chan struct{} // closed when the first answer has begun
}

// until follows until it has got so many messages.
func (c *sseClient) until(messages int, random *rand.Rand) {
	for len(c.got) < messages && !c.t.Failed() {
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Duration(100+random.IntN(3000))*time.Millisecond)
		c.once(ctx, *c.addrs[random.IntN(2)].Load(), messages)
		cancel()
	}
}

func (c *sseClient) once(ctx context.Context, addr string, most int) {
	r, err := http.NewRequestWithContext(ctx, "GET", "http://"+addr+c.path, nil)
	if err != nil {
		c.t.Error(err)
		return
	}
	if c.last != "" {
		r.Header.Set("Last-Event-ID", c.last)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		if resp.StatusCode < 500 {
			c.t.Errorf("%s after %s: %s", c.path, c.last, resp.Status)
		}
		return
	}
	event := make(map[string]string)
	lines := bufio.NewScanner(resp.Body)
	for len(c.got) < most && lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		if name != "" {
			event[name] = value
			continue
		}
		c.take(event)
		clear(event)
	}
}

// take takes an event, or an id alone.
func (c *sseClient) take(event map[string]string) {
	if event["event"] == "error" {
		return
	}
	if id := event["id"]; id != "" {
		c.last = id
		if len(c.got) == 0 && event["data"] == "" && c.begun != nil {
			close(c.begun)
			c.begun = nil
		}
	}
	if event["data"] == "" {
		return
	}
	var m item
	if err := json.Unmarshal([]byte(event["data"]), &m); err != nil {
		c.t.Errorf("%v: %v", event, err)
	}
	if event["id"] != strconv.FormatInt(m.Position, 10) {
		c.t.Errorf("%s: %v", c.path, event)
	}
	c.got = append(c.got, fmt.Sprint(m.Position, " ", m.Payload, m.Text, m.Data))
}

// TestFollow_Killed: followers of a stream, an event store and a stored room come back after the last id, at this or another server, while
// servers are killed. Each gets everything once, in order.
func TestFollow_Killed(t *testing.T) {
	t.Parallel()
	const messages = 400
	for seed := range pgtest.Seeds() {
		db := migrated(t).URL
		start := func() *program { return serve(t, "--database-url", db, "--stored-rooms", "room") }
		servers := []*program{start(), start()}
		request(t, "POST", servers[0].addr, "/v1/streams/s", "")
		var addrs [2]atomic.Pointer[string]
		for i, s := range servers {
			addrs[i].Store(&s.addr)
		}
		var sending, following sync.WaitGroup
		var sent atomic.Int64
		var mu sync.Mutex
		stored := make(map[string]map[int64]string)
		send := func(kind string, r func(n int) named) {
			random := rand.New(rand.NewPCG(seed, uint64(len(kind))))
			stored[kind] = make(map[int64]string)
			sending.Go(func() {
				for n := range messages {
					for r := r(n); !t.Failed(); {
						o, final, err := r.tries(t.Context(), *addrs[random.IntN(2)].Load(), 1)
						if err != nil {
							t.Error(err)
						}
						if final {
							mu.Lock()
							stored[kind][r.places(o)[0]] = r.payloads[0]
							mu.Unlock()
							break
						}
					}
					sent.Add(1)
				}
			})
		}
		clients := make(map[*sseClient]string)
		follow := func(kind, path string) {
			for i := range 2 {
				c := &sseClient{t: t, path: path, addrs: &addrs}
				if clients[c] = kind; i == 1 && kind != "append" { // it begins with what comes
					c.path, _, _ = strings.Cut(path, "?")
					c.begun = make(chan struct{})
				}
				random := rand.New(rand.NewPCG(seed, uint64(len(clients))))
				begun := c.begun
				following.Go(func() { c.until(messages, random) })
				for begun != nil {
					select {
					case <-begun:
						begun = nil
					case <-t.Context().Done():
						return
					}
				}
			}
		}
		follow("publish", "/v1/streams/s/follow?after=0")
		follow("append", "/v1/events/follow?after=0")
		follow("chat", "/v1/rooms/room/follow?after=0")
		one := func(n int) []string { return []string{fmt.Sprint("m", n)} }
		send("publish", func(n int) named {
			return named{kind: "publish", place: "s", client: "p", sequence: n, payloads: one(n), fields: map[string]any{"payload": one(n)[0]}}
		})
		send("append", func(n int) named {
			return named{kind: "append", client: "a", sequence: n, payloads: one(n), fields: map[string]any{"events": []any{map[string]any{"type": "T", "data": one(n)[0]}}}}
		})
		send("chat", func(n int) named {
			return named{kind: "chat", place: "room", client: "c", sequence: n, payloads: one(n), fields: map[string]any{"text": one(n)[0]}}
		})
		for n := range 3 {
			for sent.Load() < int64(250*(n+1)) && !t.Failed() {
				time.Sleep(time.Millisecond)
			}
			servers[n%2].cmd.Process.Kill()
			servers[n%2] = start()
			addrs[n%2].Store(&servers[n%2].addr)
		}
		sending.Wait()
		following.Wait()
		for c, kind := range clients {
			var want []string
			for _, position := range slices.Sorted(maps.Keys(stored[kind])) {
				want = append(want, fmt.Sprint(position, " ", stored[kind][position]))
			}
			if !slices.Equal(c.got, want) {
				t.Errorf("%s: got %d messages, want %d:\n%v\n%v", c.path, len(c.got), len(want), c.got, want)
			}
		}
	}
}
