package cli_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
)

// ledger holds what clients of two servers were answered.
type ledger struct {
	t       *testing.T
	addrs   [2]atomic.Pointer[string]
	answers atomic.Int64
	over    atomic.Bool

	mu     sync.Mutex
	stored map[string]map[int64]string // by place and position: the payload
	never  map[string]bool             // payloads of requests that were refused
}

// client sends requests until the test is over, each a few times, in several ways at once. Some it sends again after later ones.
func (l *ledger) client(number int, random *rand.Rand) {
	type done struct {
		named
		first outcome
	}
	var all []done
	last := int64(0) // of its events
	for sequence := 0; !l.over.Load() && !l.t.Failed(); sequence += 1 + random.IntN(2) {
		r := makeNamed(number, sequence, last, random)
		answers := l.answersTo(r, 1+random.IntN(3), random)
		if len(answers) == 0 {
			return
		}
		originals := 0
		for _, o := range answers {
			if !o.Duplicate {
				originals++
			}
			l.compare(r, answers[0], o)
		}
		if originals > 1 && !r.conflict {
			l.t.Errorf("%s %d: %d answers say that they are the first", r.client, sequence, originals)
		}
		l.note(r, answers[0])
		if r.kind == "append" && !r.conflict {
			last = slices.Max(answers[0].Positions)
		}
		all = append(all, done{r, answers[0]})
		if earlier := all[random.IntN(len(all))]; random.IntN(3) == 0 {
			for _, o := range l.answersTo(earlier.named, 1, random) {
				l.compare(earlier.named, earlier.first, o)
				if !o.Duplicate && !earlier.conflict {
					l.t.Errorf("%s %d: %+v, and it was answered before", earlier.client, earlier.sequence, o)
				}
			}
		}
		l.answers.Add(1)
	}
}

