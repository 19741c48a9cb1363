package stream_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/stream"
)

// bothOf returns a pool on the writable server of the pair.
func bothOf(t *testing.T, p pgtest.Pair) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), p.Both(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// storages are the options for a shared stream and for one with its own tables.
var storages = map[string]stream.Options{"shared": {}, "own": {OwnTables: true}}

// appendEach appends n messages, each in a separate commit, and returns the positions.
func appendEach(t *testing.T, a *stream.Appender, what string, n int) (positions []int64) {
	t.Helper()
	for i := range n {
		positions = append(positions, mustAppend(t, a, stream.Message{Payload: fmt.Appendf(nil, "%s %d", what, i)}))
	}
	return positions
}

// wantLost wants a HistoryLostError with that last position.
func wantLost(t *testing.T, what string, err error, last int64) {
	t.Helper()
	lost, ok := errors.AsType[*stream.HistoryLostError](err)
	if !ok || lost.Last != last || !errors.Is(err, stream.ErrHistoryLost) {
		t.Errorf("%s: %v, want a HistoryLostError with %d", what, err, last)
	}
}

// nextError returns the error of Next, and fails if there is a page.
func nextError(t *testing.T, sub *stream.Subscription) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		page, err := sub.Next(ctx)
		if err != nil {
			return err
		}
		t.Errorf("%d messages from %d on", len(page), page[0].Position)
	}
}

// TestFailover_Asynchronous: the standby that takes over lacks the last messages. Their positions are never
// reused, and a reader that has received one of them gets an error.
func TestFailover_Asynchronous(t *testing.T) {
	t.Parallel()
	for name, opts := range storages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pgtest.StartPair(t, openMigrated)
			p.Unsynchronised(t)
			s := ensureWith(t, p.Pool, "orders", opts)
			pool := bothOf(t, p)
			hub, _ := runHub(t, pool, stream.HubConfig{Poll: 100 * time.Millisecond})
			a := run(t, pool, s, stream.AppenderConfig{Hub: hub})
			kept := appendEach(t, a, "kept", 50)
			p.CatchUp(t)
			p.Detach(t)
			lost := appendEach(t, a, "lost", 10)
			live, waiting := subscribe(t, hub, s, stream.After(0)), subscribe(t, hub, s, stream.AtEnd())
			for live.Position() < lost[9] {
				next(t, live)
			}
			further := subscribe(t, hub, s, stream.After(kept[20]))
			next(t, further)
			after := p.Promote(t)

			wantLost(t, "a subscription that had all", nextError(t, live), kept[49])
			wantLost(t, "a new one that had some", nextError(t, subscribe(t, hub, s, stream.After(lost[4]))), kept[49])
			wantLost(t, "a new one past the end", nextError(t, subscribe(t, hub, s, stream.After(lost[9]+1000))), kept[49])
			other, _ := runHub(t, after, stream.HubConfig{})
			wantLost(t, "one at another node", nextError(t, subscribe(t, other, s, stream.After(lost[4]))), kept[49])
			for deadline := time.Now().Add(30 * time.Second); hub.Lost() == 0 && time.Now().Before(deadline); {
				time.Sleep(10 * time.Millisecond)
			}
			if n := hub.Lost(); n != 10 {
				t.Errorf("%d positions are said to be lost, want 10", n)
			}

			there := lookUp(t, after, "orders")
			wantLost(t, "a check of what is lost", there.Check(t.Context(), lost[4]), kept[49])
			for _, position := range []int64{kept[20], kept[49]} {
				if err := there.Check(t.Context(), position); err != nil {
					t.Errorf("a check of what is kept: %v", err)
				}
			}
			groups, _ := runGroups(t, pool, stream.GroupsConfig{})
			group := openGroup(t, groups, s, "readers")
			commit := func(position int64, want error) {
				t.Helper()
				if _, err := group.Commit(t.Context(), position); !errors.Is(err, want) {
					t.Errorf("commit of %d: %v, want %v", position, err, want)
				}
			}
			commit(kept[20], nil)
			commit(lost[4], stream.ErrAhead)
			fresh := appendEach(t, a, "new", 5)
			commit(lost[4], stream.ErrAhead)
			commit(kept[40], nil)
			if all, err := there.Groups(t.Context()); err != nil || len(all) != 1 || all[0].Lag != 14 {
				t.Errorf("groups %+v, %v, want a lag of 9 and 5 messages", all, err)
			}
			commit(fresh[0], nil)
			if fresh[0] <= lost[9] || fresh[4] != fresh[0]+4 {
				t.Errorf("new positions %d", fresh)
			}
			wantNext := func(what string, sub *stream.Subscription, first int64) {
				t.Helper()
				if page := next(t, sub); page[0].Position != first {
					t.Errorf("%s: goes on at %d, want %d", what, page[0].Position, first)
				}
			}
			wantNext("one that had what is kept", subscribe(t, hub, s, stream.After(kept[49])), fresh[0])
			wantNext("one that began at the end", waiting, fresh[0])
			wantLost(t, "a new one that had some, later", nextError(t, subscribe(t, hub, s, stream.After(lost[4]))), kept[49])
			wantLost(t, "one at another node, later", nextError(t, subscribe(t, other, s, stream.After(lost[9]))), kept[49])
			for after, want := range map[int64]int64{kept[48]: kept[49], kept[49]: fresh[0], fresh[2]: fresh[3]} {
				found := lookUp(t, pool, s.Name())
				if page, err := found.Read(t.Context(), after, 1); err != nil || len(page) != 1 || page[0].Position != want {
					t.Errorf("after %d: %v, %v, want %d", after, page, err, want)
				}
				_, err := found.Read(t.Context(), lost[0], 1)
				wantLost(t, "a read", err, kept[49])
				_, err = found.ReadPage(t.Context(), fresh[4]+1, 10, 1000)
				wantLost(t, "a page past the end", err, fresh[4])
				if page, err := found.ReadRange(t.Context(), lost[0], 1); err != nil || page[0].Position != fresh[0] {
					t.Errorf("a range: %v, %v", page, err)
				}
				if all := everything(t, found); len(all) != 55 {
					t.Errorf("%d messages, want 55", len(all))
				}
			}
		})
	}
}

