package stream_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/stream"
)

// failover is a primary with an asynchronous standby that lacks the last messages and takes over. Several parts of a test share it; each
// has a database of its own.
type failover struct {
	pgtest.Pair
	parts    int
	mu       sync.Mutex
	arrived  [2]int // how many parts have come to each step
	happened [2]chan struct{}
}

// part is a part of the test: something happens, the standby is detached by lose, more happens and is lost, and promote lets the standby
// take over.
type part struct {
	*failover
	database      string
	primary, pool *pgxpool.Pool // of the primary, and of the writable server
	steps         int
}

func (p *part) lose(t *testing.T) { p.step(t, true) }

func (p *part) promote(t *testing.T) *pgxpool.Pool {
	p.step(t, true)
	return p.open(t, p.Standby.URL())
}

// step waits until all parts have come to the next step.
func (p *part) step(t *testing.T, wait bool) {
	t.Helper()
	n := p.steps
	p.steps++
	p.mu.Lock()
	p.arrived[n]++
	last := p.arrived[n] == p.parts
	p.mu.Unlock()
	if last {
		defer close(p.happened[n])
		if n == 0 {
			p.CatchUp(t)
			p.Detach(t)
		} else {
			p.Promote(t)
		}
	} else if wait {
		<-p.happened[n]
	}
}

func (p *part) open(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	return poolWith(t, url, func(cfg *pgxpool.Config) { cfg.ConnConfig.Database = p.database })
}

// TestFailover: the standby that takes over lacks the last messages. Their positions are never reused, and a reader that has received
// one of them gets an error.
func TestFailover(t *testing.T) {
	t.Parallel()
	notShort(t)
	parts := map[string]func(*testing.T, *part){
		"each way of writing": failoverWriting, "found without a hub": failoverFindLost, "ids": failoverIDs, "looked for again": failoverAgain,
		"peers": failoverPeers, "standby of the former primary": failoverFormer,
	}
	for name, test := range map[string]func(*testing.T, *part, stream.Options){
		"readers": failoverReaders, "unfollowed": failoverUnfollowed, "requests": failoverRequests, "retention": failoverRetention,
	} {
		for storage, opts := range storages {
			parts[name+" "+storage] = func(t *testing.T, p *part) { test(t, p, opts) }
		}
	}
	f := &failover{Pair: pgtest.StartPair(t, openMigrated), parts: len(parts), happened: [2]chan struct{}{make(chan struct{}), make(chan struct{})}}
	f.Unsynchronised(t)
	f.Pool.Reset() // a template has no connections
	admin := poolWith(t, f.Primary.URL(), func(cfg *pgxpool.Config) { cfg.ConnConfig.Database = "postgres" })
	var running sync.WaitGroup
	for name, test := range parts {
		database := "part_" + strings.ReplaceAll(name, " ", "_")
		exec(t, admin, `CREATE DATABASE `+database+` TEMPLATE tidewire`)
		running.Go(func() {
			t.Run(name, func(t *testing.T) {
				p := &part{failover: f, database: database}
				defer func() {
					for p.steps < 2 { // it has failed; the others go on
						p.step(t, false)
					}
				}()
				p.primary, p.pool = p.open(t, f.Primary.URL()), p.open(t, f.Both(t))
				test(t, p)
			})
		})
	}
	running.Wait()
}

