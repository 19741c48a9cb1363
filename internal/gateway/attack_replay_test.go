package gateway_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/pgtest"
)

// replayEnded starts a replay of orders, and returns it when it has ended, or when a random time is over: then it goes on.
func replayEnded(c client, body string, random *rand.Rand, disturb func(job string)) (a replayAnswer) {
	c.t.Helper()
	_, text := c.do("POST", "/v1/streams/orders/replay", body)
	if strings.Contains(text, `"unavailable"`) { // PostgreSQL is away
		return a
	}
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		c.t.Fatal(text, err)
	}
	for range 1 + random.IntN(4) {
		time.Sleep(time.Duration(random.IntN(int(30 * time.Millisecond))))
		disturb(a.Job)
	}
	for end := time.Now().Add(patience); a.State == "running"; time.Sleep(time.Millisecond) {
		_, text = c.do("GET", "/v1/streams/orders/jobs/"+a.Job, "")
		if err := json.Unmarshal([]byte(text), &a); err != nil || time.Now().After(end) {
			c.t.Fatal(text, err)
		}
	}
	return a
}

// TestAttack_ReplayCut: a replay whose connections to PostgreSQL are cut again and again, which is stopped, and which goes on at another server, stores each
// message once, and in order.
func TestAttack_ReplayCut(t *testing.T) {
	t.Parallel()
	for seed := range pgtest.Seeds() {
		random := rand.New(rand.NewPCG(seed, 1))
		db := migrated.Open(t)
		servers := []database{serveDatabase(t, db, nil), serveDatabase(t, db, nil)}
		const n = 3000
		servers[0].make(t, "orders", 0)
		fillOrders(t, servers[0], n)
		for i := range 3 {
			replayCut(t, servers, fmt.Sprint("copy", i), random)
			wantCopies(t, servers[0], fmt.Sprint("copy", i), n, seed)
		}
	}
}

func replayCut(t *testing.T, servers []database, to string, random *rand.Rand) {
	servers[0].make(t, to, 0)
	name, after := "", int64(0)
	var last replayAnswer
	for round := 0; last.State != "done"; round++ {
		if round > 200 {
			t.Fatalf("it does not end: %+v", last)
		}
		body := fmt.Sprintf(`{"to_stream":%q,"after":%d}`, to, after)
		if name != "" {
			body = fmt.Sprintf(`{"to_stream":%q,"after":%d,"replay":%q}`, to, after, name)
		}
		s := servers[random.IntN(2)]
		c := client{t, s.addr}
		a := replayEnded(c, body, random, func(job string) {
			switch random.IntN(8) {
			default:
				s.cutting.cut()
				time.Sleep(time.Duration(random.IntN(int(20 * time.Millisecond))))
				s.cutting.mend()
			case 0:
				c.do("DELETE", "/v1/streams/orders/jobs/"+job, "")
			}
		})
		if a.Job == "" {
			continue
		}
		last, name, after = a, a.Replay, a.After
		if random.IntN(4) == 0 && a.State != "done" {
			after = max(0, after-int64(random.IntN(1000)))
		}
	}
}

func fillOrders(t *testing.T, s database, n int) {
	t.Helper()
	for at := 0; at < n; at += 500 {
		var page []engine.Message
		for i := range 500 {
			page = append(page, engine.Message{Key: fmt.Sprint("k", i%7), Payload: strconv.AppendInt(nil, int64(at+i+1), 10)})
		}
		stored := make(chan error, 1)
		if err := s.engine.Streams.Publish(t.Context(), "orders", nil, page, func(_ engine.Place, err error) { stored <- err }); err != nil {
			t.Fatal(err)
		}
		if err := <-stored; err != nil {
			t.Fatal(err)
		}
	}
}

func wantCopies(t *testing.T, s database, of string, n int, seed uint64) {
	t.Helper()
	want, after := 1, int64(0)
	for {
		page, err := s.engine.Streams.Read(t.Context(), of, nil, after, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page {
			if string(m.Payload) != strconv.Itoa(want) {
				t.Fatalf("seed %d: position %d has %s, want %d", seed, m.Position, m.Payload, want)
			}
			want, after = want+1, m.Position
		}
		if len(page) == 0 {
			break
		}
	}
	if want != n+1 {
		t.Errorf("seed %d: %d copies, want %d", seed, want-1, n)
	}
}
