package conformance_test

import (
	"context"
	"errors"
	"time"

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
	for {
		_, err := s.ReadPage(ctx, 0, 1, 1)
		if _, old := errors.AsType[*stream.TooOldError](err); old {
			break
		}
		if err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return s.SetRetention(ctx, stream.Retention{})
}
