package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/websocket"
)

// TestSession_Ignored: a message without an id is not answered, whatever is wrong with it. It is counted.
func TestSession_Ignored(t *testing.T) {
	t.Parallel()
	_, _, _, addr := serveAll(t)
	c := connect(t, addr)
	for _, text := range []string{``, `null`, `[]`, `{`, `"publish"`, `{"type":"what"}`, `{"type":"publish","stream":"orders"}`, `{"id":[],"type":"ping"}`} {
		send(t, c.socket, text)
	}
	c.Queue(websocket.OpBinary, []byte("{\"type\":\"publish\",\"stream\":\"orders\",\"payload\":\"\xff\"}"))
	c.pong()
	waitMetric(t, addr, "tidewire_ws_ignored_total 8")
	waitMetric(t, addr, "tidewire_chat_ignored_total 1")
}

func TestSession_NotServed(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Ingest: (&memory{}).source}})
	c := connect(t, addr)
	for _, fields := range []string{
		`"type":"publish","stream":"orders","payload":"x"`, `"type":"subscribe","stream":"orders"`, `"type":"commit","stream":"orders","group":"g","position":1`,
		`"type":"enqueue","queue":"jobs","payload":"x"`, `"type":"consume","queue":"jobs"`, `"type":"ack","queue":"jobs","delivery":"x"`,
		`"type":"append"`, `"type":"query"`, `"type":"project"`, `"type":"subscribe","query":{},"subscription":"s"`,
	} {
		if got := c.code(`{"id":"x",` + fields + `}`); got != "not_served" {
			t.Errorf("%s: %s", fields, got)
		}
	}
	for _, request := range []string{
		"GET /v1/streams", "POST /v1/streams/s", "GET /v1/streams/s", "DELETE /v1/streams/s", "POST /v1/streams/s/messages", "GET /v1/streams/s/messages", "POST /v1/streams/s/groups/g/commit",
		"GET /v1/queues", "POST /v1/queues/q", "GET /v1/queues/q", "DELETE /v1/queues/q", "POST /v1/queues/q/messages", "POST /v1/queues/q/receive", "POST /v1/queues/q/ack", "GET /v1/events",
		"POST /v1/queues/q/nack", "POST /v1/queues/q/extend", "GET /v1/bench", "GET /v1/bench/compare?before=a&after=b", "GET /v1/bench/run", "GET /v1/schedules", "GET /v1/rooms/a/chats",
	} {
		method, path, _ := strings.Cut(request, " ")
		if path == "/v1/rooms/a/chats" {
			client{t, addr}.refused(method, path, "", 400, "room_not_stored")
			continue
		}
		client{t, addr}.refused(method, path, "", 404, "not_served")
	}
}

func TestPublish_AnswersComeAfterTheCommit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		streams, _, _, addr := serveAll(t)
		c := connect(t, addr)
		streams.hold(true)
		send(t, c.socket, `{"type":"publish","id":1,"stream":"orders","payload":"é\n","key":"k","headers":{"a":[1]}}`,
			`{"type":"publish","stream":"orders","payload":""}`,
			`{"type":"publish","id":"two","stream":"orders","messages":[{"payload":"a","key":"q"},{"payload_base64":"/w=="}]}`)
		c.pong()
		c.silent(time.Second)
		streams.hold(false)
		c.want(`{"type":"ok","id":1,"position":1}`, `{"type":"ok","id":"two","position":3,"count":2}`)
		waitMetric(t, addr, "tidewire_stored_messages_total 4")
		c.ask(`{"type":"subscribe","id":2,"stream":"orders","from":"start"}`, `{"type":"ok","id":2,"position":0}`)
		c.want(
			`{"type":"message","stream":"orders","subscription":"orders","position":1,"key":"k","headers":{"a":[1]},"time":"1970-01-01T00:16:40Z","payload":"é\n"}`,
			`{"type":"message","stream":"orders","subscription":"orders","position":2,"time":"1970-01-01T00:16:41Z","payload":""}`,
			`{"type":"message","stream":"orders","subscription":"orders","position":3,"key":"q","time":"1970-01-01T00:16:42Z","payload":"a"}`,
			`{"type":"message","stream":"orders","subscription":"orders","position":4,"time":"1970-01-01T00:16:43Z","payload_base64":"/w=="}`)
		streams.hold(true)
		send(t, c.socket, `{"type":"commit","id":1,"stream":"orders","group":"g","position":4}`)
		c.silent(time.Second)
		streams.hold(false)
		c.want(`{"type":"ok","id":1,"position":4}`)
		c.ask(`{"type":"commit","id":2,"stream":"orders","group":"g","position":3}`, `{"type":"ok","id":2,"position":4}`)
		send(t, c.socket, `{"type":"commit","stream":"orders","group":"g","position":9}`)
		c.pong()
		if offset := locked(streams, func() int64 { return streams.streams["orders"].groups["g"] }); offset != 9 {
			t.Errorf("the offset is %d, want 9", offset)
		}
	})
}

