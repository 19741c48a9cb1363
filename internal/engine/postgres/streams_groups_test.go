package postgres

import (
	"errors"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
)

// TestStreams_SeekAndDropGroup: an operator moves a group at one server, and a client at another sees it.
func TestStreams_SeekAndDropGroup(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	one, two := startEngine(t, db), startEngine(t, db)
	ctx := t.Context()
	_, err := one.streams.Create(ctx, "s", nil)
	must(t, err, one.publish(ctx, "s"), one.publish(ctx, "s"), one.publish(ctx, "s"))
	_, err = one.streams.Commit(ctx, "s", "g", 3)
	must(t, err)
	for to, want := range map[engine.Start]int64{
		{After: 1}: 1, {End: true}: 3, {}: 0, {At: time.Now().Add(-time.Hour)}: 0, {At: time.Now().Add(time.Hour)}: 3,
	} {
		if offset, err := two.streams.SeekGroup(ctx, "s", "g", to); err != nil || offset != want {
			t.Errorf("%+v: %d, %v, want %d", to, offset, err, want)
		}
	}
	_, err = two.streams.SeekGroup(ctx, "s", "g", engine.Start{After: 1})
	must(t, err)
	sub, err := one.streams.Subscribe(ctx, "s", engine.Start{Group: "g"})
	must(t, err)
	page, err := sub.Next(ctx, 1)
	if must(t, err); page[0].Position != 2 {
		t.Errorf("the group continues with %d, want 2", page[0].Position)
	}
	sub.Close()
	if offset, err := one.streams.Commit(ctx, "s", "g", 2); err != nil || offset != 2 {
		t.Errorf("committed %d, %v, want 2", offset, err)
	}
	must(t, two.streams.DropGroup(ctx, "s", "g"))
	if groups, err := one.streams.Groups(ctx, "s", "", 10); err != nil || len(groups) != 0 {
		t.Errorf("%+v, %v, want none", groups, err)
	}
	var lost *engine.HistoryLostError
	_, err = one.streams.Commit(ctx, "s", "g", 1) // makes it again
	must(t, err)
	if _, err := one.streams.SeekGroup(ctx, "s", "g", engine.Start{After: 9}); !errors.As(err, &lost) || lost.Last != 3 {
		t.Errorf("after the end: %v", err)
	}
	must(t, one.queues.Create(ctx, "q", nil))
	for name, want := range map[string]error{"none": engine.ErrNotFound, "q": engine.ErrQueueStream, "s": engine.ErrNotFound} {
		if _, err := one.streams.SeekGroup(ctx, name, "none", engine.Start{}); !errors.Is(err, want) {
			t.Errorf("seek in %s: %v, want %v", name, err, want)
		}
		if err := one.streams.DropGroup(ctx, name, "none"); !errors.Is(err, want) {
			t.Errorf("drop in %s: %v, want %v", name, err, want)
		}
	}
}

// TestStreams_Retention is read as it was set, and a queue's stream has none.
func TestStreams_Retention(t *testing.T) {
	t.Parallel()
	s := startEngine(t, migrated.Open(t))
	ctx := t.Context()
	_, err := s.streams.Create(ctx, "s", nil)
	must(t, err, s.queues.Create(ctx, "q", nil))
	for _, want := range []engine.Retention{{}, {MaxAge: time.Hour, MaxBytes: 1 << 30, Consumed: true}} {
		must(t, s.streams.SetRetention(ctx, "s", want))
		if got, err := s.streams.Retention(ctx, "s"); err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
	if err := s.streams.SetRetention(ctx, "s", engine.Retention{MaxAge: -1}); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("less than nothing: %v", err)
	}
	if err := s.streams.SetRetention(ctx, "q", engine.Retention{Consumed: true}); !errors.Is(err, engine.ErrQueueStream) {
		t.Errorf("of a queue: %v", err)
	}
	if _, err := s.streams.Retention(ctx, "none"); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("of none: %v", err)
	}
}
