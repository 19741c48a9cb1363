package tidewire

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

func TestCloseFailsWhatPausesAfterARefusal(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	c := f.open(t, Options{})
	got := begin(func() (Published, error) { return c.Stream("s").Publish(ctx, []byte("x")) })
	p := f.accept(t)
	p.answer(p.read("publish"), "error", frame{"code": "busy", "message": "later", "retryable": true, "retry_after_ms": 31536000000})
	p.reached(t, c)
	now, cancel := context.WithCancel(ctx)
	cancel()
	c.Shutdown(now)
	select {
	case r := <-got:
		var e *Error
		if !errors.As(r.err, &e) || e.Code != "closed" {
			t.Errorf("got %v, want closed", r.err)
		}
	case <-time.After(patience):
		t.Error("the call waits on after the end of the client")
	}
}

func TestPausesOfTheServerAreAtMostADay(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"-5": 0, "-1e300": 0, "NaN": 0, "0": 0, "1500": 1500 * time.Millisecond,
		"86400001": day, "9223372036854775807": day, "99999999999999999999": day, "1e999": day,
	} {
		if wait := pauseAfter(&websocket.CloseError{Code: 1001, Text: "bye retry_after_ms=" + text}, 0); wait != want {
			t.Errorf("close with %s: waits %s, want %s", text, wait, want)
		}
	}
	for text, want := range map[string]time.Duration{"-5": 0, "-1e300": 0, "0": 0, "1500": 1500 * time.Millisecond, "86400001": day, "1e300": day, "9223372036854775807": day} {
		var w wireError
		if err := json.Unmarshal([]byte(`{"code":"busy","retry_after_ms":`+text+`}`), &w); err != nil {
			t.Fatal(err)
		}
		if wait := w.base("1").RetryAfter; wait != want {
			t.Errorf("%s: waits %s, want %s", text, wait, want)
		}
	}
}

func TestCallsThatHaveEndedAreNotKept(t *testing.T) {
	ctx := testContext(t)
	c, err := Open("ws://localhost:1/ws", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3000 {
		call, cancel := context.WithTimeout(ctx, 50*time.Microsecond)
		c.Stream("s").Publish(call, make([]byte, 100))
		cancel()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.ready) > 1500 {
		t.Errorf("%d requests that have ended are kept", len(c.ready))
	}
}

func TestCallsThatNobodyAnswersAreNotKept(t *testing.T) {
	f, ctx := newFake(t), testContext(t)
	c := f.open(t, Options{})
	begin(func() (Published, error) { return c.Stream("s").Publish(ctx, []byte("x")) })
	p := f.accept(t)
	go func() {
		for {
			if _, _, err := p.ws.ReadMessage(); err != nil {
				return
			}
		}
	}()
	for range 300 {
		call, cancel := context.WithTimeout(ctx, time.Millisecond)
		var all sync.WaitGroup
		for range 3 {
			all.Add(1)
			go func() {
				defer all.Done()
				c.Stream("s").Publish(call, make([]byte, 100))
			}()
		}
		all.Wait()
		cancel()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sent) > 30 {
		t.Errorf("%d requests that have ended are kept", len(c.sent))
	}
}

func TestManyArraysInsideEachOtherEndTheConnectionAlone(t *testing.T) {
	deep := make([]byte, 8<<20)
	for i := range deep {
		deep[i] = 0x81
	}
	if _, err := cborToJSON(deep); err == nil {
		t.Error("no error")
	}
	for _, data := range [][]byte{
		{0xbf}, {0xa1}, {0xbb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {0xa1, 0x62, 'i', 'd', 0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		{0xa1, 0x61, 'x', 0x7b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {0xa1, 0x7b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		{0xa1, 0x61, 'x', 0x1c}, {0xa1, 0x61, 'x', 0xff}, append([]byte{0xa1, 0x61, 'x'}, deep...), append([]byte{0xa1, 0x67, 'h', 'e', 'a', 'd', 'e', 'r', 's'}, deep...),
	} {
		var in incoming
		if err := in.cborFields(data); err == nil {
			t.Errorf("%x: no error", data[:min(len(data), 20)])
		}
	}
	for _, text := range []string{
		"", "[", "{", `{"`, `{"a"`, `{"a":`, `{"a":}`, `{"payload":"\`, `{"payload":"\u12"}`, `{"headers":[1]}`, `{"id":1e999}`, `{"headers":null,"position":-1e300}`, `{"payload":5}`,
	} {
		var in incoming
		in.fields([]byte(text))
	}
}
