package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
)

// TestAPI_HalfClosed: a client that half-closes after its request gets the answer. To a receive it looks like one that has gone, so nothing is
// leased to it, and the answer says so.
func TestAPI_HalfClosed(t *testing.T) {
	t.Parallel()
	streams, queues, _, addr := serveAll(t)
	fill(streams, "orders", 3, 10)
	for request, want := range map[string]string{"GET /v1/streams/orders/messages": `"next":3`, "POST /v1/queues/jobs/receive?wait_ms=20000": `"code":"half_closed"`} {
		conn := unread(t, addr, request, "")
		conn.SetDeadline(time.Now().Add(patience))
		conn.(*net.TCPConn).CloseWrite()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(body), want) {
			t.Errorf("%s: %d %s, %v", request, resp.StatusCode, body, err)
		}
	}
	client{t, addr}.want("POST", "/v1/queues/jobs/messages", `{"payload":"1"}`, 200, `{"position":1,"count":1}`)
	if ready := lookAt(queues, func(q *fakeQueue) int { return len(q.ready) }); ready != 1 {
		t.Errorf("%d messages are ready, want 1", ready)
	}
}

// postBody sends a request whose body does not come, or not all of it, and returns what comes up to the end of the connection.
func postBody(t *testing.T, addr, headers, body string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(conn, "POST /v1/streams/orders/messages HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n%s\r\n%s", addr, headers, body)
	text, err := io.ReadAll(conn)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// TestAPI_Bodies: a body that is announced as too large is refused before any of it has come, and the server does not ask for it. A request whose
// body stops is answered when its time is over, also if so little of it is missing that package http would wait for the rest.
func TestAPI_Bodies(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Streams: newFakeStreams(t, "orders")}, MaxMessage: 256 << 10, BodyTimeout: 50 * time.Millisecond})
	for _, size := range []int64{300 << 10, 9_999_999_999_999} {
		for _, header := range []string{"", "Expect: 100-continue\r\n"} {
			if got := postBody(t, addr, fmt.Sprintf("%sContent-Length: %d\r\n", header, size), ""); !strings.HasPrefix(got, "HTTP/1.1 413 ") {
				t.Errorf("%d bytes announced, with %q: %s", size, header, got)
			}
		}
	}
	for _, size := range []int{2, 100_000} {
		if got := postBody(t, addr, fmt.Sprintf("Content-Length: %d\r\n", size), "{"); !strings.HasPrefix(got, "HTTP/1.1 400 ") || !strings.Contains(got, "the body did not arrive") {
			t.Errorf("%d bytes: %s", size, got)
		}
	}
}

// TestShutdown_BodyThatDoesNotCome: a client that has announced a body and does not send it does not delay the rest of a stop.
func TestShutdown_BodyThatDoesNotCome(t *testing.T) {
	t.Parallel()
	server, addr := serve(t, gateway.Config{Engine: engine.Engine{Streams: newFakeStreams(t, "orders")}, DrainTimeout: 20 * time.Millisecond})
	conn := unread(t, addr, "POST /v1/streams/orders/messages", "Content-Type: application/json\r\nContent-Length: 100\r\nExpect: 100-continue\r\n")
	conn.SetDeadline(time.Now().Add(patience))
	in := bufio.NewReader(conn)
	if line, err := in.ReadString('\n'); err != nil || !strings.Contains(line, "100") { // it waits for the body
		t.Fatalf("got %q, %v", line, err)
	}
	shutdown(t, server)()
	in.ReadString('\n')
	if line, err := in.ReadString('\n'); err != nil || !strings.Contains(line, "503") {
		t.Errorf("the request is answered with %q, %v", line, err)
	}
}
