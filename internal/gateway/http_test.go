package gateway_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/websocket"
)

func TestEcho_ReturnsEveryMessageWithItsOpcode(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, gateway.Config{Only: gateway.Echo})
	c := dial(t, "ws://"+addr+"/ws")
	for _, op := range []websocket.Opcode{websocket.OpText, websocket.OpBinary} {
		c.Queue(op, []byte("x"))
		c.Flush()
		if messages, err := c.Read(); err != nil || len(messages) != 1 || messages[0].Op != op || string(messages[0].Payload) != "x" {
			t.Errorf("%v comes back as %v, %v", op, messages, err)
		}
	}
}

func TestHTTP_Answers(t *testing.T) {
	t.Parallel()
	var ready error
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{
		Ingest: (&memory{}).source, Ready: func(context.Context) error { return ready }, Remark: func() string { return "a remark" },
	}})
	c := client{t, addr}
	for _, one := range []struct {
		path string
		want int
		body string
	}{
		{"/healthz", 200, "ok"}, {"/health", 200, "ok"}, {"/readyz", 200, "ok\na remark"}, {"/metrics", 200, "tidewire_connections 0"}, {"/nothing", 404, ""},
		{"/ws/ingest", 426, ""}, {"/ws/ingest?ack=perhaps", 400, "ack"}, {"/ws/ingest?ack=%zz", 400, ""},
	} {
		if status, body := c.do("GET", one.path, ""); status != one.want || !strings.Contains(body, one.body) {
			t.Errorf("%s: %d %q, want %d and %q", one.path, status, body, one.want, one.body)
		}
	}
	ready = errors.New("password of the database is secret")
	if status, body := c.do("GET", "/readyz", ""); status != 503 || strings.Contains(body, "secret") {
		t.Errorf("/readyz: %d %q, want 503 and nothing internal", status, body)
	}
	ready = &engine.NotReadyError{Reason: "the disk is full", Err: ready}
	c.want("GET", "/readyz", "", 503, "not ready: the disk is full")
}
