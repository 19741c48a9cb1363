package stream_test

import (
	"context"
	"sync"
	"testing"

	"github.com/tidewire/tidewire/stream"
)

// TestRead_WhatIsUnderWay: reads at the end of a stream that grows by batches larger
// than a window. The next query must not skip a message that was not committed when
// the previous one ran.
func TestRead_WhatIsUnderWay(t *testing.T) {
	t.Parallel()
	const batches, size = 150, 1500
	db, s := ensure(t)
	a := run(t, db.Pool, s, stream.AppenderConfig{MaxBatch: 1})
	hub, _ := runHub(t, db.Pool, stream.HubConfig{})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var reading sync.WaitGroup
	for _, limit := range []int{100, 5000} {
		reading.Go(func() {
			for after := int64(0); after < batches*size; {
				page, err := s.Read(ctx, after, limit)
				if err != nil {
					t.Error(err)
					return
				}
				if after = contiguous(t, after, page); after < 0 {
					return
				}
			}
		})
	}
	sub, err := hub.Subscribe(ctx, s, stream.After(0))
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	reading.Go(func() {
		for after := int64(0); after >= 0 && after < batches*size; {
			page, err := sub.Next(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			after = contiguous(t, after, page)
		}
	})
	batch := make([]stream.Message, size)
	for i := range batch {
		batch[i].Payload = []byte("x")
	}
	for range batches {
		mustAppend(t, a, batch...)
		hub.Notify(s)
	}
	reading.Wait()
}

// contiguous returns the last position of a page, or -1 if the page skips messages
// after position after.
func contiguous(t *testing.T, after int64, page []stream.Message) int64 {
	t.Helper()
	for _, m := range page {
		if m.Position != after+1 {
			t.Errorf("after position %d came %d", after, m.Position)
			return -1
		}
		after = m.Position
	}
	return after
}
