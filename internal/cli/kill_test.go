package cli_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
)

// TestServers_Killed: two servers share a database and are killed, one after another. Meanwhile clients publish, enqueue, append and chat: each
// request several times, over HTTP and on /ws, in JSON and CBOR, one after another and at once. Followers, workers and members of a group go on at
// the other server, and schedules are due. In the end, of what was sent, answered, delivered and seen:
//   - each request is stored once, at the position of its answers, which are alike; at most one says that it is the first; a refused one is not stored,
//   - each follower has got everything once, in order,
//   - each job was delivered, and not again after the answer to its acknowledgement,
//   - the members have got everything, and nothing again after the answer to its commit,
//   - each due time of a schedule has one message.
func TestServers_Killed(t *testing.T) {
	t.Parallel()
	for seed := range pgtest.Seeds() {
		crashes(t, seed, migrated(t).URL, nil)
	}
}

// TestServers_PostgreSQLCrashes: the same holds while PostgreSQL crashes.
func TestServers_PostgreSQLCrashes(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	for seed := range pgtest.Seeds() {
		server := pgtest.Start(t)
		crashes(t, seed, server.URL(), func() { pgtest.Crash(t, server) })
	}
}

// crashes kills servers, or has PostgreSQL crash, under load.
func crashes(t *testing.T, seed uint64, url string, crash func()) {
	begin := func() *program {
		return serve(t, "--database-url", url, "--stored-rooms", "room-*", "--rate-limit", "100000", "--rate-burst", "100000")
	}
	servers := []*program{begin(), begin()}
	request(t, "POST", servers[0].Addr, "/v1/streams/s", `{"partitions":3}`)
	request(t, "POST", servers[0].Addr, "/v1/streams/ticks", "")
	request(t, "POST", servers[0].Addr, "/v1/queues/q", `{"partitions":2}`)
	for i := range 5 {
		request(t, "PUT", servers[0].Addr, fmt.Sprint("/v1/schedules/tick-", i), `{"cron":"@every 1s","stream":"ticks","payload":"","catch_up":"all"}`)
	}
	c := newCrowd(t)
	for i, s := range servers {
		c.addrs[i].Store(&s.Addr)
	}
	var sending sync.WaitGroup
	for n := range 8 {
		random := rand.New(rand.NewPCG(seed, uint64(100+n)))
		sending.Go(func() { c.send(n, random) })
	}
	for n, place := range []string{"s/0", "s/1", "s/2", "append", "room-0", "room-1"} {
		c.follow(place, rand.New(rand.NewPCG(seed, uint64(200+n))))
	}
	for n := range 2 {
		c.reading.Go(func() { c.work(n) })
		c.reading.Go(func() { c.member(n) })
	}
	random := rand.New(rand.NewPCG(seed, 31))
	for n := range 4 {
		c.await(50 + random.Int64N(100))
		if crash != nil {
			crash()
			continue
		}
		servers[n%2].Cmd.Process.Kill()
		servers[n%2] = begin()
		c.addrs[n%2].Store(&servers[n%2].Addr)
	}
	c.await(100)
	c.over.Store(true)
	sending.Wait()
	if !t.Failed() {
		c.check(servers[0].Addr)
		checkTicks(t, url)
	}
	c.close()
}

// crowd is the clients of two servers, and what they were answered, delivered and sent.
type crowd struct {
	t       *testing.T
	addrs   [2]atomic.Pointer[string]
	answers atomic.Int64
	more    chan struct{} // gets something after an answer
	over    atomic.Bool   // nothing new is sent

	closed    atomic.Bool // readers end
	conns     sync.Map    // of readers
	reading   sync.WaitGroup
	followers []*follower

	mu        sync.Mutex
	stored    map[string]map[int64]string // by place and position: the payload, as answered
	never     map[string]bool             // payloads of requests that were refused
	delivered map[string]bool             // jobs, by payload
	acked     map[string]bool             // jobs whose acknowledgement was answered
	committed map[int]int64               // by partition: the group's position, as answered
	got       map[int]map[int64]bool      // by partition: what members of the group have got
}

func newCrowd(t *testing.T) *crowd {
	return &crowd{
		t: t, more: make(chan struct{}, 1), stored: make(map[string]map[int64]string), never: make(map[string]bool), delivered: make(map[string]bool),
		acked: make(map[string]bool), committed: make(map[int]int64), got: make(map[int]map[int64]bool),
	}
}

// await waits until that many more requests were answered.
func (c *crowd) await(more int64) {
	for before := c.answers.Load(); c.answers.Load() < before+more && !c.t.Failed(); {
		select {
		case <-c.more:
		case <-time.After(time.Minute):
			c.t.Error("no more requests are answered")
		}
	}
}

// send sends requests until the test is over, each a few times. Some it sends again after later ones.
func (c *crowd) send(number int, random *rand.Rand) {
	type done struct {
		named
		first outcome
	}
	var all []done
	last := int64(0) // of its events
	for sequence := 0; !c.over.Load() && !c.t.Failed(); sequence += 1 + random.IntN(2) {
		r := makeNamed(number, sequence, last, random)
		answers := c.answersTo(r, 1+random.IntN(3), random)
		if len(answers) == 0 {
			return
		}
		originals := 0
		for _, o := range answers {
			if !o.Duplicate {
				originals++
			}
			c.alike(r, answers[0], o)
		}
		if originals > 1 && !r.conflict {
			c.t.Errorf("%s %d: %d answers say that they are the first", r.client, sequence, originals)
		}
		c.note(r, answers[0])
		if r.kind == "append" && !r.conflict {
			last = slices.Max(answers[0].Positions)
		}
		all = append(all, done{r, answers[0]})
		if earlier := all[random.IntN(len(all))]; random.IntN(3) == 0 {
			for _, o := range c.answersTo(earlier.named, 1, random) {
				c.alike(earlier.named, earlier.first, o)
				if !o.Duplicate && !earlier.conflict {
					c.t.Errorf("%s %d: %+v, and it was answered before", earlier.client, earlier.sequence, o)
				}
			}
		}
		c.answers.Add(1)
		select {
		case c.more <- struct{}{}:
		default:
		}
	}
}

