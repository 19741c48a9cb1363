package gateway_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
)

// TestAPI_HalfClosedClientIsAnswered: it has said all it wants to.
func TestAPI_HalfClosedClientIsAnswered(t *testing.T) {
	t.Parallel()
	streams, _, _, addr := serveAll(t)
	fill(streams, "orders", 3, 10)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	io.WriteString(conn, "GET /v1/streams/orders/messages HTTP/1.1\r\nHost: localhost\r\n\r\n")
	conn.(*net.TCPConn).CloseWrite()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); resp.StatusCode != 200 || err != nil || !strings.Contains(string(body), `"next":3`) {
		t.Errorf("%d %s, %v", resp.StatusCode, body, err)
	}
}

// TestReceive_HalfClosedClientIsTold: it looks as one that has gone, so it is leased
// nothing.
func TestReceive_HalfClosedClientIsTold(t *testing.T) {
	t.Parallel()
	_, queues, _, addr := serveAll(t)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	io.WriteString(conn, "POST /v1/queues/jobs/receive?wait_ms=20000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
	conn.(*net.TCPConn).CloseWrite()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); resp.StatusCode != 400 || err != nil || !strings.Contains(string(body), `"code":"half_closed"`) {
		t.Errorf("%d %s, %v", resp.StatusCode, body, err)
	}
	client{t, addr}.want("POST", "/v1/queues/jobs/messages", `{"payload":"1"}`, 200, `{"position":1,"count":1}`)
	if ready := lookAt(queues, func(q *fakeQueue) int { return len(q.ready) }); ready != 1 {
		t.Errorf("%d messages are ready, want 1", ready)
	}
}

// TestAPI_StopDoesNotWaitForAReader that has stopped in the middle of an answer.
func TestAPI_StopDoesNotWaitForAReader(t *testing.T) {
	t.Parallel()
	streams := newFakeStreams(t, "orders")
	fill(streams, "orders", 120, 200_000) // more than sockets hold
	server := gateway.New(gateway.Config{Engine: engine.Engine{Ingest: (&memory{}).source, Streams: streams}, DrainTimeout: 50 * time.Millisecond})
	front := httptest.NewServer(server)
	conn, err := net.Dial("tcp", strings.TrimPrefix(front.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET /v1/streams/orders/messages?limit=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
	conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadFull(conn, make([]byte, 1000)); err != nil { // the answer has begun
		t.Fatal(err)
	}
	server.EndPolls()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		t.Errorf("the stop waited for a client that does not read: %v", err)
	}
	front.Close()
}
