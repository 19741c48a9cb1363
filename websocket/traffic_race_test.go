package websocket

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// TestTraffic_ManyWriters: with writers on all lanes, and readers of the figures, what a connection has counted is what its peer has received.
func TestTraffic_ManyWriters(t *testing.T) {
	t.Parallel()
	server, client := pair(t, Config{}, Config{})
	const writers, each = 4, 50
	shared := AppendFrame(nil, OpText, []byte("shared"))
	queue := func(c *Conn, payload string) {
		for errors.Is(c.Queue(OpText, []byte(payload)), ErrSlowReader) {
			c.Flush()
			time.Sleep(time.Millisecond)
		}
		c.Flush()
	}
	var writing sync.WaitGroup
	for range writers {
		writing.Go(func() {
			for range each {
				queue(server, "live")
				server.Queue(OpPing, nil)
			}
		})
		writing.Go(func() {
			for range each {
				if err := server.WriteBulk(context.Background(), OpText, bytes.Repeat([]byte("b"), 3000)); err != nil {
					t.Error(err)
					return
				}
			}
		})
		writing.Go(func() {
			for range each / 10 {
				if err := server.WriteBulkFrames(context.Background(), bytes.Repeat(shared, 10)); err != nil {
					t.Error(err)
					return
				}
			}
		})
		writing.Go(func() {
			for range each {
				queue(client, "in")
			}
		})
	}
	writing.Go(func() { // the lane has one writer
		left := bytes.Repeat(shared, each)
		for len(left) > 0 {
			n, err := server.WriteShared(left)
			if err != nil {
				t.Error(err)
				return
			}
			server.CountShared(n / len(shared))
			if left = left[n:]; n == 0 {
				time.Sleep(time.Millisecond)
			}
		}
	})
	const out, in = writers*each*3 + each, writers * each
	var reading sync.WaitGroup
	reading.Go(func() { // to the end: the bulk lane waits for pongs
		for {
			if _, err := server.Read(); err != nil {
				return
			}
			if traffic := server.Traffic(); traffic.Unsent < 0 {
				t.Errorf("%+v", traffic)
			}
		}
	})
	for got := 0; got < out; {
		messages, err := client.Read()
		if got += len(messages); err != nil {
			t.Fatalf("after %d of %d messages: %v", got, out, err)
		}
	}
	writing.Wait()
	for end := time.Now().Add(patience); server.Traffic().MessagesIn < in && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	s, c := server.Traffic(), client.Traffic()
	if s.MessagesIn != in || s.MessagesOut != out || c.MessagesIn != out || c.MessagesOut != in {
		t.Errorf("server %+v\nclient %+v\nwant %d and %d messages", s, c, in, out)
	}
	if s.BytesOut < c.BytesIn || c.BytesOut < s.BytesIn {
		t.Errorf("more bytes were read than written: server %+v\nclient %+v", s, c)
	}
	client.Abort()
	reading.Wait()
}
