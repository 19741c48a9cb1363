package conformance_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/wsproxy"
)

// TestRandom: a program publishes, enqueues and appends while connections and the server fail at random moments. Afterwards what the
// library said is compared with what the server stored: nothing that was answered is missing, nothing is there twice, the order of calls
// is kept, and the reader has seen exactly what is stored.
func TestRandom(t *testing.T) {
	t.Parallel()
	for _, l := range libraries {
		for seed := range pgtest.Seeds() {
			t.Run(fmt.Sprintf("%s/%d", l.name, seed+1), func(t *testing.T) {
				t.Parallel()
				l.require(t)
				h := newHistory(t, l, seed+1)
				h.write()
				h.settle()
				h.check()
			})
		}
	}
}

// history is a random run, with what was asked.
type history struct {
	*world
	random *rand.Rand
	calls  []*call
	kinds  map[string][]*call
}

// call is a call of the program.
type call struct {
	kind  string // publish, enqueue or append
	value string // that no other call has
	id    int
	// said is ok, or the code of the error.
	said     string
	position float64
}

const (
	historyStream = "s"
	historyQueue  = "q"
	historyCalls  = 400
)

// everyEvent selects all events.
var everyEvent = fields{"items": []any{}}

func newHistory(t *testing.T, l library, seed uint64) *history {
	t.Helper()
	w := newWorld(t, l, true, []string{historyStream}, []string{historyQueue}, startServer(t, pgtest.Open(t)))
	h := &history{world: w, random: rand.New(rand.NewPCG(seed, seed)), kinds: map[string][]*call{}}
	h.do(fields{"do": "open", "client": "writer"})
	h.do(fields{"do": "open", "client": "reader"})
	h.do(fields{"do": "subscribe", "client": "reader", "as": "messages", "stream": historyStream, "after": 0, "credits": 20})
	h.do(fields{"do": "follow", "client": "reader", "as": "events", "query": everyEvent, "after": 0})
	h.do(fields{"do": "work", "client": "reader", "as": "worker", "queue": historyQueue, "concurrency": 4, "handle": "ack"})
	return h
}

// do does a step that has to succeed.
func (h *history) do(step fields) {
	h.t.Helper()
	if err := h.step(step); err != nil {
		h.t.Fatalf("%v: %v", step, err)
	}
}

// write makes calls, and faults meanwhile.
func (h *history) write() {
	for i := range historyCalls {
		c := &call{kind: []string{"publish", "publish", "enqueue", "append"}[h.random.IntN(4)], value: fmt.Sprintf("v%d", i)}
		command := fields{"do": c.kind, "client": "writer", "value": c.value, "timeout_ms": 60000}
		switch c.kind {
		case "publish":
			command["stream"] = historyStream
		case "enqueue":
			command["queue"] = historyQueue
		case "append":
			delete(command, "value")
			command["events"] = []any{fields{"type": "E", "tags": []any{c.value}}}
		}
		c.id = h.runner.send(command)
		h.calls = append(h.calls, c)
		h.kinds[c.kind] = append(h.kinds[c.kind], c)
		if h.random.IntN(4) == 0 {
			time.Sleep(time.Duration(h.random.IntN(20)) * time.Millisecond)
		}
		h.fail()
	}
}

// fail breaks something, now and then.
func (h *history) fail() {
	switch h.random.IntN(60) {
	case 0:
		h.proxy.Cut()
	case 1, 2:
		do := []string{wsproxy.CutBefore, wsproxy.CutAfter}[h.random.IntN(2)]
		rules := []wsproxy.Rule{
			{To: "server", Type: "publish"}, {To: "server", Type: "enqueue"}, {To: "server", Type: "append"}, {To: "server", Type: "ack"}, {To: "server", Type: "credit"},
			{To: "client", Answers: "publish"}, {To: "client", Answers: "enqueue"}, {To: "client", Answers: "append"}, {To: "client", Answers: "ack"},
			{To: "client", Type: "message"}, {To: "client", Type: "delivery"}, {To: "client", Type: "event"}, {To: "client", Type: "hello"},
		}
		rule := rules[h.random.IntN(len(rules))]
		rule.Do, rule.Skip = do, h.random.IntN(5)
		if err := h.proxy.Add(rule); err != nil {
			h.t.Fatal(err)
		}
	case 3:
		if h.random.IntN(4) == 0 {
			h.server().kill()
			h.server().start(h.t)
			h.proxy.SetTarget(h.server().addr)
		}
	}
}

// settle ends the faults, and waits for all answers.
func (h *history) settle() {
	h.proxy.Clear()
	for _, c := range h.calls {
		got, err := h.runner.answer(c.id)
		if err != nil {
			h.t.Fatalf("%s %s: %v", c.kind, c.value, err)
		}
		ok, _ := got["ok"].(fields)
		failed, _ := got["error"].(fields)
		switch {
		case failed != nil:
			c.said = failed["code"].(string)
		case ok != nil:
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
	values, positions := h.server().stored(h.t, historyStream)
	h.compare("publish", values, positions)
	h.seen("messages", "message", "value", values)
	values, positions = h.server().stored(h.t, historyQueue)
	h.compare("enqueue", values, positions)
	h.worked(values)
	values, positions = h.events()
	h.compare("append", values, positions)
	h.seen("events", "event", "tags", values)
}

// events returns the only tag of each stored event.
func (h *history) events() (values []any, positions []float64) {
	for after := 0.0; ; {
		page := h.server().want(h.t, "GET", fmt.Sprintf("/v1/events?limit=1000&after=%.0f", after), nil)
		some, _ := page["events"].([]any)
		if len(some) == 0 {
			return values, positions
		}
		for _, e := range some {
			event := e.(fields)
			values, positions = append(values, event["tags"]), append(positions, event["position"].(float64))
		}
		after = page["next"].(float64)
	}
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
	for _, c := range h.kinds[kind] {
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

// worked checks that each job was handled, and that the queue is empty in the end.
func (h *history) worked(values []any) {
	h.t.Helper()
	missing := make([]string, len(values))
	for i, value := range values {
		missing[i] = textOf(value)
	}
	for deadline := time.Now().Add(patience); len(missing) > 0; time.Sleep(20 * time.Millisecond) {
		for _, e := range h.runner.take("worker", "job") {
			missing = slices.DeleteFunc(missing, func(value string) bool { return value == textOf(e["value"]) })
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("%d jobs were never handled, such as %v", len(missing), missing[0])
		}
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		state := h.server().want(h.t, "GET", "/v1/queues/"+historyQueue, nil)
		if matches(fields{"ready": 0.0, "leased": 0.0, "delayed": 0.0, "dead": 0.0}, state) {
			return
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("the queue is not empty: %v", state)
		}
	}
}
