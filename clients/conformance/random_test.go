package conformance_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/internal/wsproxy"
)

// TestRandom: a program publishes, enqueues and appends while connections and the server fail at random moments. Afterwards what the
// library said is compared with what the server stored: nothing that was answered is missing, nothing is there twice, the order of calls
// is kept, and the reader has seen exactly what is stored. A long test makes more calls.
func TestRandom(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 10 s")
	}
	t.Parallel()
	calls := 100
	if os.Getenv(testkit.LongVariable) != "" {
		calls = 400
	}
	for _, l := range libraries {
		for seed := range pgtest.Seeds() {
			t.Run(fmt.Sprintf("%s/%d", l.name, seed+1), func(t *testing.T) {
				t.Parallel()
				l.require(t)
				h := newHistory(t, l, seed+1)
				h.write(calls)
				h.settle()
				h.check()
			})
		}
	}
}

// history is a random run, with what was asked, by kind.
type history struct {
	*world
	random *rand.Rand
	calls  map[string][]*call
}

// call is a call of the program.
type call struct {
	value    string // that no other call has
	id       int
	said     string // ok, or the code of the error
	position float64
}

func newHistory(t *testing.T, l library, seed uint64) *history {
	t.Helper()
	w := newWorld(t, startRunner(t, l), "", []string{"s"}, []string{"q"}, startServer(t, pgtest.Open(t)))
	for _, step := range []fields{
		{"do": "open", "client": "writer"},
		{"do": "open", "client": "reader"},
		{"do": "subscribe", "client": "reader", "as": "messages", "stream": "s", "after": 0, "credits": 20},
		{"do": "follow", "client": "reader", "as": "events", "query": fields{"items": []any{}}, "after": 0},
		{"do": "work", "client": "reader", "as": "worker", "queue": "q", "concurrency": 4, "handle": "ack"},
	} {
		if err := w.step(step); err != nil {
			t.Fatalf("%v: %v", step, err)
		}
	}
	return &history{w, rand.New(rand.NewPCG(seed, seed)), map[string][]*call{}}
}

// write makes calls, and faults meanwhile.
func (h *history) write(calls int) {
	for i := range calls {
		kind, value := []string{"publish", "publish", "enqueue", "append"}[h.random.IntN(4)], fmt.Sprintf("v%d", i)
		command := fields{"do": kind, "client": "writer", "stream": "s", "queue": "q", "value": value, "timeout_ms": 60000}
		if kind == "append" {
			delete(command, "value")
			command["events"] = []any{fields{"type": "E", "tags": []any{value}}}
		}
		h.calls[kind] = append(h.calls[kind], &call{value: value, id: h.runner.send(command)})
		if h.random.IntN(4) == 0 {
			time.Sleep(time.Duration(h.random.IntN(20)) * time.Millisecond) // pace: of a program that does not call all at once
		}
		h.fail(calls)
	}
}

// fail breaks something, now and then; the server about twice.
func (h *history) fail(calls int) {
	switch n := h.random.IntN(60); {
	case n == 0:
		h.proxy.Cut()
	case n <= 2:
		rules := []wsproxy.Rule{
			{To: "server", Type: "publish"}, {To: "server", Type: "enqueue"}, {To: "server", Type: "append"}, {To: "server", Type: "ack"}, {To: "server", Type: "credit"},
			{To: "client", Answers: "publish"}, {To: "client", Answers: "enqueue"}, {To: "client", Answers: "append"}, {To: "client", Answers: "ack"},
			{To: "client", Type: "message"}, {To: "client", Type: "delivery"}, {To: "client", Type: "event"}, {To: "client", Type: "hello"},
		}
		rule := rules[h.random.IntN(len(rules))]
		rule.Do, rule.Skip = []string{wsproxy.CutBefore, wsproxy.CutAfter}[h.random.IntN(2)], h.random.IntN(5)
		if err := h.proxy.Add(rule); err != nil {
			h.t.Fatal(err)
		}
	}
	if h.random.IntN(calls) < 2 {
		h.server().Kill()
		h.server().start()
		h.proxy.SetTarget(h.server().Addr)
	}
}

