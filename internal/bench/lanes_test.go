package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// floodServer echoes, and sends a dummy after each echo; the functions may
// change both. With chunks, it sends every dummy in three chunks.
func floodServer(t *testing.T, chunks bool, echo, dummy func(n int, p []byte) []byte) string {
	t.Helper()
	return served(t, func(c *websocket.Conn) {
		n := 0
		for {
			messages, err := c.Read()
			for _, m := range messages {
				if bytes.Contains(m.Payload, []byte("hello")) {
					continue
				}
				n++
				if p := echo(n, m.Payload); p != nil {
					c.Queue(m.Op, p)
				}
				if p := dummy(n, bytes.Repeat([]byte("d"), 5000)); chunks {
					queueChunks(c, n, p)
				} else {
					c.Queue(websocket.OpText, p)
				}
				c.Queue(websocket.OpPing, []byte("between"))
			}
			if err != nil {
				c.Close(websocket.StatusNormal, "")
				return
			}
		}
	})
}

// queueChunks sends three chunks, in the wrong order if the payload begins with
// 'x'.
func queueChunks(c *websocket.Conn, n int, p []byte) {
	order := []int{0, 1, 2}
	if p[0] == 'x' {
		order, p[0] = []int{1, 0, 2}, 'd'
	}
	for _, i := range order {
		flags := byte(websocket.ChunkText)
		if i == 2 {
			flags |= websocket.ChunkLast
		}
		head := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32([]byte{1, flags, 0, 0}, uint32(n)), uint32(i))
		c.Queue(websocket.OpBinary, append(head, p[i*len(p)/3:(i+1)*len(p)/3]...))
	}
}

func same(_ int, p []byte) []byte { return p }

func at(n int, change func(p []byte) []byte) func(int, []byte) []byte {
	return func(i int, p []byte) []byte {
		if i == n {
			return change(p)
		}
		return p
	}
}

func TestLanes_NoticesWhatAServerDoesWrong(t *testing.T) {
	t.Parallel()
	const requests = 50
	for name, c := range map[string]struct {
		chunks           bool
		echo, dummy      func(int, []byte) []byte
		answered, broken int
	}{
		"nothing":            {false, same, same, requests, 0},
		"nothing, in chunks": {true, same, same, requests, 0},
		"lost echo":          {false, at(7, func([]byte) []byte { return nil }), same, requests - 1, 0},
		"changed echo":       {false, at(7, bytes.ToUpper), same, requests - 1, 1},
		"short dummy":        {false, same, at(7, func(p []byte) []byte { return p[1:] }), requests, 1},
		"short chunk":        {true, same, at(7, func(p []byte) []byte { return p[1:] }), requests, 1},
		"changed dummy":      {false, same, at(7, func(p []byte) []byte { return append(p[:len(p)-1], 'e') }), requests, 1},
		"no UTF-8":           {false, same, at(7, func(p []byte) []byte { p[100] = 0xff; return p }), requests, 1},
		"chunks in disorder": {true, same, at(7, func(p []byte) []byte { p[0] = 'x'; return p }), requests, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := Lanes(context.Background(), LanesConfig{
				URL: floodServer(t, c.chunks, c.echo, c.dummy), Every: time.Millisecond, Requests: requests,
				DummySize: 5000, Chunks: c.chunks, Patience: time.Second,
			})
			if err != nil {
				t.Fatal(err)
			}
			if r.Sent != requests || r.Answered != c.answered || r.Broken != c.broken || r.Latency.Count() != int64(c.answered) {
				t.Errorf("sent %d, answered %d, broken %d; want %d, %d, %d", r.Sent, r.Answered, r.Broken, requests, c.answered, c.broken)
			}
		})
	}
}

func TestLanes_ServerThatEnds(t *testing.T) {
	t.Parallel()
	url := floodServer(t, false, same, same)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Lanes(ctx, LanesConfig{URL: url, Every: time.Millisecond, Requests: 10, DummySize: 5000}); err == nil {
		t.Error("a cancelled run ended well")
	}
}
