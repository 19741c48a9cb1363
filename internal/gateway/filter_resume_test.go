package gateway_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/websocket"
)

// resuming is a client that follows a stream with a filter, and breaks off again and again.
type resuming struct {
	t      *testing.T
	addrs  []string
	filter string
	takes  func(n int) bool // whether the filter takes the message number n
	random *rand.Rand
	after  int64
	got    []string
	told   int
}

// until follows until the server has read up to a position.
func (r *resuming) until(last int64) {
	for r.after < last && !r.t.Failed() {
		conn, err := websocket.Dial(r.t.Context(), "ws://"+r.addrs[r.random.IntN(len(r.addrs))]+"/ws", websocket.Config{})
		if err != nil {
			r.t.Error(err)
			return
		}
		r.once(conn, last)
		conn.Abort()
	}
}

// once is one connection, which ends after a while or a number of messages.
func (r *resuming) once(conn *websocket.Conn, last int64) {
	credits := 0
	if r.random.IntN(2) == 0 {
		credits = 1 + r.random.IntN(30)
	}
	text := fmt.Sprintf(`{"type":"subscribe","stream":"s","after":%d%s`, r.after, r.filter)
	if credits > 0 {
		text += fmt.Sprintf(`,"credits":%d`, credits)
	}
	say := func(text string) {
		conn.Queue(websocket.OpText, []byte(text))
		conn.Flush()
	}
	say(text + "}")
	conn.SetReadDeadline(time.Now().Add(time.Duration(50+r.random.IntN(1500)) * time.Millisecond))
	most := 1 + r.random.IntN(300)
	for n := 0; n < most && r.after < last; {
		read, err := conn.Read()
		for _, raw := range read {
			var p pushed
			if err := json.Unmarshal(raw.Payload, &p); err != nil || p.Type != "message" && p.Type != "position" || p.Position <= r.after {
				r.t.Errorf("%s after %d with %s", raw.Payload, r.after, r.filter)
				return
			}
			r.after = p.Position
			if p.Type == "position" {
				r.told++
				continue
			}
			r.got = append(r.got, p.Payload)
			if n++; credits > 0 && r.random.IntN(10) > 0 {
				say(fmt.Sprintf(`{"type":"credit","subscription":"s","n":%d}`, 1+r.random.IntN(2)))
			}
			if n == most {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// TestFilter_Resumed: clients with filters that break off in the middle of everything, and resume after the last position
// at this or another server, get each message that the filter takes once, in order, while messages come from both servers.
func TestFilter_Resumed(t *testing.T) {
	t.Parallel()
	const messages = 1500
	zones := func(of ...int) func(int) bool { return func(n int) bool { return slices.Contains(of, n%4) } }
	keys := func(of ...int) func(int) bool { return func(n int) bool { return slices.Contains(of, n%10) } }
	for seed := range pgtest.Seeds() {
		db := migrated.Open(t)
		servers := []database{serveDatabase(t, db, nil), serveDatabase(t, db, nil)}
		servers[0].make(t, "s", 0)
		addrs := []string{servers[0].addr, servers[1].addr}
		all := []*resuming{
			{filter: `,"keys":["k1"]`, takes: keys(1)},
			{filter: `,"keys":["k1","k2","k7"]`, takes: keys(1, 2, 7)},
			{filter: `,"headers":{"zone":"z2"}`, takes: zones(2)},
			{filter: `,"keys":["k1","k3"],"headers":{"zone":"z3"}`, takes: func(n int) bool { return zones(3)(n) && keys(1, 3)(n) }},
			{filter: `,"keys":["none"]`, takes: keys()},
			{filter: "", takes: zones(0, 1, 2, 3)},
		}
		order := make([]int, messages+1) // by position: the number of the message
		var publishing, following sync.WaitGroup
		for i, addr := range addrs {
			random := rand.New(rand.NewPCG(seed, uint64(50+i)))
			publishing.Go(func() {
				c := connect(t, addr)
				for n := i; n < messages; n += 2 {
					send(t, c.Conn, fmt.Sprintf(`{"type":"publish","id":1,"stream":"s","key":"k%d","headers":{"zone":"z%d"},"payload":"%d"}`, n%10, n%4, n))
					var p pushed
					if line := c.next(); json.Unmarshal([]byte(line), &p) != nil || p.Type != "ok" {
						t.Errorf("%s", line)
						return
					}
					order[p.Position] = n
					if random.IntN(50) == 0 {
						time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
					}
				}
			})
		}
		for i, r := range all {
			r.t, r.addrs, r.random = t, addrs, rand.New(rand.NewPCG(seed, uint64(i)))
			following.Go(func() { r.until(messages) })
		}
		publishing.Wait()
		following.Wait()
		for _, r := range all {
			var want []string
			for _, n := range order[1:] {
				if r.takes(n) {
					want = append(want, fmt.Sprint(n))
				}
			}
			if !slices.Equal(r.got, want) {
				t.Errorf("%s: got %d messages, want %d", r.filter, len(r.got), len(want))
			}
			t.Logf("%s: %d messages, %d positions", r.filter, len(r.got), r.told)
		}
	}
}