// TestFailover_EachWayOfWriting checks that every way of writing allocates positions after the base of the
// new history.
func TestFailover_EachWayOfWriting(t *testing.T) {
	t.Parallel()
	ways := map[string]func(pool *pgxpool.Pool, s *stream.Stream) int64{
		"together": func(pool *pgxpool.Pool, s *stream.Stream) int64 {
			return mustAppend(t, run(t, pool, s, stream.AppenderConfig{}), stream.Message{})
		},
		"alone": func(pool *pgxpool.Pool, s *stream.Stream) int64 {
			return mustAppend(t, run(t, pool, s, stream.AppenderConfig{Linger: time.Millisecond}), stream.Message{})
		},
		"copy": func(pool *pgxpool.Pool, s *stream.Stream) int64 {
			return mustAppend(t, run(t, pool, s, stream.AppenderConfig{Writer: stream.WriterConfig{Method: stream.Copy}}), stream.Message{})
		},
		"as": func(pool *pgxpool.Pool, s *stream.Stream) int64 {
			stored, err := run(t, pool, s, stream.AppenderConfig{}).AppendAs(t.Context(), stream.RequestID{Client: "p"}, stream.Message{})
			if err != nil {
				t.Fatal(err)
			}
			return stored.First
		},
	}
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead} {
		ways["tx "+string(level)] = func(pool *pgxpool.Pool, s *stream.Stream) int64 {
			tx := begin(t, pool, level)
			publish(t, tx, s, "x")
			commitTx(t, tx)
			found := lookUp(t, pool, s.Name())
			head, err := found.Head(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return head
		}
	}
	p := pgtest.StartPair(t, openMigrated)
	streams := make(map[string]*stream.Stream)
	for way := range ways {
		for name, opts := range storages {
			s := ensureWith(t, p.Pool, way+" "+name, opts)
			mustAppend(t, run(t, p.Pool, s, stream.AppenderConfig{}), stream.Message{})
			streams[way+" "+name] = s
		}
	}
	after := p.Promote(t)
	var least int64
	for way, write := range ways {
		for name := range storages {
			s := streams[way+" "+name]
			position := write(after, s)
			if least == 0 {
				if err := after.QueryRow(t.Context(), `SELECT max(base) FROM tidewire.bases() AS base`).Scan(&least); err != nil || least == 0 {
					t.Fatalf("base %d, %v", least, err)
				}
			}
			if position != least+1 && (name == "own" || way != "tx repeatable read" || position <= least) {
				t.Errorf("%s, %s: position %d, want the one after %d", way, name, position, least)
			}
		}
	}
	var histories int
	if _, err := migrate.EnterHistory(t.Context(), after); err != nil {
		t.Fatal(err)
	}
	if err := after.QueryRow(t.Context(), `SELECT count(*) FROM tidewire.history`).Scan(&histories); err != nil || histories != 2 {
		t.Errorf("%d histories, %v, want 2", histories, err)
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

// TestFailover_LostUnfollowed: the node that has appended lost messages reports the loss, even if no one
// follows the stream, whether it appends again or not.
func TestFailover_LostUnfollowed(t *testing.T) {
	t.Parallel()
	for name, opts := range storages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pgtest.StartPair(t, openMigrated)
			p.Unsynchronised(t)
			if _, err := p.Pool.Exec(t.Context(), `SELECT tidewire.begin_history()`); err != nil { // its gap is not counted
				t.Fatal(err)
			}
			pool := bothOf(t, p)
			hub, _ := runHub(t, pool, stream.HubConfig{Poll: 100 * time.Millisecond})
			appenders := map[string]*stream.Appender{"idle": nil, "busy": nil, "kept": nil}
			for name := range appenders {
				s := ensureWith(t, p.Pool, name, opts)
				appenders[name] = run(t, pool, s, stream.AppenderConfig{Hub: hub})
				if name != "idle" { // this history loses its first messages
					appendEach(t, appenders[name], "kept", 20)
				}
			}
			p.CatchUp(t)
			p.Detach(t)
			appendEach(t, appenders["idle"], "lost", 10)
			appendEach(t, appenders["busy"], "lost", 5)
			p.Promote(t)
			appendEach(t, appenders["busy"], "new", 5)
			for deadline := time.Now().Add(30 * time.Second); hub.Lost() < 15 && time.Now().Before(deadline); {
				time.Sleep(10 * time.Millisecond)
			}
			appendEach(t, appenders["busy"], "new", 5)
			time.Sleep(300 * time.Millisecond) // some polls
			if n := hub.Lost(); n != 15 {
				t.Errorf("%d positions are said to be lost, want 15", n)
			}
		})
	}
}

