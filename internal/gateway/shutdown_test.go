package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/websocket"
)

// answersThenClose reads to the end, and returns the codes of errors by their ids.
func answersThenClose(t *testing.T, c *websocket.Conn) (map[string]string, error) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	codes := make(map[string]string)
	for {
		messages, err := read(c)
		for _, m := range messages {
			var a struct {
				ID   int
				Code string
			}
			if json.Unmarshal(m.Payload, &a) != nil {
				t.Errorf("got %s", m.Payload)
			}
			codes[strconv.Itoa(a.ID)] = a.Code
		}
		if err != nil {
			var closed *websocket.CloseError
			if errors.As(err, &closed) {
				c.Close(closed.Code, "")
			}
			return codes, err
		}
	}
}

// TestShutdown_StoresHaveGivenUp: requests that the stores gave up are answered
// before the Close frame.
func TestShutdown_StoresHaveGivenUp(t *testing.T) {
	t.Parallel()
	streams, _, server, addr := serveAll(t)
	c := connect(t, addr)
	streams.hold(true)
	send(t, c.Conn, `{"type":"publish","id":1,"stream":"orders","payload":"x"}`, `{"type":"commit","id":2,"stream":"orders","group":"g","position":1}`,
		`{"type":"publish","id":3,"stream":"orders","payload":"x"}`)
	c.ask(`{"type":"ping","ts":1}`, `{"ts":1,"type":"pong"}`)
	stopped := make(chan error, 1)
	go func() { stopped <- server.Shutdown(context.Background()) }()
	waitFor(t, func() bool { status, _ := client{t, addr}.do("GET", "/v1/streams", ""); return status == 503 }, "the stop does not begin")
	streams.change(func() { streams.fail = engine.ErrOutcomeUnknown })
	streams.hold(false)
	codes, err := answersThenClose(t, c.Conn)
	if want := map[string]string{"1": "outcome_unknown", "2": "outcome_unknown", "3": "outcome_unknown"}; !maps.Equal(codes, want) || !isClose(err, websocket.StatusGoingAway) {
		t.Errorf("answers %v, then %v", codes, err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestShutdown_WaitsAreGivenUp: requests that wait for a store in a goroutine are
// answered, and the connection ends with a closing handshake.
func TestShutdown_WaitsAreGivenUp(t *testing.T) {
	t.Parallel()
	streams, _, server, addr := serveAll(t)
	c := connect(t, addr)
	streams.hold(true)
	t.Cleanup(func() { streams.hold(false) })
	send(t, c.Conn, `{"type":"commit","id":1,"stream":"orders","group":"g","position":1}`, `{"type":"commit","id":2,"stream":"orders","group":"g","position":1}`)
	c.ask(`{"type":"ping","ts":1}`, `{"ts":1,"type":"pong"}`)
	stopped := make(chan error, 1)
	go func() { stopped <- server.Shutdown(context.Background()) }()
	waitFor(t, func() bool { status, _ := client{t, addr}.do("GET", "/v1/streams", ""); return status == 503 }, "the stop does not begin")
	server.GiveUp()
	codes, err := answersThenClose(t, c.Conn)
	if want := map[string]string{"1": "outcome_unknown", "2": "outcome_unknown"}; !maps.Equal(codes, want) || !isClose(err, websocket.StatusGoingAway) {
		t.Errorf("answers %v, then %v", codes, err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// lastRead is a reader whose server gives up as it answers.
type lastRead struct {
	engine.Streams
	giveUp func()
}

func (r *lastRead) Read(ctx context.Context, stream string, key *string, after int64, limit int) ([]engine.Message, error) {
	messages, err := r.Streams.Read(ctx, stream, key, after, limit)
	r.giveUp()
	<-ctx.Done()
	return messages, err
}

// TestShutdown_PageIsGivenUp: a stop does not wait until a page is encoded as
// JSON.
func TestShutdown_PageIsGivenUp(t *testing.T) {
	t.Parallel()
	streams := newFakeStreams(t, "orders")
	reader := &lastRead{Streams: streams}
	server, addr := serve(t, gateway.Config{Engine: engine.Engine{Streams: reader}})
	reader.giveUp = server.GiveUp
	c := client{t, addr}
	if status, text := c.do("POST", "/v1/streams/orders/messages", `{"payload":"x"}`); status != 200 {
		t.Fatalf("publish: %d %s", status, text)
	}
	if status, text := c.do("GET", "/v1/streams/orders/messages", ""); status != 503 || !strings.Contains(text, "stopping") {
		t.Errorf("a read that was given up: %d %s", status, text)
	}
}
