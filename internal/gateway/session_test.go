package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/websocket"
)

// serveAll serves all endpoints, with a stream orders and a queue jobs.
func serveAll(t *testing.T) (*fakeStreams, *fakeQueues, *gateway.Server, string) {
	t.Helper()
	streams, queues := newFakeStreams(t, "orders"), newFakeQueues(t, "jobs")
	server, addr := serve(t, gateway.Config{
		Engine:     engine.Engine{Ingest: (&memory{}).source, Streams: streams, Queues: queues},
		Sessions:   gateway.SessionConfig{MaxSubscriptions: 3},
		MaxMessage: 256 << 10,
	})
	return streams, queues, server, addr
}

// wire is a client that reads one message at a time.
type wire struct {
	*websocket.Conn
	t    *testing.T
	read []string
}

func connect(t *testing.T, addr string) *wire {
	t.Helper()
	return &wire{Conn: dial(t, "ws://"+addr+"/ws"), t: t}
}

// next returns the next message.
func (w *wire) next() string {
	w.t.Helper()
	w.SetReadDeadline(time.Now().Add(patience))
	for len(w.read) == 0 {
		messages, err := read(w.Conn)
		for _, m := range messages {
			w.read = append(w.read, untimed(m.Payload))
		}
		if err != nil && len(w.read) == 0 {
			w.t.Fatalf("reading: %v", err)
		}
	}
	first := w.read[0]
	w.read = w.read[1:]
	return first
}

// want expects exactly these messages, in this order.
func (w *wire) want(lines ...string) {
	w.t.Helper()
	for _, line := range lines {
		if got := w.next(); got != line {
			w.t.Fatalf("got %s\nwant %s", got, line)
		}
	}
}

// ask sends a request and expects one answer.
func (w *wire) ask(text, answer string) {
	w.t.Helper()
	send(w.t, w.Conn, text)
	w.want(answer)
}

// silent expects no message for a while.
func (w *wire) silent(d time.Duration) {
	w.t.Helper()
	w.SetReadDeadline(time.Now().Add(d))
	messages, err := read(w.Conn)
	if len(w.read)+len(messages) > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		w.t.Fatalf("got %d messages and %v, want silence", len(w.read)+len(messages), err)
	}
}

// code returns the code of an error with that id.
func (w *wire) code(text string) string {
	w.t.Helper()
	send(w.t, w.Conn, text)
	var got struct {
		Type, Code, Message string
		ID                  any
	}
	answer := w.next()
	if err := json.Unmarshal([]byte(answer), &got); err != nil {
		w.t.Fatal(err)
	}
	if got.ID != "x" || got.Type == "error" && got.Message == "" {
		w.t.Errorf("%s was answered with %s", text, answer)
	}
	return got.Type + got.Code
}

