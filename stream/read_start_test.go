package stream_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
)

func TestSubscribe_Starts(t *testing.T) {
	t.Parallel()
	db, s := ensureOwn(t)
	h := stream.NewHub(db.Pool, stream.HubConfig{})
	// Position p has the time of second p, except some that waited for the lock;
	// one in ten is missing.
	exec(t, db.Pool, `
SELECT tidewire.take_positions(1000, 'tidewire.stream_1000_position_seq', 50000, 1, 1);
INSERT INTO tidewire.stream_1000 (position, created_at, payload)
SELECT p, '2026-01-01T00:00:00Z'::timestamptz + p * interval '1 s' - CASE WHEN p % 7 = 0 THEN interval '40 s' ELSE '0' END, ''
FROM generate_series(1, 50000) AS p WHERE p % 10 <> 3`)
	second := func(n int) time.Time { return time.Date(2026, 1, 1, 0, 0, n, 0, time.UTC) }
	for name, c := range map[string]struct {
		start stream.Start
		first int64
	}{
		"zero":            {stream.Start{}, 1},
		"beginning":       {stream.After(0), 1},
		"after":           {stream.After(2), 4},
		"long ago":        {stream.AtTime(time.Time{}), 1},
		"first":           {stream.AtTime(second(1)), 1},
		"in a gap":        {stream.AtTime(second(23)), 24},
		"early":           {stream.AtTime(second(28)), 29}, // 28 began 40 s before
		"middle":          {stream.AtTime(second(25001)), 25001},
		"between":         {stream.AtTime(second(25001).Add(time.Millisecond)), 25002},
		"last":            {stream.AtTime(second(50000)), 50000},
		"nothing so late": {stream.AtTime(second(50001)), 50001},
		"end":             {stream.AtEnd(), 50001},
		"not yet":         {stream.After(50000), 50001},
		"after a missing": {stream.After(12), 14},
	} {
		sub, err := h.Subscribe(t.Context(), s, c.start)
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		if c.first > 50000 {
			if sub.Position() != 50000 {
				t.Errorf("%s: begins after %d, want 50000", name, sub.Position())
			}
			continue
		}
		if page := next(t, sub); page[0].Position != c.first {
			t.Errorf("%s: begins with %d, want %d", name, page[0].Position, c.first)
		}
	}
	if _, err := h.Subscribe(t.Context(), s, stream.After(-1)); !errors.Is(err, stream.ErrInvalid) {
		t.Errorf("After(-1): %v, want ErrInvalid", err)
	}
}

// anotherTimeline produces the state after a promotion: the history belongs to another timeline, and the new
// one has not begun.
func anotherTimeline(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	exec(t, pool, `SELECT setval('tidewire.history_seq', (pg_sequence_last_value('tidewire.history_seq') >> 32 << 32) | (tidewire.timeline() + 7))`)
}

// TestHistory_BegunByARollback: two histories in a row are each begun by a transaction that rolls back, with
// messages stored in between. A reader that has received messages that the first one lost gets an error.
func TestHistory_BegunByARollback(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	kept := appendEach(t, a, "kept", 5)
	lost := appendEach(t, a, "lost", 5)
	exec(t, db.Pool, `DELETE FROM tidewire.shared_message WHERE position > 5`)
	for _, what := range []string{"after one", "after two"} {
		tx := begin(t, db.Pool, pgx.ReadCommitted)
		exec(t, tx, `SELECT tidewire.begin_history()`)
		rollBack(t, tx)
		appendEach(t, run(t, db.Pool, s, stream.AppenderConfig{}), "new", 5)
		_, err := s.Read(t.Context(), lost[4], 100)
		wantLost(t, what, err, kept[4])
	}
}