// settle ends the faults, and waits for all answers.
func (h *history) settle() {
	h.proxy.Clear()
	for kind, calls := range h.calls {
		for _, c := range calls {
			got, err := h.runner.answer(c.id)
			if err != nil {
				h.t.Fatalf("%s %s: %v", kind, c.value, err)
			}
			if failed, ok := got["error"].(fields); ok {
				c.said = failed["code"].(string)
				continue
			}
			ok, _ := got["ok"].(fields)
			c.said = "ok"
			c.position, _ = ok["position"].(float64)
			if positions, _ := ok["positions"].([]any); len(positions) == 1 {
				c.position = positions[0].(float64)
			}
		}
	}
}

// check compares what the library said with what the server stored.
func (h *history) check() {
	values, positions := h.server().stored(h.t, "s")
	h.compare("publish", values, positions)
	h.seen("messages", "message", "value", values)
	jobs, positions := h.server().stored(h.t, "q")
	h.compare("enqueue", jobs, positions)
	testkit.Eventually(h.t, "the queue is empty", func() bool {
		return matches(fields{"ready": 0.0, "leased": 0.0, "delayed": 0.0, "dead": 0.0}, h.server().want(h.t, "GET", "/v1/queues/q", nil))
	})
	handled := map[string]bool{}
	for _, e := range h.runner.take("worker", "job") {
		handled[textOf(e["value"])] = true
	}
	for _, job := range jobs {
		if !handled[textOf(job)] {
			h.t.Errorf("job %v was never handled", job)
		}
	}
	values, positions = nil, nil
	page := h.server().want(h.t, "GET", "/v1/events?limit=1000", nil)
	for _, e := range page["events"].([]any) {
		values, positions = append(values, e.(fields)["tags"]), append(positions, e.(fields)["position"].(float64))
	}
	h.compare("append", values, positions)
	h.seen("events", "event", "tags", values)
}

// textOf returns a value as a text; of a list its only element.
func textOf(value any) string {
	if list, ok := value.([]any); ok && len(list) == 1 {
		value = list[0]
	}
	return fmt.Sprint(value)
}

// compare checks all calls of a kind.
func (h *history) compare(kind string, values []any, positions []float64) {
	h.t.Helper()
	at := map[string]float64{}
	for i, value := range values {
		if before, twice := at[textOf(value)]; twice {
			h.t.Errorf("%s %v is stored twice, at %.0f and %.0f", kind, value, before, positions[i])
		}
		at[textOf(value)] = positions[i]
	}
	last := 0.0
	for _, c := range h.calls[kind] {
		position, stored := at[c.value]
		delete(at, c.value)
		switch {
		case c.said == "ok" && (!stored || position != c.position):
			h.t.Errorf("%s %s was answered with position %.0f, and is stored at %.0f", kind, c.value, c.position, position)
		case c.said != "ok" && c.said != "outcome_unknown":
			h.t.Errorf("%s %s: %s", kind, c.value, c.said)
		case stored && kind != "append" && position <= last: // appends of a connection run side by side
			h.t.Errorf("%s %s is stored at %.0f, the call before it at %.0f", kind, c.value, position, last)
		}
		if stored {
			last = position
		}
	}
	for value := range at {
		h.t.Errorf("%s %s is stored, and nobody has sent it", kind, value)
	}
}

// seen checks that an iteration has got all of this, once and in this order.
func (h *history) seen(on, event, field string, values []any) {
	h.t.Helper()
	got, err := h.runner.count(on, event, len(values))
	if err != nil {
		h.t.Error(err)
	}
	for i, e := range got {
		if textOf(e[field]) != textOf(values[i]) {
			h.t.Fatalf("%s: number %d is %v, want %v", on, i+1, e[field], values[i])
		}
	}
	if more := h.runner.take(on, event); len(more) > 0 {
		h.t.Errorf("%s: %d more came, such as %v", on, len(more), more[0])
	}
}