func TestSession_WhatIsRefused(t *testing.T) {
	t.Parallel()
	_, _, _, addr := serveAll(t)
	c := connect(t, addr)
	long, many := strings.Repeat("n", 129), strings.Repeat(`{"payload":""},`, 1001)
	refused := []struct{ fields, want string }{
		{`"no":1`, "errorunknown_type"},
		{`"type":"Publish","payload":"p","stream":"orders"`, "errorunknown_type"},
		{`"type":5`, "errormalformed"},
		{`"type":"publish","stream":5,"payload":"x"`, "errormalformed"},
		{`"type":"publish","stream":"orders"`, "errormalformed"},
		{`"type":"publish","stream":"orders","payload":null`, "errormalformed"},
		{`"type":"publish","stream":"orders","payload":{}`, "errormalformed"},
		{`"type":"publish","stream":"orders","payload":"a","payload_base64":"YQ=="`, "errormalformed"},
		{`"type":"publish","stream":"orders","payload_base64":"!"`, "errormalformed"},
		{`"type":"publish","stream":"orders","payload":"a","headers":[]`, "errormalformed"},
		{`"type":"publish","stream":"orders","payload":"a","headers":"x"`, "errormalformed"},
		{`"type":"publish","stream":"orders","payload":"a","client":"p"`, "errorinvalid"},
		{`"type":"publish","stream":"orders","payload":"a","sequence":1`, "errorinvalid"},
		{`"type":"publish","stream":"orders","payload":"a","client":"p","sequence":-1`, "errorinvalid"},
		{`"type":"publish","stream":"orders","payload":"a","client":5,"sequence":1`, "errormalformed"},
		{`"type":"publish","stream":"orders","payload":"a","key":7`, "errormalformed"},
		{`"type":"publish","stream":"orders","messages":[]`, "errormalformed"},
		{`"type":"publish","stream":"orders","messages":[{"payload":"a"},{}]`, "errormalformed"},
		{`"type":"publish","stream":"orders","payload":"b","messages":[{"payload":"a"}]`, "errormalformed"},
		{`"type":"publish","stream":"orders","messages":[` + many + `{"payload":""}]`, "errortoo_many_messages"},
		{`"type":"publish","payload":"a"`, "errorinvalid_name"},
		{`"type":"publish","stream":"a\u0000b","payload":"a"`, "errorinvalid_name"},
		{`"type":"publish","stream":"` + long + `","payload":"a"`, "errorinvalid_name"},
		{`"type":"publish","stream":"nothing","payload":"a"`, "errornot_found"},
		{`"type":"subscribe"`, "errorinvalid_name"},
		{`"type":"subscribe","stream":"orders","subscription":"` + long + `"`, "errorinvalid_name"},
		{`"type":"subscribe","stream":"orders","group":"` + long + `"`, "errorinvalid_name"},
		{`"type":"subscribe","stream":"nothing"`, "errornot_found"},
		{`"type":"subscribe","stream":"orders","after":-1`, "errorinvalid_start"},
		{`"type":"subscribe","stream":"orders","after":1,"from":"end"`, "errorinvalid_start"},
		{`"type":"subscribe","stream":"orders","group":"g","at":"2026-01-01T00:00:00Z"`, "errorinvalid_start"},
		{`"type":"subscribe","stream":"orders","from":"middle"`, "errorinvalid_start"},
		{`"type":"subscribe","stream":"orders","after":1.5`, "errormalformed"},
		{`"type":"subscribe","stream":"orders","at":"yesterday"`, "errormalformed"},
		{`"type":"subscribe","stream":"orders","credits":-1`, "errorinvalid_credits"},
		{`"type":"subscribe","stream":"orders","credits":1073741825`, "errorinvalid_credits"},
		{`"type":"unsubscribe","stream":"orders"`, "errornot_subscribed"},
		{`"type":"unsubscribe"`, "errornot_subscribed"},
		{`"type":"credit","n":1`, "errormalformed"},
		{`"type":"credit","n":1,"queue":"jobs","subscription":"orders"`, "errormalformed"},
		{`"type":"credit","n":1,"queue":"jobs"`, "errornot_consuming"},
		{`"type":"credit","n":1,"subscription":"orders"`, "errornot_subscribed"},
		{`"type":"commit","stream":"orders","group":"g"`, "errormalformed"},
		{`"type":"commit","stream":"orders","group":"g","position":-1`, "errormalformed"},
		{`"type":"commit","stream":"orders","position":1`, "errorinvalid_name"},
		{`"type":"commit","stream":"nothing","group":"g","position":1`, "errornot_found"},
		{`"type":"enqueue","queue":"jobs"`, "errormalformed"},
		{`"type":"enqueue","payload":""`, "errorinvalid_name"},
		{`"type":"enqueue","queue":"jobs","payload":"","delay_ms":-1`, "errorinvalid_duration"},
		{`"type":"enqueue","queue":"jobs","payload":"","delay_ms":86400001`, "errorinvalid_duration"},
		{`"type":"enqueue","queue":"nothing","payload":""`, "errornot_found"},
		{`"type":"enqueue","queue":"jobs","payload":"","unique_key":"k"`, "errorinvalid_duration"},
		{`"type":"enqueue","queue":"jobs","payload":"","unique_key":"k","unique_ms":999`, "errorinvalid_duration"},
		{`"type":"enqueue","queue":"jobs","payload":"","unique_key":"k","unique_ms":600001`, "errorinvalid_duration"},
		{`"type":"enqueue","queue":"jobs","messages":[{"payload":""}],"unique_key":"k","unique_ms":1000`, "errorinvalid"},
		{`"type":"consume"`, "errorinvalid_name"},
		{`"type":"consume","queue":"nothing"`, "errornot_found"},
		{`"type":"consume","queue":"jobs","credits":10001`, "errorinvalid_credits"},
		{`"type":"consume","queue":"jobs","credits":-1`, "errorinvalid_credits"},
		{`"type":"cancel","queue":"jobs"`, "errornot_consuming"},
		{`"type":"ack","queue":"jobs","delivery":"t"`, "errornot_consuming"},
		{`"type":"ack","queue":"jobs"`, "errormalformed"},
		{`"type":"ack","queue":"jobs","deliveries":[]`, "errormalformed"},
		{`"type":"ack","queue":"jobs","deliveries":["a"],"delivery":"b"`, "errormalformed"},
		{`"type":"ack","queue":"jobs","deliveries":[` + strings.Repeat(`"",`, 1000) + `""]`, "errortoo_many_messages"},
		{`"type":"nack","queue":"jobs","delivery":"t","delay_ms":-5`, "errorinvalid_duration"},
		{`"type":"nack","queue":"jobs","delivery":"t","reason":"` + strings.Repeat("r", 1025) + `"`, "errorinvalid"},
		{`"type":"extend","queue":"jobs","delivery":"t"`, "errorinvalid_duration"},
		{`"type":"join","user":"` + long + `"`, "errorname_too_long"}, // the chat's own
	}
	for _, one := range refused {
		if got := c.code(`{"id":"x",` + one.fields + `}`); got != one.want {
			t.Errorf("%.90s: %s, want %s", one.fields, got, one.want)
		}
	}
	for _, text := range []string{``, `null`, `[]`, `{`, `"publish"`, `{"type":"what"}`, `{"type":"publish","stream":"orders"}`, `{"id":[],"type":"ping"}`} {
		send(t, c.Conn, text)
	}
	c.Queue(websocket.OpBinary, []byte("{\"type\":\"publish\",\"stream\":\"orders\",\"payload\":\"\xff\"}"))
	c.ask(`{"type":"ping","ts":1}`, `{"ts":1,"type":"pong"}`) // and no answer to any of these
	waitMetric(t, addr, fmt.Sprintf("tidewire_ws_ignored_total %d", len(refused)-1+8))
	waitMetric(t, addr, "tidewire_chat_ignored_total 2")
}

