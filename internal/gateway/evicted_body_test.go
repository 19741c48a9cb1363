package gateway_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
)

// TestBudget_EvictedRequestReadsNoBody: a request that is evicted before its body has arrived ends at once, with an answer, and gives back its memory.
func TestBudget_EvictedRequestReadsNoBody(t *testing.T) {
	t.Parallel()
	const limit, length = 4 << 20, 1 << 20
	account := budget.New(limit)
	_, addr := serve(t, gateway.Config{
		Engine: engine.Engine{Ingest: (&memory{}).source, Streams: newFakeStreams(t, "orders")}, Budget: account, BodyTimeout: time.Hour,
	})
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(conn, "POST /v1/streams/orders/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", length)
	waitFor(t, func() bool { return account.Held(budget.Body) > 0 }, "the body is not counted")
	for range limit / (64 << 10) {
		h := account.Open(nil)
		defer h.Close()
		h.Take(budget.Page, 64<<10)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !resp.Close {
		t.Errorf("%d, to be tried again after %q, the connection ends: %v", resp.StatusCode, resp.Header.Get("Retry-After"), resp.Close)
	}
	waitFor(t, func() bool { return account.Held(budget.Body) == 0 }, "the body is still counted")
}
