package tidewire

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// TestAnAnswerWithoutWhatItMustHaveIsAskedForAgain has a server answer each request in a wrong way, and then well.
func TestAnAnswerWithoutWhatItMustHaveIsAskedForAgain(t *testing.T) {
	event := []Event{{Type: "T"}}
	for name, test := range map[string]struct {
		kind  string
		call  func(ctx context.Context, c *Client) error
		wrong []frame
		good  frame
	}{
		"publish": {"publish", func(ctx context.Context, c *Client) error {
			_, err := c.Stream("s").Publish(ctx, nil)
			return err
		}, []frame{nil, {"position": "7"}, {"position": -1}, {"position": 1e300}, {"position": 7, "count": 2}, {"position": nil}, {"count": 1}}, frame{"position": 7}},
		"publish several": {"publish", func(ctx context.Context, c *Client) error {
			_, err := c.Stream("s").PublishAll(ctx, [][]byte{nil, nil})
			return err
		}, []frame{{"count": 2}, {"position": 7, "count": 3}}, frame{"position": 7, "count": 2}},
		"enqueue": {"enqueue", func(ctx context.Context, c *Client) error {
			_, err := c.Queue("q").Enqueue(ctx, nil)
			return err
		}, []frame{nil}, frame{"position": 7}},
		"commit": {"commit", func(ctx context.Context, c *Client) error {
			_, err := c.Stream("s").Commit(ctx, "g", 1)
			return err
		}, []frame{nil}, frame{"position": 7}},
		"subscribe": {"subscribe", func(ctx context.Context, c *Client) error {
			_, err := c.Stream("s").Subscribe(ctx)
			return err
		}, []frame{nil, {"position": -5}}, frame{"position": 7}},
		"append": {"append", func(ctx context.Context, c *Client) error {
			_, err := c.Events("").Append(ctx, event)
			return err
		}, []frame{nil, {"positions": []int{}}, {"positions": []int{1, 2}}, {"positions": 1}, {"positions": []string{"x"}}}, frame{"positions": []int{1}}},
		"query": {"query", func(ctx context.Context, c *Client) error {
			for _, err := range c.Events("").Query(ctx, Query{}) {
				return err
			}
			return nil
		}, []frame{nil, {"events": []any{}}, {"next": 1}, {"events": 1, "next": 1}, {"events": []any{frame{"position": 1}}, "next": 0}}, frame{"events": []any{}, "next": 0}},
		"project": {"project", func(ctx context.Context, c *Client) error {
			_, err := c.Events("").Project(ctx, Query{}, Query{})
			return err
		}, []frame{nil, {"counts": []int{1}}, {"counts": []int{1, 2, 3}}}, frame{"counts": []int{1, 2}, "condition": frame{"query": frame{}}}},
	} {
		t.Run(name, func(t *testing.T) {
			f, ctx := newFake(t), testContext(t)
			c, failures := hurried(t, f, Options{})
			got := begin(func() (any, error) { return nil, test.call(ctx, c) })
			for _, wrong := range test.wrong {
				p := f.accept(t)
				p.answer(p.read(test.kind), "ok", wrong)
				dropped(t, failures, "tidewire: the server has")
			}
			p := f.accept(t)
			p.answer(p.read(test.kind), "ok", test.good)
			if r := <-got; r.err != nil {
				t.Error(r.err)
			}
		})
	}
}

func TestAnAckWithoutACountEndsTheConnection(t *testing.T) {
	ctx := testContext(t)
	outcomes := make(chan Outcome, 1)
	_, _, p := working(t, ctx, func(context.Context, *Job[[]byte]) error { return nil }, 1, OnOutcome(func(_ int64, o Outcome) { outcomes <- o }))
	p.answer(p.read("ack"), "ok", nil)
	if o := <-outcomes; o != Lost {
		t.Errorf("got %s", o)
	}
}

func TestFieldsOfTheApplicationInAChatHarmNobody(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	c := f.open(t, Options{})
	joined := begin(func() (*Membership, error) { return c.Room("r").Join(ctx) })
	p := f.accept(t)
	p.answer(p.read("join"), "ok", nil)
	m := (<-joined).value
	for _, fields := range []string{`"headers":5`, `"payload":{}`, `"payload_base64":"!"`, `"position":"x"`, `"partition":[]`, `"count":"many"`, `"delivery":1`, `"attempt":"x"`} {
		p.send(`{"type":"chat","room":"r","user":"u",` + fields + `,"text":"t"}`)
		e, err := m.next(ctx)
		if chat, ok := e.(*Chat); err != nil || !ok || chat.Text != "t" {
			t.Fatalf("%s: got %#v, %v", fields, e, err)
		}
	}
}

// Values in a random message for what the client has last subscribed to and asked for.
const (
	subscribed = "the subscription"
	asked      = "the id"
)

// values are what a field of a random message has.
var values = []string{
	subscribed, subscribed, subscribed, asked, asked, asked, asked,
	`0`, `1`, `-1`, `7`, `1.5`, `1e300`, `1e999`, `9223372036854775807`, `18446744073709551616`, `"s1"`, `"s2"`, `"q"`, `"r"`, `"x"`, `""`, `"\u0000"`, `"\ud800"`, `null`, `true`,
	`[]`, `[1,2]`, `["a"]`, `{}`, `{"a":{"b":[]}}`, `{"position":1,"type":"T"}`, `"2026-11-26T08:00:00Z"`, `"busy"`, `"too_old"`, `"token_expired"`, `"lease_lost"`,
}

