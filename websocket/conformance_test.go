package websocket

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"
)

// serveEcho is the environment variable with the address of TestServeEcho.
const serveEcho = "TIDEWIRE_SERVE_ECHO"

// TestServeEcho is no test but a server for scripts/conformance.sh: it echoes messages compressed, until it is killed. It
// compresses also those that get larger: kosoku 0.1.0 fails with an error of its own if an answer is not compressed.
func TestServeEcho(t *testing.T) {
	address := os.Getenv(serveEcho)
	if address == "" {
		t.Skip("only for scripts/conformance.sh")
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("listening on", listener.Addr())
	cfg := Config{Compression: &Compression{Threshold: 1}}
	t.Fatal(http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := Upgrade(w, r, cfg)
		if err != nil {
			return
		}
		c.AllowCompression()
		go echoPacked(c)
	})))
}

// echoPacked is echo that sends nothing uncompressed.
func echoPacked(c *Conn) {
	for {
		msgs, err := c.Read()
		if err != nil {
			_ = c.Close(StatusNormal, "")
			return
		}
		for _, m := range msgs {
			if p := c.packed(m.Op, m.Payload); p != nil { // Queue will do the same
				p.put()
				err = c.Queue(m.Op, m.Payload)
			} else {
				queuePacked(c, m.Op, stored(m.Payload))
			}
			if err != nil {
				c.Abort()
				return
			}
		}
	}
}

// queuePacked is Queue for a message that is compressed already.
func queuePacked(c *Conn, op Opcode, packed []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := frameSize(len(packed), c.client)
	c.append(op, packed, size)
	c.tail.b[len(c.tail.b)-size] |= rsv1Byte
}

// stored is a compressed message that is larger than payload.
func stored(payload []byte) (out []byte) {
	for len(payload) > 0 {
		n := min(len(payload), 1<<16-1)
		out = append(out, 0, byte(n), byte(n>>8), byte(^n), byte(^n>>8))
		out = append(out, payload[:n]...)
		payload = payload[n:]
	}
	return append(out, 0)
}