// answersTo sends a request until it has at least so many answers.
func (l *ledger) answersTo(r named, wanted int, random *rand.Rand) (answers []outcome) {
	for len(answers) < wanted && !l.t.Failed() {
		var attempts sync.WaitGroup
		var mu sync.Mutex
		for range 1 + random.IntN(3) {
			way, addr := random.IntN(4), *l.addrs[random.IntN(2)].Load()
			attempts.Go(func() {
				o, final, err := r.tries(l.t.Context(), addr, way)
				if err != nil {
					l.t.Error(err)
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

func (l *ledger) compare(r named, first, o outcome) {
	n := len(r.payloads)
	switch {
	case r.conflict != (o.Code == "conflict"):
		l.t.Errorf("%s %d: %+v, and a conflict is %v", r.client, r.sequence, o, r.conflict)
	case !slices.Equal(r.places(first), r.places(o)) || first.Partition != o.Partition:
		l.t.Errorf("%s %d %+v: %+v, and then %+v", r.client, r.sequence, r, first, o)
	case r.kind != "append" && r.kind != "chat" && o.Count != n && o.Count != 0:
		l.t.Errorf("%s %d: %+v, want the count %d", r.client, r.sequence, o, n)
	}
}

func (l *ledger) note(r named, o outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.conflict {
		for _, payload := range r.payloads {
			l.never[payload] = true
		}
		return
	}
	place := r.kind
	if r.kind == "publish" {
		place = fmt.Sprint(r.place, "/", o.Partition)
	}
	if l.stored[place] == nil {
		l.stored[place] = make(map[int64]string)
	}
	for i, position := range r.places(o) {
		if other, twice := l.stored[place][position]; twice {
			l.t.Errorf("%s: %s and %s are at %d", place, other, r.payloads[i], position)
		}
		l.stored[place][position] = r.payloads[i]
	}
}

// makeNamed makes a request. last is the position of the client's last event.
func makeNamed(number, sequence int, last int64, random *rand.Rand) named {
	r := named{client: fmt.Sprint("client-", number), sequence: sequence, fields: make(map[string]any)}
	n := 1
	if random.IntN(3) == 0 {
		n += random.IntN(20)
	}
	if r.kind = []string{"publish", "enqueue", "append", "chat"}[random.IntN(4)]; r.kind == "chat" {
		n = 1
	}
	for i := range n {
		r.payloads = append(r.payloads, fmt.Sprint(number, "/", sequence, "/", i))
	}
	var items []map[string]any
	tag := fmt.Sprint("of:", number)
	switch r.kind {
	case "publish", "enqueue":
		r.place = map[string]string{"publish": "s", "enqueue": "q"}[r.kind]
		key := fmt.Sprint("k", random.IntN(20))
		keyed := random.IntN(3) > 0
		for _, payload := range r.payloads {
			item := map[string]any{"payload": payload}
			if keyed {
				item["key"] = key
			}
			items = append(items, item)
		}
		if r.fields["messages"] = items; n == 1 {
			r.fields = items[0]
		}
	case "append":
		for _, payload := range r.payloads {
			items = append(items, map[string]any{"type": "T", "tags": []string{tag}, "data": payload})
		}
		r.fields["events"] = items
		if random.IntN(3) > 0 {
			if r.conflict = last > 0 && random.IntN(4) == 0; r.conflict {
				last--
			}
			r.fields["condition"] = map[string]any{"after": last, "query": map[string]any{"items": []any{map[string]any{"tags": []string{tag}}}}}
		}
	case "chat":
		r.place = fmt.Sprint("room-", random.IntN(3))
		r.fields["text"] = r.payloads[0]
	}
	return r
}

// check compares what is stored with what was answered.
func (l *ledger) check(addr string) {
	found := make(map[string]map[int64]string)
	note := func(place string, position int64, payload string) {
		if found[place] == nil {
			found[place] = make(map[int64]string)
		}
		found[place][position] = payload
	}
	for n := range 3 {
		name := fmt.Sprint("s/", n)
		l.pages(addr, "/v1/streams/"+url.PathEscape(name)+"/messages", "messages", func(m item) { note(name, m.Position, m.Payload) })
	}
	for n := range int64(queuePartitions) {
		l.pages(addr, fmt.Sprint("/v1/streams/q%2F", n, "/messages"), "messages", func(m item) { note("enqueue", m.Position*queuePartitions+n, m.Payload) })
	}
	for n := range 3 {
		l.pages(addr, fmt.Sprint("/v1/rooms/room-", n, "/chats"), "chats", func(m item) { note("chat", m.Position, m.Text) })
	}
	l.pages(addr, "/v1/events", "events", func(m item) { note("append", m.Position, m.Data) })
	for place, messages := range l.stored {
		if len(found[place]) < len(messages) {
			l.t.Errorf("%s: %d are stored, %d were answered", place, len(found[place]), len(messages))
		}
	}
	for place, messages := range found {
		for position, payload := range messages {
			if want := l.stored[place][position]; payload != want {
				l.t.Errorf("%s: %s is stored at %d, where %q was answered", place, payload, position, want)
			}
			if l.never[payload] {
				l.t.Errorf("%s: %s is stored, and was refused", place, payload)
			}
		}
	}
}

// item is a stored message, event or chat.
type item struct {
	Position            int64
	Payload, Text, Data string
}

func (l *ledger) pages(addr, path, field string, each func(item)) {
	for after := int64(0); ; {
		_, text := request(l.t, "GET", addr, fmt.Sprint(path, "?limit=1000&after=", after), "")
		var page map[string]json.RawMessage
		var items []item
		if err := json.Unmarshal([]byte(text), &page); err != nil {
			l.t.Fatalf("%s: %v", text, err)
		}
		if err := json.Unmarshal(page[field], &items); err != nil {
			l.t.Fatalf("%s: %v", text, err)
		}
		for _, m := range items {
			each(m)
			after = m.Position
		}
		if len(items) == 0 {
			return
		}
	}
}

// TestRepeats_Killed: two servers get each request several times, over HTTP and on /ws, in JSON and CBOR, one after
// another and at once, while servers are killed. Each is stored once, all its answers are alike, and at most one says that it is the first.
// A request whose condition fails is never stored.
func TestRepeats_Killed(t *testing.T) {
	t.Parallel()
	for seed := range pgtest.Seeds() {
		db := migrated(t).URL
		start := func() *program {
			return serve(t, "--database-url", db, "--stored-rooms", "room-*", "--rate-limit", "100000", "--rate-burst", "100000")
		}
		servers := []*program{start(), start()}
		request(t, "POST", servers[0].addr, "/v1/streams/s", `{"partitions":3}`)
		request(t, "POST", servers[0].addr, "/v1/queues/q", `{"partitions":2}`)
		l := &ledger{t: t, stored: make(map[string]map[int64]string), never: make(map[string]bool)}
		for i, s := range servers {
			l.addrs[i].Store(&s.addr)
		}
		random := rand.New(rand.NewPCG(seed, 31))
		var clients sync.WaitGroup
		for n := range 12 {
			own := rand.New(rand.NewPCG(seed, uint64(100+n)))
			clients.Go(func() { l.client(n, own) })
		}
		await := func(more int64) {
			for before := l.answers.Load(); l.answers.Load() < before+more && !t.Failed(); {
				time.Sleep(time.Millisecond)
			}
		}
		for n := range 4 {
			await(50 + random.Int64N(100))
			servers[n%2].cmd.Process.Kill()
			servers[n%2] = start()
			l.addrs[n%2].Store(&servers[n%2].addr)
		}
		await(100)
		l.over.Store(true)
		clients.Wait()
		if !t.Failed() {
			l.check(servers[0].addr)
		}
		t.Logf("%d requests, %d were refused", l.answers.Load(), len(l.never))
	}
}
