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