// TestHistory_OpenTransaction: the first publisher after a failover keeps its transaction open. Neither
// subscriptions nor other publishers wait for it.
func TestHistory_OpenTransaction(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	hub, _ := runHub(t, db.Pool, stream.HubConfig{Poll: 500 * time.Millisecond, NoListen: true})
	a := run(t, db.Pool, s, stream.AppenderConfig{}) // another node's, which does not announce
	sub := subscribe(t, hub, s, stream.After(0))
	mustAppend(t, a, messages("a")...)
	next(t, sub)
	other := ensureWith(t, db.Pool, "another", stream.Options{})
	anotherTimeline(t, db.Pool)
	tx := begin(t, db.Pool, pgx.ReadCommitted)
	publish(t, tx, other, "x")
	exec(t, tx, `SET CONSTRAINTS ALL IMMEDIATE`) // an event store's AppendTx needs none
	second := begin(t, db.Pool, pgx.ReadCommitted)
	exec(t, second, `SET LOCAL lock_timeout = '30s'`)
	exec(t, second, `SELECT tidewire.begin_history(1)`) // like a process that has checked before the first began
	position := mustAppend(t, a, messages("b")...)
	if page := next(t, sub); page[0].Position != position {
		t.Errorf("the subscription got %d, want %d", page[0].Position, position)
	}
	commitTx(t, tx)
	commitTx(t, second)
}

// TestHistory_ReadOnlyReader: the first caller after a failover may only read. It is answered, and blocks no
// writer.
func TestHistory_ReadOnlyReader(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	kept := appendEach(t, a, "kept", 5)
	exec(t, db.Pool, `SELECT tidewire.begin_history()`) // an earlier failover
	later := mustAppend(t, a, messages("later")...)
	cfg := db.Pool.Config()
	cfg.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on" // a role for readers
	readers, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(readers.Close)
	there := lookUp(t, readers, s.Name())
	anotherTimeline(t, db.Pool)
	page, err := there.Read(t.Context(), kept[4], 10) // checks for losses between this and the next message
	if err != nil || len(page) != 1 || page[0].Position != later {
		t.Errorf("the read: %v, %v", page, err)
	}
	mustAppend(t, a, messages("new")...)
}

// TestHistory_NothingBetween: two histories with nothing between them leave no gaps that overlap.
func TestHistory_NothingBetween(t *testing.T) {
	t.Parallel()
	for name, opts := range storages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, _ := ensure(t)
			s := ensureWith(t, db.Pool, "gaps", opts)
			a := run(t, db.Pool, s, stream.AppenderConfig{})
			appendEach(t, a, "kept", 20)
			groups, _ := runGroups(t, db.Pool, stream.GroupsConfig{})
			group := openGroup(t, groups, s, "readers")
			mustCommit(t, group, 15)
			exec(t, db.Pool, `SELECT tidewire.begin_history()`)
			exec(t, db.Pool, `SELECT tidewire.begin_history()`)
			appendEach(t, a, "new", 5)
			if all, err := s.Groups(t.Context()); err != nil || all[0].Lag != 10 {
				t.Errorf("%+v, %v: want a lag of 10", all, err)
			}
			if info, err := s.Info(t.Context()); err != nil || info.Bytes < 0 || info.Bytes > 1<<20 {
				t.Errorf("%+v, %v", info, err)
			}
		})
	}
}

// TestHistory_PositionWithinAGap: positions of a batch that was rolled back, with messages of the same history after them, are not lost.
func TestHistory_PositionWithinAGap(t *testing.T) {
	t.Parallel()
	db, _ := ensure(t)
	s := ensureWith(t, db.Pool, "own", stream.Options{OwnTables: true})
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	appendEach(t, a, "kept", 5)
	tx := begin(t, db.Pool, pgx.ReadCommitted)
	publish(t, tx, s, "x", "y", "z")
	exec(t, tx, `SET CONSTRAINTS ALL IMMEDIATE`)
	rollBack(t, tx)
	kept := appendEach(t, a, "kept", 5)
	groups, _ := runGroups(t, db.Pool, stream.GroupsConfig{})
	group := openGroup(t, groups, s, "readers")
	exec(t, db.Pool, `SELECT tidewire.begin_history()`)
	appendEach(t, a, "new", 5)
	before := kept[0] - 1 // all positions before that one are settled
	if at, err := group.Commit(t.Context(), before); err != nil || at != before {
		t.Errorf("commit of what is before %d: %d, %v", kept[0], at, err)
	}
	if err := s.Check(t.Context(), before); err != nil {
		t.Errorf("check: %v", err)
	}
	if page, err := s.Read(t.Context(), before, 1); err != nil || page[0].Position != kept[0] {
		t.Errorf("read: %v, %v", page, err)
	}
}