func TestSession_NotServed(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Ingest: (&memory{}).source}})
	c := connect(t, addr)
	for _, fields := range []string{
		`"type":"publish","stream":"orders","payload":"x"`, `"type":"subscribe","stream":"orders"`,
		`"type":"commit","stream":"orders","group":"g","position":1`, `"type":"enqueue","queue":"jobs","payload":"x"`,
		`"type":"consume","queue":"jobs"`, `"type":"ack","queue":"jobs","delivery":"x"`,
	} {
		if got := c.code(`{"id":"x",` + fields + `}`); got != "errornot_served" {
			t.Errorf("%s: %s", fields, got)
		}
	}
}

func TestPublish_AnswersComeAfterTheCommit(t *testing.T) {
	t.Parallel()
	streams, _, _, addr := serveAll(t)
	c := connect(t, addr)
	streams.hold(true)
	send(t, c.Conn, `{"type":"publish","id":1,"stream":"orders","payload":"é\n","key":"k","headers":{"a":[1]}}`,
		`{"type":"publish","stream":"orders","payload":""}`,
		`{"type":"publish","id":"two","stream":"orders","messages":[{"payload":"a","key":"q"},{"payload_base64":"/w=="}]}`)
	c.ask(`{"type":"ping","ts":1}`, `{"ts":1,"type":"pong"}`)
	c.silent(30 * time.Millisecond)
	streams.hold(false)
	c.want(`{"type":"ok","id":1,"position":1}`, `{"type":"ok","id":"two","position":3,"count":2}`)
	waitMetric(t, addr, "tidewire_stored_messages_total 4")
	c.ask(`{"type":"subscribe","id":2,"stream":"orders","from":"start"}`, `{"type":"ok","id":2,"position":0}`)
	c.want(
		`{"type":"message","stream":"orders","subscription":"orders","position":1,"key":"k","headers":{"a":[1]},"time":"1970-01-01T00:16:40Z","payload":"é\n"}`,
		`{"type":"message","stream":"orders","subscription":"orders","position":2,"time":"1970-01-01T00:16:41Z","payload":""}`,
		`{"type":"message","stream":"orders","subscription":"orders","position":3,"key":"q","time":"1970-01-01T00:16:42Z","payload":"a"}`,
		`{"type":"message","stream":"orders","subscription":"orders","position":4,"time":"1970-01-01T00:16:43Z","payload_base64":"/w=="}`)
}

