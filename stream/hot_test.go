package stream

import (
	"context"
	"sync"
	"testing"
)

// TestHot_BesideAMove: a stream that does not need its own tables yet is written to while
// another one moves.
func TestHot_BesideAMove(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	s, err := Ensure(t.Context(), db.Pool, "hot", Options{})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer running.Wait()
	defer stop()
	a := NewAppender(db.Pool, s, AppenderConfig{})
	a.Start()
	running.Go(func() { <-ctx.Done(); a.Stop() })
	slot := moves.Join(db.Pool, func() chan struct{} { return make(chan struct{}, 1) })
	defer moves.Leave(db.Pool)
	slot <- struct{}{}
	s.storage.stored(1, hotRows)
	for _, shared := range []bool{true, false} {
		if _, err := a.Append(t.Context(), Message{}); err != nil {
			t.Fatal(err)
		}
		if s.storage.shared() != shared {
			t.Errorf("shared is %t, want %t", !shared, shared)
		}
		if shared {
			<-slot
		}
	}
}

// TestHot: a stream with many messages in a second gets its own tables with the next
// message, whichever way that is written.
func TestHot(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	for _, beside := range []bool{false, true} {
		var running sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		appenderTo := func(name string) (*Stream, *Appender) {
			s, err := Ensure(t.Context(), db.Pool, name, Options{})
			if err != nil {
				t.Fatal(err)
			}
			a := NewAppender(db.Pool, s, AppenderConfig{})
			a.Start()
			running.Go(func() { <-ctx.Done(); a.Stop() })
			if _, err := a.Append(t.Context(), Message{}); err != nil {
				t.Fatal(err)
			}
			return s, a
		}
		_, other := appenderTo("other")
		s, a := appenderTo("hot")
		if beside {
			running.Go(func() {
				for ctx.Err() == nil {
					other.Append(ctx, Message{})
				}
			})
		}
		if s.storage.outgrown() {
			t.Error("hot too early")
		}
		s.storage.stored(1, hotRows)
		if _, err := a.Append(t.Context(), Message{}); err != nil {
			t.Fatal(err)
		}
		var shared bool
		if err := db.Pool.QueryRow(t.Context(), `SELECT shared FROM tidewire.stream WHERE id = $1`, s.id).Scan(&shared); err != nil || shared {
			t.Errorf("shared is %t, %v", shared, err)
		}
		stop()
		running.Wait()
		if err := Drop(t.Context(), db.Pool, "hot"); err != nil {
			t.Fatal(err)
		}
	}
}
