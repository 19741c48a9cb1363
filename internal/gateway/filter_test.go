package gateway_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
)

// mixed adds messages with the keys k0 to k4 in turn, and in every second one a header.
func mixed(streams *fakeStreams, count int) {
	streams.change(func() {
		s := streams.streams["orders"]
		for range count {
			n := len(s.messages)
			m := engine.Message{Position: int64(n) + 1, Key: fmt.Sprint("k", n%5), Payload: []byte("x")}
			if n%2 == 0 {
				m.Headers = json.RawMessage(`{"kind": "even", "n": 1, "zone": "a"}`)
			}
			s.messages = append(s.messages, m)
		}
	})
}

// pushed is what a server sends to a subscription.
type pushed struct {
	Type, Subscription, Payload string
	Position                    int64
}

// filtered reads what a filter leaves of positions up to last, and how often it is told how far the server has read.
func (w *wire) filtered(subscription string, last int64) (got []int64, told int) {
	w.t.Helper()
	for at := int64(0); at < last; {
		var p pushed
		line := w.next()
		if err := json.Unmarshal([]byte(line), &p); err != nil || p.Subscription != subscription || p.Position <= at {
			w.t.Fatalf("%s after %d", line, at)
		}
		switch at = p.Position; p.Type {
		case "message":
			got = append(got, p.Position)
		case "position":
			told++
		default:
			w.t.Fatal(line)
		}
	}
	return got, told
}

func TestFilter_WhatComes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		streams, _, _, addr := serveAll(t)
		mixed(streams, 20)
		for filter, want := range map[string]string{
			`"keys":["k1"]`:                         "[2 7 12 17]",
			`"keys":["k3","k1","k1"]`:               "[2 4 7 9 12 14 17 19]",
			`"keys":["none"]`:                       "[]",
			`"headers":{"kind":"even","zone":"a"}`:  "[1 3 5 7 9 11 13 15 17 19]",
			`"headers":{"kind":"even","zone":"b"}`:  "[]",
			`"headers":{"n":"1"}`:                   "[]",
			`"keys":["k1"],"headers":{"zone":"a"}`:  "[7 17]",
			`"keys":null,"headers":{"kind":"even"}`: "[1 3 5 7 9 11 13 15 17 19]",
		} {
			c := connect(t, addr)
			c.ask(`{"type":"subscribe","id":1,"stream":"orders","subscription":"f","after":0,`+filter+`}`, `{"type":"ok","id":1,"position":0}`)
			if got, _ := c.filtered("f", 20); fmt.Sprint(got) != want {
				t.Errorf("%s: %v, want %s", filter, got, want)
			}
			c.Abort()
		}
	})
}

// TestFilter_Credits: what the filter drops costs none.
func TestFilter_Credits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		streams, _, _, addr := serveAll(t)
		mixed(streams, 50)
		c := connect(t, addr)
		c.ask(`{"type":"subscribe","id":1,"stream":"orders","after":0,"credits":3,"keys":["k1"]}`, `{"type":"ok","id":1,"position":0}`)
		if got, _ := c.filtered("orders", 12); fmt.Sprint(got) != "[2 7 12]" {
			t.Errorf("got %v", got)
		}
		c.silent(5 * time.Second)
		send(t, c.socket, `{"type":"credit","subscription":"orders","n":100}`)
		if got, _ := c.filtered("orders", 50); fmt.Sprint(got) != "[17 22 27 32 37 42 47]" {
			t.Errorf("got %v", got)
		}
		c.ask(`{"type":"unsubscribe","id":2,"subscription":"orders"}`, `{"type":"ok","id":2}`)
		mixed(streams, 5)
		c.silent(5 * time.Second)
	})
}

// TestFilter_PositionsAreRare: at most one a second, and the last one comes.
func TestFilter_PositionsAreRare(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		streams, _, _, addr := serveAll(t)
		began := time.Now()
		c := connect(t, addr)
		c.ask(`{"type":"subscribe","id":1,"stream":"orders","after":0,"keys":["none"]}`, `{"type":"ok","id":1,"position":0}`)
		go func() {
			for range 40 {
				mixed(streams, 10)
				time.Sleep(100 * time.Millisecond)
			}
		}()
		_, told := c.filtered("orders", 400)
		if seconds := int(time.Since(began) / time.Second); told > seconds+1 || told < seconds-1 {
			t.Errorf("%d positions in %d s", told, seconds)
		}
	})
}

// TestFilter_Resumed: clients with the same filter and with others, which break off in the middle of everything and resume after the last position at
// this or another server, get each message that the filter takes once, in order, while messages come.
func TestFilter_Resumed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const messages = 1000
		streams := newFakeStreams(t, "orders")
		var addrs []string
		for range 2 {
			_, addr := serve(t, gateway.Config{Engine: engine.Engine{Streams: streams}})
			addrs = append(addrs, addr)
		}
		var following sync.WaitGroup
		for i, f := range []struct {
			filter string
			takes  func(position int64) bool
		}{
			{`,"keys":["k1","k2"]`, func(p int64) bool { return (p-1)%5 == 1 || (p-1)%5 == 2 }}, {`,"keys":["k2","k1"]`, func(p int64) bool { return (p-1)%5 == 1 || (p-1)%5 == 2 }},
			{`,"keys":["k2"]`, func(p int64) bool { return (p-1)%5 == 2 }}, {`,"keys":["k2"]`, func(p int64) bool { return (p-1)%5 == 2 }}, {`,"keys":["none"]`, func(int64) bool { return false }},
			{``, func(int64) bool { return true }}, {``, func(int64) bool { return true }}, {`,"headers":{"zone":"a"}`, func(p int64) bool { return p%2 == 1 }},
		} {
			following.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(i)))
				var got, want []int64
				for after := int64(0); after < messages; {
					c := connect(t, addrs[random.IntN(2)])
					credits := 1 + random.IntN(100)
					send(t, c.socket, fmt.Sprintf(`{"type":"subscribe","stream":"orders","after":%d,"credits":%d%s}`, after, credits, f.filter))
					for range random.IntN(credits) + 1 {
						if after == messages {
							break
						}
						var p pushed
						line := c.next()
						if err := json.Unmarshal([]byte(line), &p); err != nil || p.Type != "message" && p.Type != "position" || p.Position <= after {
							t.Errorf("%s after %d with %s", line, after, f.filter)
							return
						}
						if after = p.Position; p.Type == "message" {
							got = append(got, after)
						}
					}
					c.Abort()
				}
				for p := range int64(messages) {
					if f.takes(p + 1) {
						want = append(want, p+1)
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s: got %d messages, want %d", f.filter, len(got), len(want))
				}
			})
		}
		for n := 0; n < messages; n += 20 {
			mixed(streams, 20)
			time.Sleep(20 * time.Millisecond)
		}
		following.Wait()
	})
}
