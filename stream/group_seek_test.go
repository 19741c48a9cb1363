package stream_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

// TestSeekGroup_EveryStart: every Start moves the group, forward or back.
func TestSeekGroup_EveryStart(t *testing.T) {
	t.Parallel()
	ensureBoth(t, func(t *testing.T, db pgtest.DB, s *stream.Stream) {
		a := run(t, db.Pool, s, stream.AppenderConfig{})
		mustAppend(t, a, messages("a", "b", "c")...)
		gs, _ := runGroups(t, db.Pool, stream.GroupsConfig{})
		g := openGroup(t, gs, s, "g")
		for _, c := range []struct {
			to   stream.Start
			want int64
		}{
			{stream.After(2), 2}, {stream.AtEnd(), 3}, {stream.Start{}, 0}, {stream.After(3), 3}, {stream.AtTime(time.Now().Add(-time.Hour)), 0},
			{stream.AtTime(time.Now().Add(time.Hour)), 3}, {stream.After(0), 0},
		} {
			if offset, err := s.SeekGroup(t.Context(), "g", c.to); err != nil || offset != c.want {
				t.Errorf("%+v: %d, %v, want %d", c.to, offset, err, c.want)
			}
			wantOffset(t, g, c.want)
		}
		mustCommit(t, g, 2)
		wantOffset(t, g, 2)
		var lost *stream.HistoryLostError
		if _, err := s.SeekGroup(t.Context(), "g", stream.After(4)); !errors.As(err, &lost) || lost.Last != 3 {
			t.Errorf("after the end: %v, want a HistoryLostError", err)
		}
		if _, err := s.SeekGroup(t.Context(), "g", stream.After(-1)); !errors.Is(err, stream.ErrInvalid) {
			t.Errorf("-1: %v, want ErrInvalid", err)
		}
		for _, name := range []string{"none", ""} {
			if _, err := s.SeekGroup(t.Context(), name, stream.Start{}); !errors.Is(err, stream.ErrNotFound) && !errors.Is(err, stream.ErrInvalid) {
				t.Errorf("group %q: %v", name, err)
			}
		}
		wantOffset(t, g, 2)
		must(t, stream.Drop(t.Context(), db.Pool, s.Name()))
		if _, err := s.SeekGroup(t.Context(), "g", stream.Start{}); !errors.Is(err, stream.ErrNotFound) {
			t.Errorf("a dropped stream: %v, want ErrNotFound", err)
		}
	})
}

// TestSeekGroup_DroppedMessages: the start is the oldest message that is kept, and a position before it is rejected.
func TestSeekGroup_DroppedMessages(t *testing.T) {
	t.Parallel()
	ensureBoth(t, func(t *testing.T, db pgtest.DB, s *stream.Stream) {
		a := run(t, db.Pool, s, stream.AppenderConfig{})
		mustAppend(t, a, messages("a", "b")...)
		gs, _ := runGroups(t, db.Pool, stream.GroupsConfig{})
		g := openGroup(t, gs, s, "g")
		alter(t, db.Pool, s, stream.Retention{MaxAge: time.Millisecond})
		keep(t, db.Pool)
		waitInfo(t, s, "dropped", func(i stream.Info) bool { return i.Oldest == 3 })
		_, err := s.SeekGroup(t.Context(), "g", stream.After(1))
		wantTooOld(t, "after 1", err, 3)
		for _, to := range []stream.Start{{}, stream.After(2), stream.AtTime(time.Now().Add(-time.Hour))} {
			if offset, err := s.SeekGroup(t.Context(), "g", to); err != nil || offset != 2 {
				t.Errorf("%+v: %d, %v, want 2", to, offset, err)
			}
		}
		wantOffset(t, g, 2)
	})
}

// TestSeekGroup_Partitions: it seeks in all partitions that have the group.
func TestSeekGroup_Partitions(t *testing.T) {
	t.Parallel()
	db := setup(t)
	s := ensureWith(t, db.Pool, "parts", stream.Options{Partitions: 3})
	gs, _ := runGroups(t, db.Pool, stream.GroupsConfig{})
	for i := range 2 { // not in the third
		a := run(t, db.Pool, s.Partition(i), stream.AppenderConfig{})
		mustAppend(t, a, messages("a", "b")...)
		openGroup(t, gs, s.Partition(i), "g")
	}
	for to, want := range map[stream.Start]int64{stream.AtEnd(): 4, {}: 0} {
		if offset, err := s.SeekGroup(t.Context(), "g", to); err != nil || offset != want {
			t.Errorf("%+v: %d, %v, want %d", to, offset, err, want)
		}
	}
	if offset, err := s.Partition(1).SeekGroup(t.Context(), "g", stream.After(1)); err != nil || offset != 1 {
		t.Errorf("one partition: %d, %v", offset, err)
	}
	if _, err := s.SeekGroup(t.Context(), "g", stream.After(1)); !errors.Is(err, stream.ErrPartitioned) {
		t.Errorf("a position: %v, want ErrPartitioned", err)
	}
	if _, err := s.SeekGroup(t.Context(), "none", stream.Start{}); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("no group: %v, want ErrNotFound", err)
	}
}