// TestHistory_FollowerFindsLosses: a node that has only followed a stream reports what is lost, too.
func TestHistory_FollowerFindsLosses(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	hub, _ := runHub(t, db.Pool, stream.HubConfig{Poll: 50 * time.Millisecond})
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	sub := subscribe(t, hub, s, stream.After(0))
	appendEach(t, a, "kept", 5)
	for lost := appendEach(t, a, "lost", 5); sub.Position() < lost[4]; {
		next(t, sub)
	}
	exec(t, db.Pool, `DELETE FROM tidewire.shared_message WHERE position > 5`)
	exec(t, db.Pool, `SELECT tidewire.begin_history()`)
	testkit.Eventually(t, "losses are found", func() bool { return hub.Lost() > 0 })
	if n := hub.Lost(); n != 5 {
		t.Errorf("%d positions are said to be lost, want 5", n)
	}
	wantLost(t, "the subscription", nextError(t, sub), 5)
}

// TestHistory_LossesOfTwo: two histories begin before the first check: the losses of the first are found,
// too.
func TestHistory_LossesOfTwo(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	followed := ensureWith(t, db.Pool, "followed", stream.Options{})
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	hub := stream.NewHub(db.Pool, stream.HubConfig{Poll: 100 * time.Millisecond})
	b := run(t, db.Pool, followed, stream.AppenderConfig{Hub: hub})
	for range 2 {
		for _, one := range []*stream.Appender{a, b} {
			appendEach(t, one, "kept", 20)
			appendEach(t, one, "lost", 10)
		}
		exec(t, db.Pool, `DELETE FROM tidewire.shared_message WHERE position & (1 << 18) - 1 > 20`)
		exec(t, db.Pool, `SELECT tidewire.begin_history()`)
	}
	for _, one := range []*stream.Appender{a, b} {
		appendEach(t, one, "new", 5)
	}
	var found int64
	for range 2 { // one a call
		_, n, err := s.FindLost(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		found += n
	}
	if found != 20 {
		t.Errorf("%d positions are lost, want 20", found)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); hub.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	testkit.Eventually(t, "losses", func() bool { return hub.Lost() >= 20 })
	if n := hub.Lost(); n != 20 {
		t.Errorf("the hub has found %d lost positions, want 20", n)
	}
}

// TestHub_WrongPositionIsNoLoss: a client that names a position that never existed gets an error, and no
// other client is affected.
func TestHub_WrongPositionIsNoLoss(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	hub, _ := runHub(t, db.Pool, stream.HubConfig{})
	a := run(t, db.Pool, s, stream.AppenderConfig{Hub: hub})
	mustAppend(t, a, messages("a", "b")...)
	exec(t, db.Pool, `SELECT tidewire.begin_history()`)
	mustAppend(t, a, messages("c")...)
	steady := subscribe(t, hub, s, stream.After(0))
	for n := 0; n < 3; {
		n += len(next(t, steady))
	}
	wantLost(t, "a wrong position", nextError(t, subscribe(t, hub, s, stream.After(7))), 2)
	wantLost(t, "one past the end", nextError(t, subscribe(t, hub, s, stream.After(steady.Position()+1))), steady.Position())
	if n := hub.Lost(); n != 0 {
		t.Errorf("%d positions are said to be lost", n)
	}
	first := mustAppend(t, a, messages("d")...)
	if page := next(t, steady); page[0].Position != first {
		t.Errorf("goes on at %d, want %d", page[0].Position, first)
	}
}
