package gateway_test

import (
	"bytes"
	"compress/flate"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// rawClient reads frames as they are.
type rawClient struct {
	t    *testing.T
	conn net.Conn
	in   []byte
}

// dialRaw connects with an offer of compression.
func dialRaw(t *testing.T, addr string) *rawClient {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	compressed, leftover, err := websocket.ClientHandshakeCompressed(conn, &url.URL{Scheme: "ws", Host: addr, Path: "/ws"})
	if err != nil || !compressed {
		t.Fatalf("compressed %t, %v", compressed, err)
	}
	return &rawClient{t, conn, leftover}
}

// send sends a message, compressed as a browser does.
func (c *rawClient) send(text string) {
	c.t.Helper()
	z := websocket.Compression{Threshold: 1}
	c.frame(z.AppendFrame(nil, websocket.OpText, []byte(text)))
}

// frame sends an unmasked frame with a mask.
func (c *rawClient) frame(frame []byte) {
	c.t.Helper()
	h, n, err := websocket.ParseHeader(frame)
	if err != nil {
		c.t.Fatal(err)
	}
	h.Masked = true // with a key of zeros
	if _, err := c.conn.Write(append(websocket.AppendHeader(nil, h), frame[n:]...)); err != nil {
		c.t.Fatal(err)
	}
}

// next reads a frame, inflates its payload, and reports whether it was compressed.
func (c *rawClient) next() (text string, compressed bool, size int) {
	c.t.Helper()
	c.conn.SetReadDeadline(time.Now().Add(patience))
	for {
		h, n, err := websocket.ParseHeader(c.in)
		if err != nil {
			c.t.Fatal(err)
		}
		if size = n + int(h.Length); n == 0 || len(c.in) < size {
			b := make([]byte, 64<<10)
			got, err := c.conn.Read(b)
			if err != nil {
				c.t.Fatal(err)
			}
			c.in = append(c.in, b[:got]...)
			continue
		}
		payload := c.in[n:size]
		c.in = c.in[size:]
		if h.Op > websocket.OpBinary {
			continue
		}
		if h.RSV == 0 {
			return string(payload), false, size
		}
		in := io.MultiReader(bytes.NewReader(payload), strings.NewReader("\x00\x00\xff\xff\x01\x00\x00\xff\xff"))
		inflated, err := io.ReadAll(flate.NewReader(in))
		if err != nil {
			c.t.Fatal(err)
		}
		return string(inflated), true, size
	}
}

// closeCode reads until the Close frame.
func (c *rawClient) closeCode() int {
	c.t.Helper()
	c.conn.SetReadDeadline(time.Now().Add(patience))
	for {
		h, n, err := websocket.ParseHeader(c.in)
		if size := n + int(h.Length); err == nil && n > 0 && len(c.in) >= size {
			if h.Op == websocket.OpClose {
				return int(c.in[n])<<8 | int(c.in[n+1])
			}
			c.in = c.in[size:]
			continue
		}
		b := make([]byte, 4096)
		got, err := c.conn.Read(b)
		if err != nil {
			c.t.Fatal(err)
		}
		c.in = append(c.in, b[:got]...)
	}
}
