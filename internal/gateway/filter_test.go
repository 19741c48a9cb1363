package gateway_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
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
