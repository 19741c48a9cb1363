package tidewire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// payloads returns those of a publish, as one text.
func (f frame) payloads() string {
	if messages, ok := f["messages"].([]any); ok {
		var all []string
		for _, m := range messages {
			all = append(all, m.(map[string]any)["payload"].(string))
		}
		return strings.Join(all, " ")
	}
	text, _ := f["payload"].(string)
	return text
}

// gated returns a client that connects once the test calls begin.
func (f *fake) gated(t *testing.T) (c *Client, begin func()) {
	gate := make(chan struct{})
	var once sync.Once
	begin = func() { once.Do(func() { close(gate) }) }
	t.Cleanup(begin)
	c = f.open(t, Options{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		select {
		case <-gate:
			return new(net.Dialer).DialContext(ctx, network, address)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}})
	return c, begin
}

// TestWhatMayBeRefusedGoesAloneInItsTurn publishes, and looks at the requests in which the messages come.
func TestWhatMayBeRefusedGoesAloneInItsTurn(t *testing.T) {
	many := map[string]any{}
	for i := range mostGoodHeaders + 1 {
		many[fmt.Sprint(i)] = "x"
	}
	headers := func(h map[string]any) []PublishOption { return []PublishOption{Headers(h)} }
	for name, test := range map[string]struct {
		options []PublishOption // of the second of three messages
		want    []string
	}{
		"nothing":           {nil, []string{"1 2 3"}},
		"plain headers":     {headers(map[string]any{"trace": "00-é", "": "x"}), []string{"1 2 3"}},
		"a NUL":             {headers(map[string]any{"a": "\x00"}), []string{"1", "2", "3"}},
		"a NUL in a name":   {headers(map[string]any{"\x00": "a"}), []string{"1", "2", "3"}},
		"half a character":  {headers(map[string]any{"a": "\xed\xa0\x80"}), []string{"1", "2", "3"}},
		"a number":          {headers(map[string]any{"a": 1e300}), []string{"1", "2", "3"}},
		"something in it":   {headers(map[string]any{"a": map[string]any{}}), []string{"1", "2", "3"}},
		"large headers":     {headers(map[string]any{"a": strings.Repeat("x", mostGoodBytes)}), []string{"1", "2", "3"}},
		"many headers":      {headers(many), []string{"1", "2", "3"}},
		"a long key":        {[]PublishOption{Key(strings.Repeat("k", longestKey+1))}, []string{"1", "2", "3"}},
		"a key with a NUL":  {[]PublishOption{Key("\x00")}, []string{"1", "2", "3"}},
		"a key, not UTF-8":  {[]PublishOption{Key("\xff")}, []string{"1", "2", "3"}},
		"another, good key": {[]PublishOption{Key("k")}, []string{"1", "2", "3"}},
	} {
		t.Run(name, func(t *testing.T) {
			f, ctx := newFake(t), testContext(t)
			c, connect := f.gated(t)
			s := c.Stream("s")
			all := []*Pending{s.PublishAsync(ctx, []byte("1")), s.PublishAsync(ctx, []byte("2"), test.options...), s.PublishAsync(ctx, []byte("3"))}
			connect()
			p := f.accept(t)
			for _, want := range test.want {
				sent := p.read("publish")
				if got := sent.payloads(); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
				p.answer(sent, "ok", frame{"position": 1, "count": len(strings.Fields(sent.payloads()))})
			}
			for _, pending := range all {
				if _, err := pending.Wait(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

const smallHello = `{"type":"hello","protocol":"tidewire.v1","limits":{"message_bytes":1000,"messages":1000}}`

func TestABatchThatIsTooLargeIsSentInPartsInItsPlace(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	f.hello.Store(smallHello)
	c, connect := f.gated(t)
	s := c.Stream("s")
	var all []*Pending
	quoted := strings.Repeat(`"`, 80) // twice as large on the wire
	for i := range 8 {
		all = append(all, s.PublishAsync(ctx, fmt.Append(nil, i, quoted)))
	}
	all = append(all, c.Stream("other").PublishAsync(ctx, []byte("8")))
	connect()
	p := f.accept(t)
	next, requests := 0, 0
	for next < 9 {
		sent := p.read("publish")
		requests++
		for _, payload := range strings.Fields(sent.payloads()) {
			if want := fmt.Sprint(next); strings.TrimRight(payload, `"`) != want && payload != quoted {
				t.Fatalf("got %q, want %s", payload, want)
			} else if payload != quoted {
				next++
			}
		}
		n := 1
		if messages, ok := sent["messages"].([]any); ok {
			n = len(messages)
		}
		p.answer(sent, "ok", frame{"position": next - n + 1, "count": n})
	}
	if requests < 3 || requests > 8 {
		t.Errorf("%d requests", requests)
	}
	for i, pending := range all {
		if got, err := pending.Wait(ctx); err != nil || got.Position != int64(i+1) {
			t.Errorf("message %d: %+v, %v", i, got, err)
		}
	}
}

func TestABatchThatAnotherServerHasGotIsNotSentInParts(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	c, connect := f.gated(t)
	c.between = func(error, int) time.Duration { return 0 }
	s := c.Stream("s")
	var all []*Pending
	for i := range 8 {
		all = append(all, s.PublishAsync(ctx, fmt.Append(nil, i, strings.Repeat("x", 200))))
	}
	connect()
	p := f.accept(t)
	if n := len(p.read("publish")["messages"].([]any)); n != 8 {
		t.Fatalf("%d messages", n)
	}
	f.hello.Store(smallHello)
	p.ws.Close()
	f.accept(t)
	for _, pending := range all {
		if _, err := pending.Wait(ctx); !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("got %v", err)
		}
	}
}
