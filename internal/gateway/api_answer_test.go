package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/websocket"
)

// TestAPI_HalfClosedClientIsAnswered: a client that half-closes after its
// request gets the answer.
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

// TestReceive_HalfClosedClientIsTold: a half-closed client looks like one that has
// gone, so nothing is leased to it.
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

// TestAPI_StopDoesNotWaitForAReader: a stop does not wait for a client that has
// stopped reading in the middle of an answer.
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

// TestAPI_BodyThatNeverArrives: a request whose body stops is answered when its time is over, also if so little of it is
// missing that package http would wait for the rest.
func TestAPI_BodyThatNeverArrives(t *testing.T) {
	t.Parallel()
	streams := newFakeStreams(t, "orders")
	_, addr := serve(t, gateway.Config{
		Engine: engine.Engine{Ingest: (&memory{}).source, Streams: streams}, BodyTimeout: 50 * time.Millisecond,
	})
	for _, length := range []int{2, 100_000, 500_000} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(patience))
		fmt.Fprintf(conn, "POST /v1/streams/orders/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{", length)
		answer, err := io.ReadAll(conn) // to the end of the connection
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") || !strings.Contains(string(answer), "the body did not arrive") {
			t.Errorf("%d bytes: %q, %v", length, answer, err)
		}
	}
}

// TestHandshake_MalformedQuery: a query that cannot be read is refused, and not passed over.
func TestHandshake_MalformedQuery(t *testing.T) {
	t.Parallel()
	_, _, _, addr := serveAll(t)
	_, err := websocket.Dial(t.Context(), "ws://"+addr+"/ws/ingest?ack=%zz", websocket.Config{})
	resp, get := http.Get("http://" + addr + "/ws/ingest?ack=%zz")
	if get != nil {
		t.Fatal(get)
	}
	resp.Body.Close()
	if err == nil || resp.StatusCode != http.StatusBadRequest {
		t.Errorf("%v, %d", err, resp.StatusCode)
	}
}