// failoverReaders: the standby that takes over lacks the last messages. Their positions are never
// reused, and a reader that has received one of them gets an error.
func failoverReaders(t *testing.T, p *part, opts stream.Options) {
	s := ensureWith(t, p.primary, "orders", opts)
	hub, _ := runHub(t, p.pool, stream.HubConfig{Poll: 100 * time.Millisecond})
	a := run(t, p.pool, s, stream.AppenderConfig{Hub: hub})
	kept := appendEach(t, a, "kept", 50)
	p.lose(t)
	lost := appendEach(t, a, "lost", 10)
	live, waiting := subscribe(t, hub, s, stream.After(0)), subscribe(t, hub, s, stream.AtEnd())
	for live.Position() < lost[9] {
		next(t, live)
	}
	further := subscribe(t, hub, s, stream.After(kept[20]))
	next(t, further)
	after := p.promote(t)

	wantLost(t, "a subscription that had all", nextError(t, live), kept[49])
	wantLost(t, "a new one that had some", nextError(t, subscribe(t, hub, s, stream.After(lost[4]))), kept[49])
	wantLost(t, "a new one past the end", nextError(t, subscribe(t, hub, s, stream.After(lost[9]+1000))), kept[49])
	other, _ := runHub(t, after, stream.HubConfig{})
	wantLost(t, "one at another node", nextError(t, subscribe(t, other, s, stream.After(lost[4]))), kept[49])
	testkit.Eventually(t, "losses are found", func() bool { return hub.Lost() > 0 })
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
	groups, _ := runGroups(t, p.pool, stream.GroupsConfig{})
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
		found := lookUp(t, p.pool, s.Name())
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
}

// failoverWriting checks that every way of writing allocates positions after the base of the
// new history.
func failoverWriting(t *testing.T, p *part) {
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
	streams := make(map[string]*stream.Stream)
	for way := range ways {
		for name, opts := range storages {
			s := ensureWith(t, p.primary, way+" "+name, opts)
			mustAppend(t, run(t, p.primary, s, stream.AppenderConfig{}), stream.Message{})
			streams[way+" "+name] = s
		}
	}
	p.lose(t)
	after := p.promote(t)
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

// failoverUnfollowed: the node that has appended lost messages reports the loss, even if no one
// follows the stream, whether it appends again or not.
func failoverUnfollowed(t *testing.T, p *part, opts stream.Options) {
	if _, err := p.primary.Exec(t.Context(), `SELECT tidewire.begin_history()`); err != nil { // its gap is not counted
		t.Fatal(err)
	}
	hub, stop := runHub(t, p.pool, stream.HubConfig{Poll: 100 * time.Millisecond})
	appenders := map[string]*stream.Appender{"idle": nil, "busy": nil, "kept": nil}
	for name := range appenders {
		s := ensureWith(t, p.primary, name, opts)
		appenders[name] = run(t, p.pool, s, stream.AppenderConfig{Hub: hub})
		if name != "idle" { // this history loses its first messages
			appendEach(t, appenders[name], "kept", 20)
		}
	}
	p.lose(t)
	appendEach(t, appenders["idle"], "lost", 10)
	appendEach(t, appenders["busy"], "lost", 5)
	p.promote(t)
	appendEach(t, appenders["busy"], "new", 5)
	testkit.Eventually(t, "losses are found", func() bool { return hub.Lost() >= 15 })
	appendEach(t, appenders["busy"], "new", 5)
	stop() // after its last poll
	if n := hub.Lost(); n != 15 {
		t.Errorf("%d positions are said to be lost, want 15", n)
	}
}

// failoverFindLost: without a Hub, FindLost returns each loss once, whether the stream was appended to
// again or not.
func failoverFindLost(t *testing.T, p *part) {
	streams, appenders := make(map[string]*stream.Stream), make(map[string]*stream.Appender)
	for _, name := range []string{"idle", "busy", "kept", "unused"} {
		if _, err := stream.Ensure(t.Context(), p.primary, name, storages["own"]); err != nil {
			t.Fatal(err)
		}
		s := lookUp(t, p.pool, name)
		streams[name], appenders[name] = s, run(t, p.pool, s, stream.AppenderConfig{})
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
	p.lose(t)
	appendEach(t, appenders["idle"], "lost", 10)
	appendEach(t, appenders["busy"], "lost", 5)
	p.promote(t)
	appendEach(t, appenders["busy"], "new", 5)
	for name, want := range map[string]stream.Gap{"idle": {After: 20, UpTo: 30}, "busy": {After: 20, UpTo: 25}, "kept": {}, "unused": {}} {
		find("after the failover", name, want)
		find("the same again", name, stream.Gap{})
		appendEach(t, appenders[name], "new", 5)
		find("the same later", name, stream.Gap{})
	}
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
