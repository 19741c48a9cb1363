package gateway_test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/websocket"
)

// panickingStreams panic at once, or later for the stream of that name. The others panic as nil.
type (
	panickingStreams struct{ silentStreams }
	panickingQueues  struct{ silentQueues }
	panickingRooms   struct{ *memoryStore }
)

func (panickingStreams) Subscribe(_ context.Context, stream string, _ engine.Start) (engine.Subscription, error) {
	if stream == "later" {
		return panickingFeed{}, nil
	}
	panic("subscribe")
}

func (panickingQueues) Consume(context.Context, string, engine.ConsumeOptions) (engine.Consumption, error) {
	return panickingFeed{}, nil
}

func (r panickingRooms) After(ctx context.Context, room string, after, upTo int64, limit, bytes int) ([]engine.RoomMessage, error) {
	panic("history")
}

// panickingFeed is a subscription, a consumption, and a source.
type panickingFeed struct{}

func (panickingFeed) Position() int64                                         { return 0 }
func (panickingFeed) Next(context.Context, int) ([]engine.Message, error)     { panic("next") }
func (panickingFeed) Receive(context.Context, int) ([]engine.Delivery, error) { panic("receive") }
func (panickingFeed) Submit(context.Context, [][]byte) error                  { panic("submit") }
func (panickingFeed) Wait(context.Context) error                              { return nil }
func (panickingFeed) Lost()                                                   {}
func (panickingFeed) Close()                                                  {}
func (panickingFeed) SetCredits(int)                                          {}
func (panickingFeed) Broken() <-chan struct{}                                 { return nil }

// TestPanic_EndsOneConnectionAlone: a panic ends only its connection, everything acquired is released, and the log has the stack.
func TestPanic_EndsOneConnectionAlone(t *testing.T) {
	t.Parallel()
	log := new(lines)
	_, addr := serve(t, gateway.Config{
		Engine: engine.Engine{Ingest: func(func(uint64)) engine.Source { return panickingFeed{} }, Streams: panickingStreams{}, Queues: panickingQueues{}, Events: silentEvents{}, Rooms: panickingRooms{newMemoryStore(t)}},
		Chat:   gateway.ChatConfig{StoredRooms: []string{"panic", "kept-*"}},
		Log:    slog.New(slog.NewJSONHandler(log, nil)),
	})
	bystander := connect(t, addr)
	for _, room := range []string{"panic", "loose"} {
		bystander.ask(`{"type":"join","room":"`+room+`","id":1}`, map[string]string{
			"panic": `{"history":0,"id":1,"position":0,"type":"ok"}`, "loose": `{"id":1,"type":"ok"}`,
		}[room])
	}
	bystander.ask(`{"type":"chat","room":"panic","text":"one","id":2}`, `{"id":2,"position":1,"type":"ok"}`)
	bystander.ask(`{"type":"join","room":"loose","presence":true,"id":3}`, `{"id":3,"type":"ok"}`)
	bystander.want(`{"type":"presence","room":"loose","count":1,"members":[]}`)
	panicked := 0
	for _, c := range []struct{ path, text string }{
		{"/ws", `{"type":"publish","stream":"panic","payload":"x","id":1}`},
		{"/ws", `{"type":"subscribe","stream":"panic","id":1}`},
		{"/ws", `{"type":"subscribe","stream":"later"}`},
		{"/ws", `{"type":"commit","stream":"orders","group":"g","position":1,"id":1}`},
		{"/ws", `{"type":"consume","queue":"jobs"}`},
		{"/ws", `{"type":"append","events":[{"type":"a","tags":[]}],"id":1}`},
		{"/ws", `{"type":"join","room":"panic","after":0}`},
		{"/ws/chat", `{"type":"join","room":"panic","after":0}`},
		{"/ws/ingest", `anything`},
	} {
		conn := dial(t, "ws://"+addr+c.path)
		if c.path != "/ws/ingest" {
			send(t, conn, `{"type":"join","room":"loose","user":"gone"}`)
		}
		send(t, conn, c.text)
		if _, err := endOf(conn); !isClose(err, websocket.StatusInternalError) {
			t.Errorf("%s of %s: ended with %v, want a Close frame with 1011", c.path, c.text, err)
		}
		conn.Abort()
		panicked++
	}
	waitMetric(t, addr, "tidewire_chat_rooms 2")
	waitMetric(t, addr, "tidewire_connections 1")
	client{t, addr}.refused("GET", "/v1/streams/orders/messages", "", 500, "internal")
	panicked++
	waitMetric(t, addr, "tidewire_panics_total "+strconv.Itoa(panicked))
	// The bystander is still served, in the same rooms.
	send(t, bystander.socket, `{"type":"chat","room":"panic","text":"two","id":"after"}`)
	for bystander.next() != `{"id":"after","position":2,"type":"ok"}` { // skip its join and leave
	}
	if text := fmt.Sprint(log.all(t)); !strings.Contains(text, "session.go") || !strings.Contains(text, "level:ERROR") {
		t.Errorf("the log lacks the stack:\n%s", text)
	}
}
