package gateway_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/tidewire/tidewire/websocket"
)

// cborWire is a client that speaks CBOR, with a library that is not the server's.
type cborWire struct{ *wire }

// dialCBOR opens a connection on /ws, and reads the hello.
func dialCBOR(t *testing.T, addr string) *cborWire {
	t.Helper()
	w := &cborWire{dialProtocol(t, addr, "tidewire.v1.cbor")}
	if hello := w.next(); hello["type"] != "hello" || hello["protocol"] != "tidewire.v1.cbor" || hello["authenticated"] != true {
		t.Fatalf("got %v", hello)
	}
	return w
}

// dialProtocol opens a connection on /ws with a subprotocol.
func dialProtocol(t *testing.T, addr, protocol string) *wire {
	t.Helper()
	return &wire{socket: dialAs(t, "ws://"+addr+"/ws", websocket.Config{Subprotocols: []string{protocol}}), t: t}
}

func (w *cborWire) send(fields map[string]any) {
	w.t.Helper()
	b, err := cbor.Marshal(fields)
	if err != nil {
		w.t.Fatal(err)
	}
	w.raw(b)
}

func (w *cborWire) raw(b []byte) {
	w.t.Helper()
	recorded.sent(w.socket, websocket.OpBinary, b)
	if err := errors.Join(w.Queue(websocket.OpBinary, b), w.Flush()); err != nil {
		w.t.Fatal(err)
	}
}

// next returns the next message, which has to be CBOR.
func (w *cborWire) next() (fields map[string]any) {
	w.t.Helper()
	if text := w.wire.next(); cbor.Unmarshal([]byte(text), &fields) != nil || text[0] == '{' {
		w.t.Fatalf("%q is no CBOR", text)
	}
	return fields
}

// ask sends a request, and returns its answer.
func (w *cborWire) ask(fields map[string]any) map[string]any {
	w.t.Helper()
	w.send(fields)
	return w.next()
}