// TestFailover_FindLost: without a Hub, FindLost returns each loss once, whether the stream was appended to
// again or not.
func TestFailover_FindLost(t *testing.T) {
	t.Parallel()
	p := pgtest.StartPair(t, openMigrated)
	p.Unsynchronised(t)
	pool := bothOf(t, p)
	streams, appenders := make(map[string]*stream.Stream), make(map[string]*stream.Appender)
	for _, name := range []string{"idle", "busy", "kept", "unused"} {
		if _, err := stream.Ensure(t.Context(), p.Pool, name, storages["own"]); err != nil {
			t.Fatal(err)
		}
		s := lookUp(t, pool, name)
		streams[name], appenders[name] = s, run(t, pool, s, stream.AppenderConfig{})
		if name != "unused" {
			appendEach(t, appenders[name], "kept", 20)
		}
	}
	find := func(when, name string, want stream.Gap) {
		t.Helper()
		gap, n, err := streams[name].FindLost(t.Context())
		if err != nil || gap != want || n != want.UpTo-want.After {
			t.Errorf("%s, %s: %d positions are lost, %+v, want %+v: %v", when, name, n, gap, want, err)
		}
	}
	find("no failover", "idle", stream.Gap{})
	p.CatchUp(t)
	p.Detach(t)
	appendEach(t, appenders["idle"], "lost", 10)
	appendEach(t, appenders["busy"], "lost", 5)
	p.Promote(t)
	appendEach(t, appenders["busy"], "new", 5)
	for name, want := range map[string]stream.Gap{"idle": {After: 20, UpTo: 30}, "busy": {After: 20, UpTo: 25}, "kept": {}, "unused": {}} {
		find("after the failover", name, want)
		find("the same again", name, stream.Gap{})
		appendEach(t, appenders[name], "new", 5)
		find("the same later", name, stream.Gap{})
	}
}
