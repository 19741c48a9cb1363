package stream_test

import (
	"context"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

// TestStandby_PageIsFull: messages stored after the ends of the stream were queried do not make a page
// shorter than the primary's.
func TestStandby_PageIsFull(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPair(t, openMigrated)
	s := ensureWith(t, p.Pool, "s", stream.Options{})
	a := run(t, p.Pool, s, stream.AppenderConfig{})
	appendMany(t, a, "before", 50)
	exec(t, p.Pool, `SELECT tidewire.begin_history()`)
	appendMany(t, a, "after", 10)
	p.CatchUp(t)
	reader := readerOf(t, p.Pool, p.Standby)
	with := s.WithStandby(reader)
	if page, err := with.ReadPage(t.Context(), 0, 10, 1<<20); err != nil || len(page) != 10 {
		t.Fatalf("%d messages, %v", len(page), err)
	}
	appendMany(t, a, "later", 100)
	p.CatchUp(t)
	if page, err := with.ReadPage(t.Context(), 0, 100, 1<<20); err != nil || len(page) != 100 {
		t.Errorf("%d messages, %v; want 100", len(page), err)
	}
}

// TestStandby_ShortDeadline: a read with a deadline shorter than the standby's timeout does not fail because
// the standby hangs.
func TestStandby_ShortDeadline(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPair(t, openMigrated)
	p.Unsynchronised(t)
	s := ensureWith(t, p.Pool, "s", stream.Options{})
	appendMany(t, run(t, p.Pool, s, stream.AppenderConfig{}), "m", 1000)
	p.CatchUp(t)
	reader := readerOf(t, p.Pool, p.Standby)
	with := s.WithStandby(reader)
	if _, err := with.ReadPage(t.Context(), 0, 100, 1<<20); err != nil || reader.Stats().Standby != 1 {
		t.Fatalf("%+v, %v", reader.Stats(), err)
	}
	if err := p.Standby.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Standby.Thaw(context.Background()); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	if page, err := with.ReadPage(ctx, 0, 100, 1<<20); err != nil || len(page) != 100 {
		t.Errorf("%d messages, %v", len(page), err)
	}
	if reader.Problem() != "it does not answer in time" {
		t.Errorf("problem %q", reader.Problem())
	}
}