func TestCBOR_Everything(t *testing.T) {
	t.Parallel()
	_, _, _, addr := serveAll(t)
	w := dialCBOR(t, addr)
	type m = map[string]any
	for _, row := range []struct{ request, answer m }{
		{m{"type": "publish", "id": "a", "stream": "orders", "payload": []byte{0, 0xff}, "headers": m{"n": 1, "deep": m{"list": []any{"x", true, nil, 1.5}}}, "key": "k"}, m{"type": "ok", "id": "a", "position": uint64(1)}},
		{m{"type": "publish", "id": -5, "stream": "orders", "messages": []any{m{"payload": "text"}, m{"payload": []byte("bytes")}}}, m{"type": "ok", "id": int64(-5), "position": uint64(2), "count": uint64(2)}},
		{m{"type": "publish", "id": 1.5, "stream": "orders"}, m{"type": "error", "id": 1.5, "code": "malformed", "message": "payload: want a string here, or in payload_base64", "retryable": false}},
		{m{"type": "publish", "id": 2, "stream": "orders", "payload": 7}, m{"type": "error", "id": uint64(2), "code": "malformed", "message": "payload: want a byte string or a text", "retryable": false}},
		{m{"type": "publish", "id": 3, "stream": "orders", "payload": "x", "paylod": 1}, m{"type": "error", "id": uint64(3), "code": "unknown_field", "message": "paylod: publish has no such field", "field": "paylod", "retryable": false}},
		{m{"type": "join", "id": 4, "room": "r"}, m{"type": "error", "id": uint64(4), "code": "malformed", "message": "join: want JSON, in a text message", "retryable": false}},
		{m{"type": "append", "id": 5, "events": []any{m{"type": "A", "tags": []string{"t"}, "data": m{"x": []int{1}}}, m{"type": "B", "data": []byte{1, 2}, "id": "e"}}}, m{"type": "ok", "id": uint64(5), "positions": []any{uint64(1), uint64(2)}}},
	} {
		if got := w.ask(row.request); !reflect.DeepEqual(got, row.answer) {
			t.Errorf("%v:\ngot  %v\nwant %v", row.request, got, row.answer)
		}
	}
	w.send(m{"type": "subscribe", "id": 6, "stream": "orders", "after": 0.0})
	if got := w.next(); got["type"] != "ok" {
		t.Fatal(got)
	}
	for _, want := range []m{
		{"position": uint64(1), "payload": []byte{0, 0xff}, "key": "k", "headers": map[any]any{"n": uint64(1), "deep": map[any]any{"list": []any{"x", true, nil, 1.5}}}},
		{"position": uint64(2), "payload": []byte("text")}, {"position": uint64(3), "payload": []byte("bytes")},
	} {
		got := w.next()
		for name, value := range want {
			if !reflect.DeepEqual(got[name], value) {
				t.Errorf("%s of %v is %v, want %v", name, got, got[name], value)
			}
		}
	}
	events, _ := w.ask(m{"type": "query", "id": 7})["events"].([]any)
	if len(events) != 2 {
		t.Fatal(events)
	}
	if e, _ := events[1].(map[any]any); !reflect.DeepEqual(e["data"], []byte{1, 2}) || e["id"] != "e" || e["type"] != "B" {
		t.Errorf("got %v", e)
	}
	for i := range events { // what was read can be sent back
		if got := w.ask(m{"type": "append", "id": 8 + i, "events": []any{events[i]}}); got["type"] != "ok" {
			t.Errorf("%v: %v", events[i], got)
		}
	}
	// JSON goes on, and is answered with JSON.
	w.wire.ask(`{"type":"enqueue","id":10,"queue":"jobs","payload":"x"}`, `{"type":"ok","id":10,"position":1}`)
	w.send(m{"type": "consume", "id": 11, "queue": "jobs"})
	w.next()
	d := w.next()
	if !reflect.DeepEqual(d["payload"], []byte("x")) {
		t.Errorf("got %v", d)
	}
	if got := w.ask(m{"type": "ack", "id": 12, "queue": "jobs", "delivery": d["delivery"]}); got["count"] != uint64(1) {
		t.Errorf("got %v", got)
	}
}

// TestHello: a client that names a subprotocol learns what the server is, and again after auth. Another one gets nothing unasked.
func TestHello(t *testing.T) {
	t.Parallel()
	_, _, _, addr := serveAll(t)
	w := dialProtocol(t, addr, "tidewire.v1")
	var hello struct {
		Type, Protocol, Version string
		NowMS                   int64 `json:"now_ms"`
		Authenticated           bool
		Features                []string
		Limits                  map[string]int64
	}
	if text := w.next(); json.Unmarshal([]byte(text), &hello) != nil || hello.Type != "hello" || hello.Protocol != "tidewire.v1" || !hello.Authenticated ||
		hello.Limits["message_bytes"] != 256<<10 || hello.Limits["repeat_ms"] != 600_000 || fmt.Sprint(hello.Features) != "[rooms streams queues events]" {
		t.Errorf("got %s", text)
	}
	if age := time.Now().UnixMilli() - hello.NowMS; age < 0 {
		t.Errorf("the server's clock is %d ms ahead of this test on the same machine", -age)
	}
	c := serveClosed(t, nil)
	w = dialProtocol(t, c.addr, "tidewire.v1")
	if text := w.next(); !strings.Contains(text, `"authenticated":false`) {
		t.Errorf("got %s", text)
	}
	send(t, w.socket, fmt.Sprintf(`{"id":1,"type":"auth","token":%q}`, tokenOf(t, "ann", time.Hour, "publish stream:orders")))
	if text := w.next(); !strings.Contains(text, `"user":"ann"`) || !strings.Contains(text, `"hello":{`) || !strings.Contains(text, `"authenticated":true`) {
		t.Errorf("got %s", text)
	}
	connect(t, addr).silent(50 * time.Millisecond)
}