// answersTo sends a request until it has at least so many answers.
func (c *crowd) answersTo(r named, wanted int, random *rand.Rand) (answers []outcome) {
	for len(answers) < wanted && !c.t.Failed() {
		var attempts sync.WaitGroup
		var mu sync.Mutex
		for range 1 + random.IntN(3) {
			way, addr := random.IntN(4), *c.addrs[random.IntN(2)].Load()
			attempts.Go(func() {
				o, final, err := r.tries(c.t.Context(), addr, way)
				if err != nil {
					c.t.Error(err)
				}
				if final {
					mu.Lock()
					defer mu.Unlock()
					answers = append(answers, o)
				}
			})
		}
		attempts.Wait()
	}
	return answers
}

func (c *crowd) alike(r named, first, o outcome) {
	n := len(r.payloads)
	switch {
	case r.conflict != (o.Code == "conflict"):
		c.t.Errorf("%s %d: %+v, and a conflict is %v", r.client, r.sequence, o, r.conflict)
	case !slices.Equal(r.places(first), r.places(o)) || first.Partition != o.Partition:
		c.t.Errorf("%s %d %+v: %+v, and then %+v", r.client, r.sequence, r, first, o)
	case r.kind != "append" && r.kind != "chat" && o.Count != n && o.Count != 0:
		c.t.Errorf("%s %d: %+v, want the count %d", r.client, r.sequence, o, n)
	}
}

func (c *crowd) note(r named, o outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.conflict {
		for _, payload := range r.payloads {
			c.never[payload] = true
		}
		return
	}
	place := r.kind
	switch r.kind {
	case "publish":
		place = fmt.Sprint(r.place, "/", o.Partition)
	case "chat":
		place = r.place
	}
	if c.stored[place] == nil {
		c.stored[place] = make(map[int64]string)
	}
	for i, position := range r.places(o) {
		if other, twice := c.stored[place][position]; twice {
			c.t.Errorf("%s: %s and %s are at %d", place, other, r.payloads[i], position)
		}
		c.stored[place][position] = r.payloads[i]
	}
}

// check compares what is stored with what was answered, and waits until the readers have everything.
func (c *crowd) check(addr string) {
	t := c.t
	found := readAll(t, addr)
	for place, messages := range c.stored {
		if len(found[place]) < len(messages) {
			t.Errorf("%s: %d are stored, %d were answered", place, len(found[place]), len(messages))
		}
	}
	for place, messages := range found {
		for _, m := range messages {
			if want := c.stored[place][m.Position]; m.text() != want {
				t.Errorf("%s: %s is stored at %d, where %q was answered", place, m.text(), m.Position, want)
			}
			if c.never[m.text()] {
				t.Errorf("%s: %s is stored, and was refused", place, m.text())
			}
		}
	}
	for _, f := range c.followers {
		testkit.Eventually(t, "a follower of "+f.place+" has got everything", func() bool { return len(f.all()) >= len(found[f.place]) })
		if got := f.all(); !slices.Equal(got, found[f.place]) {
			t.Errorf("%s: got %d messages, want %d:\n%v\n%v", f.place, len(got), len(found[f.place]), got, found[f.place])
		}
	}
	testkit.Eventually(t, "all jobs are done", func() bool {
		_, text := request(t, "GET", addr, "/v1/queues/q", "")
		return strings.Contains(text, `"ready":0,"leased":0,"delayed":0,"dead":0`)
	})
	testkit.Eventually(t, "the group has committed everything", func() bool {
		_, text := request(t, "GET", addr, "/v1/streams/s/groups", "")
		return strings.Contains(text, `"lag":0}`)
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range found["enqueue"] {
		if !c.delivered[m.Payload] {
			t.Errorf("job %s was not delivered", m.Payload)
		}
	}
	for partition := range 3 {
		for _, m := range found[fmt.Sprint("s/", partition)] {
			if !c.got[partition][m.Position] {
				t.Errorf("no member has got position %d of partition %d", m.Position, partition)
			}
		}
	}
	t.Logf("%d requests, %d were refused, %d jobs", c.answers.Load(), len(c.never), len(c.delivered))
}

// checkTicks wants one message for each due time.
func checkTicks(t *testing.T, url string) {
	t.Helper()
	const ticks = `SELECT headers ->> 'tidewire_schedule' AS name, (headers ->> 'tidewire_schedule_due')::timestamptz AS due FROM tidewire.shared_message
		WHERE stream = (SELECT id FROM tidewire.stream WHERE name = 'ticks')`
	if n := rows(t, url, `SELECT count(DISTINCT name) FROM (`+ticks+`) AS t`); n != 5 {
		t.Errorf("%d schedules have messages, want 5", n)
	}
	if n := rows(t, url, `SELECT count(*) FROM (
		SELECT name, count(*) AS n, count(DISTINCT due) AS dues, extract(epoch FROM max(due) - min(due))::int + 1 AS seconds FROM (`+ticks+`) AS t GROUP BY name
	) AS t WHERE n <> dues OR n <> seconds`); n != 0 {
		t.Errorf("%d schedules have more or fewer messages than due times", n)
	}
}
