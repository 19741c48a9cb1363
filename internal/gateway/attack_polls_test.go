package gateway_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
)

// TestAttack_LongPolls: polls that wait hold no more memory than there is. Those that fit are answered when a message comes, the budget
// closes or refuses the rest, others are served meanwhile, and those whose
// clients have gone end.
func TestAttack_LongPolls(t *testing.T) {
	t.Parallel()
	const polls, limit = 150, 1 << 20
	streams, queues := newFakeStreams(t, "orders", "quiet"), newFakeQueues(t, "jobs")
	account := budget.New(limit)
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Streams: streams, Queues: queues}, Budget: account})
	c := client{t, addr}
	for _, wait := range []string{"20001", "-1", "9223372036854775808", "1e3", "x"} {
		c.refused("GET", "/v1/streams/orders/messages?wait_ms="+wait, "", http.StatusBadRequest, "invalid_parameter")
		c.refused("POST", "/v1/queues/jobs/receive?wait_ms="+wait, "", http.StatusBadRequest, "invalid_parameter")
	}
	var waiting []net.Conn
	for n := range polls {
		request := []string{"GET /v1/streams/orders/messages?wait_ms=20000", "GET /v1/streams/quiet/messages?wait_ms=20000", "POST /v1/queues/jobs/receive?wait_ms=20000"}[n%3]
		waiting = append(waiting, unread(t, addr, request))
	}
	if held := account.Stats().Held; held > limit {
		t.Errorf("%d bytes are held, want at most %d", held, limit)
	}
	if status, text := c.do("POST", "/v1/streams/orders/messages", `{"payload":"x"}`); status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	answered := 0
	for n, conn := range waiting {
		if n%3 == 0 {
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			switch {
			case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET): // memory was short: the budget closes requests, or refuses them
			case err != nil:
				t.Errorf("poll %d: %v", n, err)
			case answer.StatusCode == http.StatusOK:
				answered++
			case answer.StatusCode != http.StatusServiceUnavailable:
				t.Errorf("poll %d: %s", n, answer.Status)
			}
		}
		conn.Close()
	}
	if answered == 0 {
		t.Error("no poll was answered with the message")
	}
	waitFor(t, func() bool { return account.Stats().Held == 0 }, "polls whose clients have gone are still counted")
	if open := locked(streams, func() int { return streams.open }); open != 0 {
		t.Errorf("%d subscriptions are open", open)
	}
}

// TestAttack_IdempotencyKeys: what is no name and number is refused before anything is stored.
func TestAttack_IdempotencyKeys(t *testing.T) {
	t.Parallel()
	streams, _, _, addr := serveAll(t)
	c := client{t, addr}
	const path, body = "/v1/streams/orders/messages", `{"payload":"x"}`
	for _, key := range []string{
		"0b7f6c1e-6f0e-4c39-9d4e-1f6d5a3c2b10", "urn:uuid:0b7f6c1e-6f0e-4c39-9d4e-1f6d5a3c2b10", ":", ":1", "c:", "c", "1", "c:-1", "c:1.5", "c:1e3", "c: 1", "c:0x1",
		"c:9223372036854775808", "c:" + strings.Repeat("9", 10_000), strings.Repeat("c", 129) + ":1", strings.Repeat("c", 100_000) + ":1", strings.Repeat(":", 10_000), "\xff\xfe:1",
	} {
		c.refused("POST", path, body, http.StatusBadRequest, "invalid", "Idempotency-Key", key)
		c.refused("POST", "/v1/queues/jobs/messages", body, http.StatusBadRequest, "invalid", "Idempotency-Key", key)
	}
	c.refused("POST", path, `{"payload":"x","client":"c","sequence":1}`, http.StatusBadRequest, "invalid", "Idempotency-Key", "c:1")
	c.refused("POST", path, `{"payload":"x","sequence":1}`, http.StatusBadRequest, "invalid", "Idempotency-Key", "c:1")
	if n := locked(streams, func() int { return len(streams.streams["orders"].messages) }); n != 0 {
		t.Errorf("%d messages are stored", n)
	}
	for _, key := range []string{"c:1", "a:b:c:1", strings.Repeat("c", 128) + ":9223372036854775807"} {
		for _, duplicate := range []bool{false, true} {
			if status, text := c.do("POST", path, body, "Idempotency-Key", key); status != http.StatusOK || strings.Contains(text, "duplicate") != duplicate {
				t.Errorf("%.20s: %d %s", key, status, text)
			}
		}
	}
}