var (
	kinds = []string{
		"ok", "ok", "ok", "error", "error", "message", "position", "event", "assigned", "revoked", "parked", "delivery", "chat", "gap", "presence", "history_lost", "expiring",
		"hello", "pong", "notice", "", "what",
	}
	names = []string{
		"id", "subscription", "queue", "room", "position", "count", "partition", "partitions", "attempt", "delivery", "key", "time", "headers", "payload", "payload_base64", "duplicate",
		"code", "retryable", "retry_after_ms", "oldest", "last", "up_to", "missed", "members", "joined", "left", "events", "next", "positions", "counts", "condition", "event", "lost",
		"failed", "user", "text", "limits",
	}
)

// randomFrame returns a message of a server that is out of its mind.
func randomFrame(r *rand.Rand, p *peer) string {
	text := `{"type":"` + kinds[r.IntN(len(kinds))] + `"`
	if r.IntN(2) == 0 {
		text += `,"subscription":` + subscribed + `,"id":` + asked + `,"position":1,"queue":"q","room":"r"`
	}
	for range r.IntN(12) {
		text += `,"` + names[r.IntN(len(names))] + `":` + values[r.IntN(len(values))]
	}
	text += "}"
	text = strings.ReplaceAll(text, subscribed, p.last("subscription", `"s1"`))
	text = strings.ReplaceAll(text, asked, p.last("id", `1`))
	switch r.IntN(12) {
	case 0:
		return text[:r.IntN(len(text))]
	case 1:
		at := r.IntN(len(text))
		return text[:at] + string(rune(r.IntN(128))) + text[at:]
	}
	return text
}

// TestRandomFrames has a server send anything. Nothing of it may end the program, and the client ends when it is told to.
func TestRandomFrames(t *testing.T) {
	frames := 20000
	if testing.Short() {
		frames = 2000
	}
	f := newFake(t)
	c, _ := hurried(t, f, Options{Timeout: time.Second})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go use(ctx, c)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for sent := 0; sent < frames; {
		p := f.accept(t)
		go p.obeySometimes(rand.New(rand.NewPCG(seed, uint64(sent))))
		for sent < frames {
			kind, text := websocket.TextMessage, []byte(randomFrame(r, p))
			if r.IntN(4) == 0 && json.Valid(text) {
				kind, text = websocket.BinaryMessage, appendJSONAsCBOR(nil, text)
				if r.IntN(4) == 0 {
					text[r.IntN(len(text))] ^= byte(1 << r.IntN(8))
				}
			}
			sent++
			if p.write(kind, text) != nil {
				break
			}
		}
		p.ws.Close()
	}
	cancel()
	c.Close()
}

func (p *peer) write(kind int, text []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ws.WriteMessage(kind, text)
}

// last returns what the last message of the client with that field had in it.
func (p *peer) last(name, otherwise string) string {
	if text, ok := p.seen.Load(name); ok {
		return text.(string)
	}
	return otherwise
}

// obeySometimes answers half of the requests well enough that something begins.
func (p *peer) obeySometimes(r *rand.Rand) {
	for {
		var f frame
		if err := p.ws.ReadJSON(&f); err != nil {
			return
		}
		for _, name := range []string{"subscription", "id"} {
			if f[name] != nil {
				text, _ := json.Marshal(f[name])
				p.seen.Store(name, string(text))
			}
		}
		if f["id"] != nil && r.IntN(2) == 0 {
			p.answer(f, "ok", frame{"position": 1, "events": []any{}, "next": 1, "positions": []int{1}, "counts": []int{1}})
		}
	}
}

// use does all that a program can do, again and again.
func use(ctx context.Context, c *Client) {
	loop := func(f func()) {
		go func() {
			for ctx.Err() == nil {
				f()
				time.Sleep(time.Millisecond) // pace: of a program that does all at once
			}
		}()
	}
	codec := strings.Repeat("x", 10)
	loop(func() { c.Stream("s").Publish(ctx, []byte(codec)) })
	loop(func() { c.Queue("q").Enqueue(ctx, nil) })
	loop(func() { c.Events("").Append(ctx, []Event{{Type: "T"}}) })
	loop(func() { c.Events("").Project(ctx, Query{}) })
	loop(func() {
		for range c.Events("").Query(ctx, Query{}) {
		}
	})
	loop(func() {
		for range c.Events("").Follow(ctx, Query{}) {
		}
	})
	loop(func() {
		for range c.Stream("s").Messages(ctx, OnGap(func(Gap) {})) {
		}
	})
	loop(func() {
		for range c.Stream("s").Messages(ctx, Group("g"), Share(), OnAssigned(func([]int) {}), OnRevoked(func([]int) {})) {
		}
	})
	loop(func() {
		c.Queue("q").Work(ctx, func(context.Context, *Job[[]byte]) error { return nil })
	})
	loop(func() {
		m, err := c.Room("r").Join(ctx, WithPresence())
		if err != nil {
			return
		}
		defer m.Leave()
		for range m.Events(ctx) {
		}
	})
}

func TestMessagesForASubscriptionOfAnotherKindEndTheConnection(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	c, failures := hurried(t, f, Options{})
	begin(func() (*Subscription[[]byte], error) { return c.Stream("s").Subscribe(ctx, After(0)) })
	p := f.accept(t)
	p.send(`{"type":"event","subscription":` + mustJSON(p.read("subscribe")["subscription"]) + `,"event":{"position":1,"type":"T"}}`)
	dropped(t, failures, "another kind")
}

func mustJSON(value any) string {
	text, err := json.Marshal(value)
	return string(must(text, err))
}
