package stream_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidewire/tidewire/stream"
)

// TestSubscription_TryNext returns what is there, and nothing at the end; Wait returns when there is more.
func TestSubscription_TryNext(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	h, _ := runHub(t, db.Pool, stream.HubConfig{Poll: 20 * time.Millisecond})
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	ctx := t.Context()
	sub, err := h.Subscribe(ctx, s, stream.After(0))
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	if page, err := sub.TryNext(ctx, 10); err != nil || len(page) != 0 {
		t.Fatalf("of an empty stream: %d messages, %v", len(page), err)
	}
	want := int64(0)
	for round := range 20 {
		first := mustAppend(t, a, stream.Message{Payload: []byte("a")}, stream.Message{Payload: []byte("b")}, stream.Message{Payload: []byte("c")})
		if want == 0 {
			want = first
		}
		for want < first+3 {
			if err := sub.Wait(ctx); err != nil {
				t.Fatal(err)
			}
			page, err := sub.TryNext(ctx, 2)
			if err != nil || len(page) > 2 {
				t.Fatalf("round %d: %d messages, %v", round, len(page), err)
			}
			for _, m := range page {
				if m.Position != want {
					t.Fatalf("round %d: position %d, want %d", round, m.Position, want)
				}
				want++
			}
		}
		if page, err := sub.TryNext(ctx, 2); err != nil || len(page) != 0 {
			t.Fatalf("at the end: %d messages, %v", len(page), err)
		}
	}
	short, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
	defer cancel()
	for err = nil; err == nil; { // it may return without a reason
		if err = sub.Wait(short); err == nil {
			_, err = sub.TryNext(short, 1)
		}
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait at the end: %v", err)
	}
	sub.Close()
	if err := sub.Wait(ctx); !errors.Is(err, stream.ErrClosed) {
		t.Errorf("Wait after Close: %v", err)
	}
	if _, err := sub.TryNext(ctx, 1); !errors.Is(err, stream.ErrClosed) {
		t.Errorf("TryNext after Close: %v", err)
	}
}
