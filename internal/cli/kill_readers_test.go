package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// item is a stored message, event or chat.
type item struct {
	Position            int64
	Payload, Text, Data string
}

func (m item) text() string { return m.Payload + m.Text + m.Data }

// readAll returns what is stored, by place, in order of positions.
func readAll(t *testing.T, addr string) map[string][]item {
	t.Helper()
	found := make(map[string][]item)
	pages := func(place, path, field string, positionOf func(int64) int64) {
		t.Helper()
		for after := int64(0); ; {
			_, text := request(t, "GET", addr, fmt.Sprint(path, "?limit=1000&after=", after), "")
			var page map[string]json.RawMessage
			var items []item
			if err := json.Unmarshal([]byte(text), &page); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if err := json.Unmarshal(page[field], &items); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			for _, m := range items {
				after = m.Position
				m.Position = positionOf(m.Position)
				found[place] = append(found[place], m)
			}
			if len(items) == 0 {
				return
			}
		}
	}
	same := func(position int64) int64 { return position }
	for n := range 3 {
		name := fmt.Sprint("s/", n)
		pages(name, "/v1/streams/"+url.PathEscape(name)+"/messages", "messages", same)
		name = fmt.Sprint("room-", n)
		pages(name, "/v1/rooms/"+name+"/chats", "chats", same)
	}
	for n := range int64(queuePartitions) {
		pages("enqueue", fmt.Sprint("/v1/streams/q%2F", n, "/messages"), "messages", func(position int64) int64 { return position*queuePartitions + n })
	}
	pages("append", "/v1/events", "events", same)
	return found
}

// follower follows a place as a browser does: it comes back with the id that came last.
type follower struct {
	*crowd
	place, path, last string

	mu  sync.Mutex
	got []item
}

func (f *follower) all() []item {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.got)
}

// follow begins to follow a place. Now and then it ends the request, and goes on at the same or the other server.
func (c *crowd) follow(place string, random *rand.Rand) {
	path := "/v1/streams/" + url.PathEscape(place) + "/follow"
	if place == "append" {
		path = "/v1/events/follow"
	} else if strings.HasPrefix(place, "room") {
		path = "/v1/rooms/" + place + "/follow"
	}
	f := &follower{crowd: c, place: place, path: path + "?after=0"}
	c.followers = append(c.followers, f)
	c.reading.Go(func() {
		for !c.closed.Load() && !c.t.Failed() {
			ctx, cancel := context.WithTimeout(c.t.Context(), time.Duration(100+random.IntN(3000))*time.Millisecond)
			f.once(ctx, *c.addrs[random.IntN(2)].Load())
			cancel()
		}
	})
}

func (f *follower) once(ctx context.Context, addr string) {
	r, err := http.NewRequestWithContext(ctx, "GET", "http://"+addr+f.path, nil)
	if err != nil {
		f.t.Error(err)
		return
	}
	if f.last != "" {
		r.Header.Set("Last-Event-ID", f.last)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		if resp.StatusCode < 500 {
			f.t.Errorf("%s after %s: %s", f.path, f.last, resp.Status)
		}
		return
	}
	event := make(map[string]string)
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		if name != "" {
			event[name] = value
			continue
		}
		f.take(event)
		clear(event)
	}
}

// take takes an event, or an id alone.
func (f *follower) take(event map[string]string) {
	if event["event"] == "error" {
		return
	}
	if id := event["id"]; id != "" {
		f.last = id
	}
	if event["data"] == "" {
		return
	}
	var m item
	if err := json.Unmarshal([]byte(event["data"]), &m); err != nil || event["id"] != strconv.FormatInt(m.Position, 10) {
		f.t.Errorf("%s: %v, %v", f.path, event, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.got = append(f.got, m)
}

// dial tries the two servers in turn until one answers, or the test is over. One of them is always there.
func (c *crowd) dial(turn *int) *wire {
	for c.t.Context().Err() == nil && !c.closed.Load() {
		*turn++
		conn, err := websocket.Dial(c.t.Context(), "ws://"+*c.addrs[*turn%2].Load()+"/ws", websocket.Config{})
		if err == nil {
			c.t.Cleanup(conn.Abort)
			c.conns.Store(conn, nil)
			conn.SetReadDeadline(time.Now().Add(3 * time.Second)) // and then again
			return &wire{t: c.t, Conn: conn}
		}
	}
	return nil
}

// close ends the readers.
func (c *crowd) close() {
	c.closed.Store(true)
	c.conns.Range(func(conn, _ any) bool {
		conn.(*websocket.Conn).Abort()
		return true
	})
	c.reading.Wait()
}

// work does jobs.
func (c *crowd) work(turn int) {
	for w := c.dial(&turn); w != nil; w = c.dial(&turn) {
		say(w.Conn, `{"type":"consume","queue":"q","credits":4}`)
		asked := make(map[int]string)
		for m, err := w.next(); err == nil; m, err = w.next() {
			c.mu.Lock()
			switch {
			case m.Type == "delivery":
				if c.acked[m.Payload] {
					c.t.Errorf("%s was delivered after its acknowledgement was answered", m.Payload)
				}
				c.delivered[m.Payload] = true
				asked[len(asked)+1] = m.Payload
				say(w.Conn, `{"type":"ack","queue":"q","delivery":%q,"id":%d}`, m.Delivery, len(asked))
			case m.Type == "ok" && m.ID > 0 && m.Count == 1:
				c.acked[asked[m.ID]] = true
			}
			c.mu.Unlock()
		}
		w.Abort()
	}
}

// member is a member of a group, and commits every message.
func (c *crowd) member(turn int) {
	for w := c.dial(&turn); w != nil; w = c.dial(&turn) {
		w.SetReadDeadline(time.Now().Add(time.Minute)) // a member that comes and goes would have the group share out its partitions again
		say(w.Conn, `{"type":"subscribe","stream":"s","group":"g","share":true}`)
		asked := make(map[int]int) // partitions
		for m, err := w.next(); err == nil && (m.Type != "error" || m.Code == "fenced"); m, err = w.next() {
			c.mu.Lock()
			switch {
			case m.Type == "message":
				if m.Position <= c.committed[m.Partition] {
					c.t.Errorf("a member got %d of partition %d after %d was committed", m.Position, m.Partition, c.committed[m.Partition])
				}
				if c.got[m.Partition] == nil {
					c.got[m.Partition] = make(map[int64]bool)
				}
				c.got[m.Partition][m.Position] = true
				asked[len(asked)+1] = m.Partition
				say(w.Conn, `{"type":"commit","stream":"s","group":"g","partition":%d,"position":%d,"id":%d}`, m.Partition, m.Position, len(asked))
			case m.Type == "ok" && m.ID > 0:
				partition := asked[m.ID]
				c.committed[partition] = max(c.committed[partition], m.Position)
			}
			c.mu.Unlock()
		}
		w.Abort()
	}
}