// TestSession_CloseComesAfterTheAnswers: the Close frame comes after the answers, regardless of which side closes.
func TestSession_CloseComesAfterTheAnswers(t *testing.T) {
	for name, code := range map[string]websocket.StatusCode{"client": websocket.StatusNormal, "server": websocket.StatusGoingAway, "a publish alone": websocket.StatusNormal} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				streams, queues, server, addr := serveAll(t)
				c := connect(t, addr)
				c.ask(`{"type":"subscribe","id":0,"stream":"orders"}`, `{"type":"ok","id":0,"position":0}`)
				c.ask(`{"type":"enqueue","id":0,"queue":"jobs","payload":"job"}`, `{"type":"ok","id":0,"position":1}`)
				c.ask(`{"type":"consume","id":0,"queue":"jobs"}`, `{"type":"ok","id":0}`)
				requests := []string{
					`{"type":"publish","id":1,"stream":"orders","payload":"x"}`, `{"type":"commit","id":2,"stream":"orders","group":"g","position":1}`,
					`{"type":"enqueue","id":3,"queue":"jobs","payload":"x"}`, fmt.Sprintf(`{"type":"ack","id":4,"queue":"jobs","delivery":%q}`, c.delivery().Delivery),
				}
				if name == "a publish alone" {
					requests = requests[:1]
				}
				streams.hold(true)
				queues.hold(true)
				send(t, c.socket, requests...)
				c.pong()
				if name == "server" {
					go server.Shutdown(context.Background())
				} else {
					c.StartClose(websocket.StatusNormal, "")
				}
				time.AfterFunc(time.Second, func() { streams.hold(false); queues.hold(false) })
				ids := make(map[int]bool)
				all, err := endOf(c)
				for _, text := range all {
					var got struct {
						Type string
						ID   int
					}
					if json.Unmarshal([]byte(text), &got); got.Type == "ok" {
						ids[got.ID] = true
					} else if got.Type == "error" {
						t.Errorf("got %s", text)
					}
				}
				if len(ids) != len(requests) || !isClose(err, code) {
					t.Errorf("answers %v, then %v; want %d and %d", ids, err, len(requests), code)
				}
			})
		})
	}
}

// TestSession_Chats: /ws accepts the messages of /ws/chat, and leaving all rooms does not close the connection.
func TestSession_Chats(t *testing.T) {
	t.Parallel()
	_, _, _, addr := serveAll(t)
	alice, bob := connect(t, addr), connect(t, addr)
	for _, c := range []*wire{alice, bob} {
		c.ask(`{"type":"join","room":"r","id":1}`, `{"id":1,"type":"ok"}`)
	}
	odd := `{"type":"chat","room":"r","text":"hi","stream":5,"id":2}` // a chat's other fields may have any type
	alice.ask(odd, `{"id":2,"type":"ok"}`)
	bob.want(strings.Replace(odd, `,"id":2`, "", 1))
	alice.ask(`{"type":"leave","id":3}`, `{"id":3,"type":"ok"}`)
	alice.ask(`{"type":"publish","id":4,"stream":"orders","payload":"x"}`, `{"type":"ok","id":4,"position":1}`)
}

// heldEvents answers queries when the test allows it, and appends, if these are held too.
type heldEvents struct {
	*fakeEvents
	let                chan struct{}
	appends            bool
	asked, now, atOnce atomic.Int64
}

func (h *heldEvents) Query(ctx context.Context, store string, q engine.EventQuery, r engine.EventRange) ([]engine.Event, error) {
	h.asked.Add(1)
	h.atOnce.Store(max(h.atOnce.Load(), h.now.Add(1)))
	defer h.now.Add(-1)
	select {
	case <-h.let:
	case <-ctx.Done():
	}
	return h.fakeEvents.Query(ctx, store, q, r)
}

func (h *heldEvents) Append(ctx context.Context, store string, as *engine.RequestID, events []engine.Event, condition *engine.EventCondition) (engine.AppendedEvents, error) {
	if h.appends {
		select {
		case <-h.let:
		case <-ctx.Done():
			return engine.AppendedEvents{}, ctx.Err()
		}
	}
	return h.fakeEvents.Append(ctx, store, as, events, condition)
}

// holdEvents serves events with one event of 200 KiB.
func holdEvents(t *testing.T) (*heldEvents, *gateway.Server, string) {
	data := []byte(`"` + strings.Repeat("x", 200<<10) + `"`)
	events := &heldEvents{fakeEvents: newFakeEvents(), let: make(chan struct{})}
	events.events = []engine.Event{{Position: 1, Type: "T", Data: data, JSON: true}}
	server, addr := serve(t, gateway.Config{Engine: engine.Engine{Ingest: (&memory{}).source, Events: events}})
	return events, server, addr
}

// TestSession_ManyLargeAnswers sends more requests than may run at a time: nothing is read until a slot is free, including pongs, and the
// answers that hold the slots do not wait for pongs.
func TestSession_ManyLargeAnswers(t *testing.T) {
	t.Parallel()
	const atATime, more = 64, 3
	events, _, addr := holdEvents(t)
	c := connect(t, addr)
	for range atATime + more {
		send(t, c.socket, `{"type":"query","id":1}`)
	}
	testkit.Eventually(t, "two queries are asked", func() bool { return events.asked.Load() == 2 })
	close(events.let)
	for range atATime + more {
		c.next()
	}
	if most := events.atOnce.Load(); most > 2 {
		t.Errorf("%d queries of a connection were answered at a time, want at most 2", most)
	}
}

// TestSession_QueriesWithoutClient: a client disconnects while its queries wait. Those that the store has end, and the others are not started.
func TestSession_QueriesWithoutClient(t *testing.T) {
	t.Parallel()
	events, _, addr := holdEvents(t)
	c := connect(t, addr)
	send(t, c.socket, `{"type":"join","room":"r"}`)
	for range 12 {
		send(t, c.socket, `{"type":"query","id":1}`)
	}
	testkit.Eventually(t, "two queries are asked", func() bool { return events.asked.Load() == 2 })
	waitMetric(t, addr, "tidewire_chat_rooms 1")
	c.Abort()
	waitMetric(t, addr, "tidewire_chat_rooms 0") // the server has noticed the disconnect
	waitMetric(t, addr, "tidewire_connections 0")
	if n := events.asked.Load(); n != 2 {
		t.Errorf("%d queries were begun for a client that has gone", n-2)
	}
}
