package websocket

import (
	"bytes"
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/testkit"
)

// TestTraffic: a connection counts its messages and bytes in both directions, on all lanes, and knows since when its peer does not read.
func TestTraffic(t *testing.T) {
	t.Parallel()
	c, peer := rawPair(t, Config{})
	in := AppendMaskedFrame(nil, OpText, [4]byte{1, 2, 3, 4}, []byte("hello"))
	if _, err := peer.Write(bytes.Repeat(in, 3)); err != nil {
		t.Fatal(err)
	}
	for got := 0; got < 3; {
		messages, err := c.Read()
		if err != nil {
			t.Fatal(err)
		}
		got += len(messages)
	}
	frame := AppendFrame(nil, OpText, []byte("out"))
	c.Queue(OpText, []byte("out"))
	c.Queue(OpPing, nil) // no message
	c.Flush()
	if err := c.WriteBulkFrames(context.Background(), bytes.Repeat(frame, 4)); err != nil {
		t.Fatal(err)
	}
	if err := c.WriteBulk(context.Background(), OpText, []byte("out")); err != nil {
		t.Fatal(err)
	}
	offer(t, c, bytes.Repeat(frame, 2))
	got := c.Traffic()
	if want := int64(len(frame)*8 + 2); got.MessagesIn != 3 || got.MessagesOut != 8 || got.BytesIn != int64(3*len(in)) || got.BytesOut < want || got.Unsent != 0 {
		t.Errorf("got %+v, want %d bytes", got, want)
	}

	before := time.Now()
	for c.Traffic().Unsent == 0 { // until the kernel takes no more
		c.Queue(OpText, make([]byte, 64<<10))
		c.Flush()
	}
	since := c.Traffic().Since
	if since.Before(before) || since.After(time.Now()) {
		t.Errorf("waits since %v", since)
	}
	var reading sync.WaitGroup
	reading.Go(func() { io.Copy(io.Discard, peer) })
	testkit.Eventually(t, "the bytes leave", func() bool { return c.Traffic().Unsent == 0 })
	if got := c.Traffic(); !got.Since.IsZero() {
		t.Errorf("still waits since %v", got.Since)
	}
	c.Abort()
	reading.Wait()
}
