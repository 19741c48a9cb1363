package gateway_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/limits"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/websocket"
)

// TestLimits_Slowloris: many sockets that send a byte every now and then keep nobody out.
func TestLimits_Slowloris(t *testing.T) {
	t.Parallel()
	l := serveLimited(t, "", limits.Config{Connections: 20_000, AddressConnections: 200, Pending: 1000}, false, nil)
	const header = "GET /ws HTTP/1.1\r\nHost: x\r\n"
	var slow []net.Conn
	for i := range 200 {
		conn, err := net.Dial("tcp", l.addr)
		if err != nil {
			continue // the server has reset it already
		}
		t.Cleanup(func() { conn.Close() })
		slow = append(slow, conn)
		io.WriteString(conn, header[:1+i%len(header)])
	}
	testkit.Eventually(t, "all are accepted or closed", func() bool { return int(l.registry.Refused(limits.PendingAddress))+l.registry.Stats().Sockets >= 200 })
	for _, c := range slow {
		io.WriteString(c, "x")
	}
	if open := l.registry.Stats().Sockets; open > limits.AddressPending {
		t.Errorf("%d are open, want at most %d", open, limits.AddressPending)
	}
	slow[0].Close() // all of this address are taken, so one has to end
	testkit.Eventually(t, "there is room", func() bool {
		conn, err := websocket.Dial(t.Context(), "ws://"+l.addr+"/ws", websocket.Config{Header: bearer(tokenOf(t, "ann", time.Hour))})
		if err == nil {
			conn.Abort()
		}
		return err == nil
	})
}
