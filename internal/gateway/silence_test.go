package gateway_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
)

// slowStreams and slowRooms delay publishes until the test releases them.
type slowStreams struct {
	*fakeStreams
	let chan struct{}
}

func (s slowStreams) Publish(ctx context.Context, stream string, as *engine.RequestID, m []engine.Message, done func(engine.Place, error)) error {
	<-s.let
	return s.fakeStreams.Publish(ctx, stream, as, m, done)
}

type slowRooms struct {
	*memoryStore
	let chan struct{}
}

func (s slowRooms) Append(ctx context.Context, room string, as *engine.RequestID, payload []byte, done func(int64, bool, error)) error {
	<-s.let
	return s.memoryStore.Append(ctx, room, as, payload, done)
}

// TestSilence_StoreIsBusy: nothing is read while the store is at its limit. That
// time does not count as silence of the client, even if it is longer than the
// timeout.
func TestSilence_StoreIsBusy(t *testing.T) {
	t.Parallel()
	const timeout = time.Second
	for path, c := range map[string]struct {
		first, second string
		answers       []string
	}{
		"/ws": {
			`{"type":"publish","id":1,"stream":"orders","payload":"a"}`, `{"type":"publish","id":2,"stream":"orders","payload":"b"}`,
			[]string{`{"type":"ok","id":1,"position":1}`, `{"type":"ok","id":2,"position":2}`},
		},
		"/ws/chat": {
			`{"type":"chat","id":1,"text":"a"}`, `{"type":"chat","id":2,"text":"b"}`,
			[]string{`{"id":1,"position":1,"type":"ok"}`, `{"id":2,"position":2,"type":"ok"}`},
		},
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			let := make(chan struct{})
			streams := slowStreams{newFakeStreams(t, "orders"), let}
			_, addr := serve(t, gateway.Config{
				Engine: engine.Engine{Ingest: (&memory{}).source, Streams: streams, Rooms: slowRooms{newMemoryStore(t), let}},
				Chat:   gateway.ChatConfig{PongTimeout: timeout, StoredRooms: []string{"*"}},
			})
			w := &wire{Conn: dial(t, "ws://"+addr+path), t: t}
			send(t, w.Conn, c.first)
			time.Sleep(timeout + timeout/4)
			send(t, w.Conn, c.second)
			close(let)
			w.want(c.answers...)
		})
	}
}

// TestChat_WithFieldsOfAJoin joins the public room by a chat with a field of
// the application: the field does not request history.
func TestChat_WithFieldsOfAJoin(t *testing.T) {
	t.Parallel()
	store := newMemoryStore(t)
	text := []byte(`{"type":"chat","text":"` + strings.Repeat("x", 50<<10) + `"}`)
	for range 10 {
		store.rooms, store.stored = append(store.rooms, "public"), append(store.stored, text)
	}
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Rooms: store, RoomsHead: 10}, Only: gateway.Chat, Chat: gateway.ChatConfig{StoredRooms: []string{"*"}}})
	c := &wire{Conn: dial(t, "ws://"+addr+"/ws"), t: t}
	c.ask(`{"type":"chat","id":1,"text":"hello","history":10}`, `{"id":1,"position":11,"type":"ok"}`)
}

// TestShutdown_BodyThatDoesNotCome: a client that has announced a body and does
// not send it does not delay the rest of a stop.
func TestShutdown_BodyThatDoesNotCome(t *testing.T) {
	t.Parallel()
	streams := newFakeStreams(t, "orders")
	server, addr := serve(t, gateway.Config{
		Engine:       engine.Engine{Ingest: (&memory{}).source, Streams: streams},
		DrainTimeout: 20 * time.Millisecond,
	})
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "POST /v1/streams/orders/messages HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n")
	answer := bufio.NewReader(c)
	if line, err := answer.ReadString('\n'); err != nil || !strings.Contains(line, "100") { // it waits for the body
		t.Fatalf("got %q, %v", line, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	answer.ReadString('\n')
	if line, err := answer.ReadString('\n'); err != nil || !strings.Contains(line, "503") {
		t.Errorf("the request is answered with %q, %v", line, err)
	}
}