func TestPublish_ErrorsAreTold(t *testing.T) {
	t.Parallel()
	streams, _, _, addr := serveAll(t)
	c := connect(t, addr)
	for err, want := range map[error]string{
		errors.New("disk full"):                                       "errornot_stored",
		fmt.Errorf("key: %w", engine.ErrInvalid):                      "errorinvalid",
		fmt.Errorf("%w: %w", engine.ErrOutcomeUnknown, net.ErrClosed): "erroroutcome_unknown",
	} {
		streams.change(func() { streams.fail = err })
		if got := c.code(`{"type":"publish","id":"x","stream":"orders","payload":"a"}`); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
		if got := c.code(`{"type":"commit","id":"x","stream":"orders","group":"g","position":1}`); got != want {
			t.Errorf("commit, %v: %s, want %s", err, got, want)
		}
	}
}

func TestSession_TooLargeIsClosed(t *testing.T) {
	t.Parallel()
	_, _, _, addr := serveAll(t)
	c := connect(t, addr)
	send(t, c.Conn, `{"type":"publish","stream":"orders","payload":"`+strings.Repeat("x", 256<<10)+`"}`)
	if _, err := read(c); !isClose(err, websocket.StatusTooBig) {
		t.Errorf("ended with %v, want a Close frame with 1009", err)
	}
}

// TestSession_CloseComesAfterTheAnswers: the Close frame comes after the
// answers, regardless of which side closes.
func TestSession_CloseComesAfterTheAnswers(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*wire, *gateway.Server) websocket.StatusCode{
		"client": func(c *wire, _ *gateway.Server) websocket.StatusCode {
			c.StartClose(websocket.StatusNormal, "")
			return websocket.StatusNormal
		},
		"server": func(_ *wire, s *gateway.Server) websocket.StatusCode {
			go s.Shutdown(context.Background())
			return websocket.StatusGoingAway
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			streams, queues, server, addr := serveAll(t)
			c := connect(t, addr)
			c.ask(`{"type":"subscribe","id":0,"stream":"orders"}`, `{"type":"ok","id":0,"position":0}`)
			c.ask(`{"type":"enqueue","id":0,"queue":"jobs","payload":"job"}`, `{"type":"ok","id":0,"position":1}`)
			c.ask(`{"type":"consume","id":0,"queue":"jobs"}`, `{"type":"ok","id":0}`)
			token := c.delivery().Delivery
			streams.hold(true)
			queues.hold(true)
			send(t, c.Conn, `{"type":"publish","id":1,"stream":"orders","payload":"x"}`,
				`{"type":"commit","id":2,"stream":"orders","group":"g","position":1}`,
				`{"type":"enqueue","id":3,"queue":"jobs","payload":"x"}`,
				fmt.Sprintf(`{"type":"ack","id":4,"queue":"jobs","delivery":%q}`, token))
			c.ask(`{"type":"ping","ts":1}`, `{"ts":1,"type":"pong"}`)
			code := end(c, server)
			time.AfterFunc(20*time.Millisecond, func() { streams.hold(false); queues.hold(false) })
			ids := make(map[string]bool)
			var err error
			for err == nil {
				var messages []websocket.Message
				messages, err = read(c)
				for _, m := range messages {
					var got struct {
						Type string
						ID   int
					}
					if json.Unmarshal(m.Payload, &got); got.Type == "ok" {
						ids[fmt.Sprint(got.ID)] = true
					} else if got.Type == "error" {
						t.Errorf("got %s", m.Payload)
					}
				}
			}
			if len(ids) != 4 || !isClose(err, code) {
				t.Errorf("answers %v, then %v; want four and %d", ids, err, code)
			}
		})
	}
}

