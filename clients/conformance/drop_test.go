package conformance_test

import (
	"context"
	"errors"
	"time"

	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
)

// drop has retention drop all messages that a stream has.
func (w *world) drop(v any) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	pool := w.server().db.Pool
	s, err := stream.Lookup(ctx, pool, v.(fields)["stream"].(string))
	if err != nil {
		return err
	}
	if err := s.SetRetention(ctx, stream.Retention{MaxAge: time.Millisecond}); err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		stream.NewRetentionWorker(pool, stream.RetentionWorkerConfig{Every: 10 * time.Millisecond}).Run(working)
	}()
	defer func() { stop(); <-done }()
	testkit.Eventually(w.t, "all messages are dropped", func() bool {
		_, err := s.ReadPage(ctx, 0, 1, 1)
		_, old := errors.AsType[*stream.TooOldError](err)
		return old
	})
	return s.SetRetention(ctx, stream.Retention{})
}

// large stores a message as a program with the Go packages does, which has no limit of a server.
func (w *world) large(v any) error {
	ctx := w.t.Context()
	client, err := stream.Open(ctx, w.server().db.Pool, stream.Config{})
	if err != nil {
		return err
	}
	defer client.Close(ctx)
	s, err := client.Lookup(ctx, v.(fields)["stream"].(string))
	if err != nil {
		return err
	}
	_, err = s.Append(ctx, stream.Message{Payload: make([]byte, 2<<20)})
	return err
}
