//go:build !race

package websocket

import (
	"os"
	"testing"
)

// TestAllocations: once the buffers are there, neither side allocates, whether
// it sends, receives or answers. (The race detector makes pools forget.)
func TestAllocations(t *testing.T) {
	server, client := pair(t, Config{}, Config{})
	payload := make([]byte, 100)
	exchange := func(from, to *Conn, op Opcode) {
		for range 16 {
			if err := from.Queue(op, payload); err != nil {
				t.Fatal(err)
			}
		}
		if err := from.Queue(OpPing, nil); err != nil {
			t.Fatal(err)
		}
		if err := from.Flush(); err != nil {
			t.Fatal(err)
		}
		for got := 0; got < 16; {
			msgs, err := to.Read()
			if err != nil {
				t.Fatal(err)
			}
			got += len(msgs)
		}
	}
	perRun := testing.AllocsPerRun(1000, func() {
		exchange(client, server, OpText)
		exchange(server, client, OpBinary)
	})
	most := 0.9
	if os.Getenv(overTLS) != "" {
		most = 5 // package tls makes some for each record
	}
	if perRun > most {
		t.Errorf("%v allocations for 32 messages", perRun)
	}
}