// TestSession_PublishAgain: a publish with a client and a sequence can be
// repeated.
func TestSession_PublishAgain(t *testing.T) {
	t.Parallel()
	_, _, _, addr := serveAll(t)
	c := connect(t, addr)
	c.ask(`{"type":"publish","id":1,"stream":"orders","payload":"a","client":"p","sequence":7}`, `{"type":"ok","id":1,"position":1}`)
	c.ask(`{"type":"publish","id":2,"stream":"orders","payload":"a","client":"p","sequence":7}`, `{"type":"ok","id":2,"position":1,"duplicate":true}`)
	c.ask(`{"type":"publish","id":3,"stream":"orders","payload":"a","client":"p","sequence":8}`, `{"type":"ok","id":3,"position":2}`)
	client{t, addr}.want("POST", "/v1/streams/orders/messages", `{"payload":"a","client":"p","sequence":8}`, 200, `{"position":2,"count":1,"duplicate":true}`)
	const three, one = `"messages":[{"payload":"b"},{"payload":"c"},{"payload":"d"}],"client":"p","sequence":9`, `"messages":[{"payload":"b"}],"client":"p","sequence":9`
	c.ask(`{"type":"publish","id":4,"stream":"orders",`+three+`}`, `{"type":"ok","id":4,"position":3,"count":3}`)
	c.ask(`{"type":"publish","id":5,"stream":"orders",`+one+`}`, `{"type":"ok","id":5,"position":3,"count":3,"duplicate":true}`)
	c.ask(`{"type":"publish","id":6,"stream":"orders","payload":"b","client":"p","sequence":9}`, `{"type":"ok","id":6,"position":3,"count":3,"duplicate":true}`)
	client{t, addr}.want("POST", "/v1/streams/orders/messages", `{`+one+`}`, 200, `{"position":3,"count":3,"duplicate":true}`)
	client{t, addr}.refused("POST", "/v1/streams/orders/messages", `{"payload":"a","sequence":8}`, 400, "invalid")
}

// TestSession_CloseComesAfterAPublish: the Close frame comes after the answer to a publish, also if
// no other answer is pending.
func TestSession_CloseComesAfterAPublish(t *testing.T) {
	t.Parallel()
	streams, _, _, addr := serveAll(t)
	c := connect(t, addr)
	streams.hold(true)
	send(t, c.Conn, `{"type":"publish","id":1,"stream":"orders","payload":"x"}`)
	c.StartClose(websocket.StatusNormal, "")
	time.AfterFunc(30*time.Millisecond, func() { streams.hold(false) })
	c.want(`{"type":"ok","id":1,"position":1}`)
}

func TestSession_StopDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	streams, queues, server, addr := serveAll(t)
	c := connect(t, addr)
	streams.hold(true)
	queues.hold(true)
	send(t, c.Conn, `{"type":"publish","id":1,"stream":"orders","payload":"x"}`, `{"type":"commit","id":2,"stream":"orders","group":"g","position":1}`)
	c.ask(`{"type":"ping","ts":1}`, `{"ts":1,"type":"pong"}`)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the stop returned %v", err)
	}
	streams.hold(false) // answers nobody
}

// TestSession_Chats: /ws accepts the messages of /ws/chat, and leaving all
// rooms does not close the connection.
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