// TestRetention_IsWhatWasSet, also of a partition.
func TestRetention_IsWhatWasSet(t *testing.T) {
	t.Parallel()
	db := setup(t)
	s := ensureWith(t, db.Pool, "parts", stream.Options{Partitions: 2})
	for _, want := range []stream.Retention{{}, {MaxAge: time.Hour, MaxBytes: 1 << 20, Consumed: true}, {Consumed: true}, {}} {
		must(t, s.SetRetention(t.Context(), want))
		if got, err := s.Retention(t.Context()); err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
		part := want
		part.MaxBytes /= 2
		if got, err := s.Partition(1).Retention(t.Context()); err != nil || got != part {
			t.Errorf("of a partition: %+v, %v, want %+v", got, err, part)
		}
	}
	must(t, stream.Drop(t.Context(), db.Pool, "parts"))
	if _, err := s.Retention(t.Context()); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("a dropped stream: %v, want ErrNotFound", err)
	}
}

// TestRetention_PartitionsWithoutMaxBytes: a bound on the age alone deletes no young messages of partitions.
func TestRetention_PartitionsWithoutMaxBytes(t *testing.T) {
	t.Parallel()
	db := setup(t)
	s := ensureWith(t, db.Pool, "parts", stream.Options{Partitions: 2})
	other := ensureWith(t, db.Pool, "other", stream.Options{})
	alter(t, db.Pool, s, stream.Retention{MaxAge: time.Hour})
	a := run(t, db.Pool, s.Partition(0), stream.AppenderConfig{})
	mustAppend(t, a, messages("a", "b")...)
	b := run(t, db.Pool, other, stream.AppenderConfig{})
	mustAppend(t, b, messages("c")...)
	alter(t, db.Pool, other, stream.Retention{MaxAge: time.Millisecond})
	keep(t, db.Pool)
	waitInfo(t, other, "dropped", func(i stream.Info) bool { return i.Oldest == 2 }) // the worker is at work
	if info, err := s.Partition(0).Info(t.Context()); err != nil || info.Oldest != 1 {
		t.Errorf("%+v, %v, want all messages kept", info, err)
	}
}

// TestGroup_CommitAheadOfASealedSegment: the positions skipped at the end of a sealed segment count
// as after the end of the stream, also when retention has dropped all messages.
func TestGroup_CommitAheadOfASealedSegment(t *testing.T) {
	t.Parallel()
	ensureBoth(t, func(t *testing.T, db pgtest.DB, s *stream.Stream) {
		a := run(t, db.Pool, s, stream.AppenderConfig{})
		gs, _ := runGroups(t, db.Pool, stream.GroupsConfig{})
		g, unread := openGroup(t, gs, s, "g"), openGroup(t, gs, s, "unread")
		wantEnd := func(what string, end int64) {
			t.Helper()
			for _, position := range []int64{end + 1, end + 1000, math.MaxInt64} {
				if offset, err := g.Commit(t.Context(), position); !errors.Is(err, stream.ErrAhead) {
					t.Errorf("%s, which ends at %d: Commit(%d): %d, %v, want ErrAhead", what, end, position, offset, err)
				}
			}
			if offset, err := g.Commit(t.Context(), end); err != nil || offset != end {
				t.Errorf("%s: Commit(%d): %d, %v", what, end, offset, err)
			}
		}
		mustAppend(t, a, kilobytes(5)...)
		alter(t, db.Pool, s, stream.Retention{MaxAge: oldAge, Consumed: true})
		keepOnce(t, db.Pool)
		wantEnd("kept for a group", 5)
		mustCommit(t, unread, 5)
		keepOnce(t, db.Pool)
		stands(t, "emptied", s, 6, 5)
		must(t, g.Seek(t.Context(), 0))
		wantEnd("emptied", 5)
		wantEnd("goes on", mustAppend(t, a, messages("next")...))
	})
}

// TestGroups_ALockedSealedStream: a stream that ends at a sealed segment, and whose table is locked, does
// not delay the commits of other streams' groups.
func TestGroups_ALockedSealedStream(t *testing.T) {
	t.Parallel()
	db := setup(t)
	gs, _ := runGroups(t, db.Pool, stream.GroupsConfig{})
	var groups []*stream.Group
	for _, name := range []string{"locked", "other"} {
		s := ensureWith(t, db.Pool, name, stream.Options{OwnTables: name == "locked"})
		mustAppend(t, run(t, db.Pool, s, stream.AppenderConfig{}), kilobytes(5)...)
		groups = append(groups, openGroup(t, gs, s, "g"))
		if name == "locked" {
			alter(t, db.Pool, s, stream.Retention{MaxAge: time.Nanosecond, Consumed: true})
			keepOnce(t, db.Pool) // seals its segment, and drops nothing
		}
	}
	tx := begin(t, db.Pool, "")
	exec(t, tx, `DO $$ BEGIN EXECUTE (SELECT format('LOCK TABLE tidewire.stream_%s IN ACCESS EXCLUSIVE MODE', id)
		FROM tidewire.stream WHERE name = 'locked'); END $$`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i, g := range groups {
		if offset, err := g.Commit(ctx, 2); err != nil || offset != 2 {
			t.Errorf("group %d: Commit(2): %d, %v", i, offset, err)
		}
	}
}
