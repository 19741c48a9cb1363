package queue_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// madeStream makes a stream, with that many messages.
func madeStream(t *testing.T, pool *pgxpool.Pool, name string, messages int) *stream.Stream {
	t.Helper()
	s, err := stream.Ensure(t.Context(), pool, name, stream.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range messages {
		mustExec(t, pool, `SELECT tidewire.publish($1, NULL, NULL, 'kept')`, name)
	}
	return s
}

// TestEnsure_LookupListDrop: a queue is what it was made as, and what else has its name, or that of one of its streams, is in
// its way, and stays as it is.
func TestEnsure_LookupListDrop(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{MaxAttempts: 5})
	ranked, err := queue.Ensure(t.Context(), db.Pool, "ranked", queue.Options{Priorities: 3, MaxAttempts: 2})
	if err != nil {
		t.Fatal(err)
	}
	madeStream(t, db.Pool, "plain", 0)
	written := madeStream(t, db.Pool, "written", 1)
	madeStream(t, db.Pool, "partitions/1", 1)
	if _, err := stream.NewGroups(db.Pool, stream.GroupsConfig{}).Open(t.Context(), madeStream(t, db.Pool, "read", 0), "readers", stream.GroupOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"aged", "aged family/1"} {
		if err := madeStream(t, db.Pool, name, 0).SetRetention(t.Context(), stream.Retention{MaxAge: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	invalid := queue.ErrInvalid
	for _, c := range []struct {
		name string
		opts queue.Options
		want error
		text string // of the error
	}{
		{"jobs", queue.Options{MaxAttempts: 5}, nil, ""},
		{"jobs", queue.Options{}, queue.ErrExists, "queue"},
		{"jobs", queue.Options{Partitions: 2}, queue.ErrExists, "queue"},
		{"ranked", queue.Options{Priorities: 3, MaxAttempts: 2}, nil, ""},
		{"ranked", queue.Options{}, queue.ErrExists, ""},
		{"ranked", queue.Options{Priorities: 4, MaxAttempts: 2}, queue.ErrExists, ""},
		{"ranked", queue.Options{Partitions: 3, MaxAttempts: 2}, queue.ErrExists, ""},
		{"plain", queue.Options{Partitions: 2}, queue.ErrExists, "stream"},
		{"written", queue.Options{}, queue.ErrStreamInUse, ""},
		{"read", queue.Options{}, queue.ErrStreamInUse, ""},
		{"partitions", queue.Options{Partitions: 2}, queue.ErrStreamInUse, ""},
		{"aged", queue.Options{}, queue.ErrStreamInUse, "retention policy"},
		{"aged family", queue.Options{Priorities: 2}, queue.ErrStreamInUse, "retention policy"},
		{"", queue.Options{}, invalid, ""}, {"a\x00b", queue.Options{}, invalid, ""}, {"\xff", queue.Options{}, invalid, ""},
		{"other", queue.Options{Priorities: 1}, invalid, ""}, {"other", queue.Options{Priorities: 11}, invalid, ""},
		{"other", queue.Options{Partitions: 65}, invalid, ""}, {"other", queue.Options{Partitions: 2, Priorities: 2}, invalid, ""},
		{"other", queue.Options{MaxAttempts: queue.MaxAttempts + 1}, invalid, ""},
		{"other", queue.Options{RetryMax: queue.MaxRetry + time.Millisecond}, invalid, ""},
		{"other", queue.Options{RetryMin: 1<<63 - 1}, invalid, ""},
		{"widest", queue.Options{MaxAttempts: queue.MaxAttempts, RetryMin: 1, RetryMax: queue.MaxRetry}, nil, ""},
		{"left", queue.Options{}, nil, ""}, {"left", queue.Options{}, nil, ""},
	} {
		if c.name == "left" { // an empty stream may be left over from a creation that was interrupted
			madeStream(t, db.Pool, "left", 0)
		}
		_, err := queue.Ensure(t.Context(), db.Pool, c.name, c.opts)
		if !errors.Is(err, c.want) || err != nil && (!strings.Contains(err.Error(), c.text) || c.text == "queue" && strings.Contains(err.Error(), "stream")) {
			t.Errorf("%q %+v: %v, want %v", c.name, c.opts, err, c.want)
		}
	}
	for _, want := range []*queue.Queue{q, ranked} {
		if again, err := queue.Lookup(t.Context(), db.Pool, want.Name()); err != nil || again.Options() != want.Options() || len(again.Streams()) != len(want.Streams()) {
			t.Errorf("%s looked up: %v", want.Name(), err)
		}
	}
	for name, want := range map[string]error{
		"plain": queue.ErrNotFound, "none": queue.ErrNotFound, "written": queue.ErrNotFound, "partitions": queue.ErrNotFound, "aged": queue.ErrNotFound,
		"ranked/1": invalid, "": invalid, "a\x00b": invalid, "\xff": invalid,
	} {
		if _, err := queue.Lookup(t.Context(), db.Pool, name); !errors.Is(err, want) {
			t.Errorf("look up %q: %v, want %v", name, err, want)
		}
		if err := queue.Drop(t.Context(), db.Pool, name); !errors.Is(err, want) {
			t.Errorf("drop %q: %v, want %v", name, err, want)
		}
	}
	if msgs, err := written.Read(t.Context(), 0, 10); err != nil || len(msgs) != 1 {
		t.Errorf("the stream has %d messages, %v; want the 1 that it had", len(msgs), err)
	}
	if names, err := queue.List(t.Context(), db.Pool); err != nil || !slices.Equal(names, []string{"jobs", "left", "ranked", "widest"}) {
		t.Errorf("list: %q, %v", names, err)
	}
	if err := q.Stream().SetRetention(t.Context(), stream.Retention{MaxAge: time.Hour}); err == nil || !strings.Contains(err.Error(), "belongs to a queue") {
		t.Errorf("retention of a queue's stream: %v", err)
	}
	if err := q.Stream().SetRetention(t.Context(), stream.Retention{}); err != nil {
		t.Errorf("keeping everything: %v", err)
	}
	owned := map[string]bool{"jobs": true, "ranked/0": true, "ranked/1": true, "ranked": false, "plain": false, "none": false}
	for range 2 {
		for name, want := range owned {
			if got, err := queue.OwnsStream(t.Context(), db.Pool, name); err != nil || got != want {
				t.Errorf("stream %q belongs to a queue: %t, %v; want %t", name, got, err, want)
			}
		}
		for _, name := range []string{"jobs", "ranked"} {
			if err := queue.Drop(t.Context(), db.Pool, name); err != nil && !errors.Is(err, queue.ErrNotFound) {
				t.Error(err)
			}
		}
		owned = map[string]bool{"jobs": false, "ranked/0": false}
	}
	left := count(t, db.Pool, `SELECT (SELECT count(*) FROM tidewire.queue_journal WHERE queue IN (SELECT id FROM tidewire.stream WHERE name IN ('jobs', 'ranked/0')))
		+ (SELECT count(*) FROM tidewire.stream WHERE name = 'jobs' OR name LIKE 'ranked%') + (SELECT count(*) FROM tidewire.queue_family)`)
	if left != 0 {
		t.Errorf("%d rows are left of what was dropped", left)
	}
}

// TestEnsure_HalfMadeAndDropped: interrupted calls of others are finished.
func TestEnsure_HalfMadeAndDropped(t *testing.T) {
	t.Parallel()
	db, _ := setup(t, queue.Options{Partitions: 3})
	mustExec(t, db.Pool, `UPDATE tidewire.queue_family SET dropping = true`)
	if _, err := queue.Lookup(t.Context(), db.Pool, "jobs"); !errors.Is(err, queue.ErrNotFound) {
		t.Errorf("half dropped: %v, want ErrNotFound", err)
	}
	q, err := queue.Ensure(t.Context(), db.Pool, "jobs", queue.Options{Partitions: 2})
	if err != nil || len(q.Streams()) != 2 {
		t.Fatalf("made anew: %v", err)
	}
	if streams := count(t, db.Pool, `SELECT count(*) FROM tidewire.stream`); streams != 2 {
		t.Errorf("%d streams", streams)
	}
	for _, name := range []string{"single", "single/0"} {
		if _, err := queue.Ensure(t.Context(), db.Pool, name, queue.Options{}); err != nil {
			t.Fatal(err)
		}
		if _, err := queue.Ensure(t.Context(), db.Pool, "single", queue.Options{Partitions: 1}); !errors.Is(err, queue.ErrExists) {
			t.Errorf("beside %s: %v, want ErrExists", name, err)
		}
		if err := queue.Drop(t.Context(), db.Pool, name); err != nil {
			t.Error(err)
		}
	}
}

// TestQueue_IsOneThing: what a queue of several priorities does for all of them.
func TestQueue_IsOneThing(t *testing.T) {
	t.Parallel()
	q := setupShared(t, queue.Options{Priorities: 3})
	n, stop := start(t, q, queue.NodeConfig{})
	for _, c := range []struct {
		msgs []queue.Message
		want error
		text string // of the error
	}{
		{[]queue.Message{graded(3, "")}, queue.ErrInvalid, "want 0 to 2"}, {[]queue.Message{graded(-1, "")}, queue.ErrInvalid, "want 0 to 2"},
		{[]queue.Message{graded(1, ""), graded(2, "")}, queue.ErrCrossPartition, "1 and 2"},
	} {
		if _, err := n.Enqueue(t.Context(), c.msgs...); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("priority %d: %v, want %v: %s", c.msgs[0].Priority, err, c.want, c.text)
		}
	}
	first := mustEnqueue(t, n, graded(2, "a"), graded(2, "b"))
	mustEnqueue(t, n, graded(0, "c"))
	if msgs, err := q.Peek(t.Context(), 3); err != nil || len(msgs) != 3 || msgs[0].Position != first || msgs[1].Position != first+3 || string(msgs[2].Payload) != "c" {
		t.Errorf("peeked %+v, %v", msgs, err)
	}
	for bytes, want := range map[int]int{1: 1, 1 << 20: 3} {
		if msgs, err := q.PeekUpTo(t.Context(), 50, bytes); err != nil || len(msgs) != want {
			t.Errorf("%d messages within %d bytes, %v, want %d", len(msgs), bytes, err, want)
		}
	}
	c := n.Consume(queue.ConsumerOptions{})
	for _, d := range receive(t, c, 3) {
		mustNack(t, d, queue.NackOptions{Dead: true})
	}
	c.Close()
	if err := q.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := statsOf(t, q); !s.Paused || s.Dead != 3 {
		t.Errorf("stats %+v", s)
	}
	stop()
	if _, err := q.Purge(t.Context(), queue.PurgeOptions{Dead: true}); err != nil {
		t.Fatal(err)
	}
	if s := statsOf(t, q); s.Ready+s.Leased+s.Delayed+s.Dead != 0 {
		t.Errorf("purged, and there is %+v", s)
	}
}

// TestHistory_NothingBetween: two histories with nothing between them, and what a queue is said to hold.
func TestHistory_NothingBetween(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	for name, opts := range map[string]queue.Options{"plain": {}, "priorities": {Priorities: 2}} {
		q, err := queue.Ensure(t.Context(), db.Pool, name, opts)
		if err != nil {
			t.Fatal(err)
		}
		n, _ := start(t, q, queue.NodeConfig{})
		enqueue(t, n, numbered(20)...)
		for range 2 {
			mustExec(t, db.Pool, `SELECT tidewire.begin_history()`)
		}
		enqueue(t, n, numbered(5)...)
		if s := statsOf(t, q); s.Ready != 25 {
			t.Errorf("%s: %+v: want 25 ready", fmt.Sprint(opts), s)
		}
	}
}
