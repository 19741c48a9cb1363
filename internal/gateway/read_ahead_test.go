package gateway_test

import (
	"testing"

	"github.com/tidewire/tidewire/internal/testkit"
)

// bigPage makes a stream whose first page has 6 MiB, more than a connection takes before its client reads, and its second
// one 10 messages.
func bigPage(t *testing.T) (*fakeStreams, *wire) {
	t.Helper()
	streams, _, _, addr := serveAll(t)
	streams.change(func() { streams.page = 600 })
	fill(streams, "orders", 610, 10<<10)
	return streams, connect(t, addr)
}

// pulled returns how many pages the subscriptions have read.
func pulled(streams *fakeStreams) int { return locked(streams, func() int { return streams.pulled }) }

// TestSubscribe_ReadsAhead: while the first page is sent, the second one is read. All messages come in order.
func TestSubscribe_ReadsAhead(t *testing.T) {
	t.Parallel()
	streams, c := bigPage(t)
	send(t, c.socket, `{"type":"subscribe","stream":"orders","from":"start"}`)
	testkit.Eventually(t, "the second page is read while the first one is sent", func() bool { return pulled(streams) == 2 })
	c.positions("orders", 1, 610)
}
