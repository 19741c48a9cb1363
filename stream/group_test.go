package stream_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

// TestGroup_CommitLater: calls are combined in a transaction, and written at the end at the latest. A Seek replaces those before it. After the
// end nothing is accepted.
func TestGroup_CommitLater(t *testing.T) {
	t.Parallel()
	db, s := ensureOwn(t)
	reach(t, db.Pool, s)
	pool, writes := countingPool(t, db.URL, "commit_offsets")
	gs, stop := runGroups(t, pool, stream.GroupsConfig{LaterEvery: time.Hour})
	var all []*stream.Group
	for n := range 20 {
		all = append(all, openGroup(t, gs, s, fmt.Sprint(n)))
	}
	for position := range int64(100) {
		for _, g := range all {
			g.CommitLater(position)
			g.CommitLater(position - 1)
		}
	}
	if got, err := all[0].Commit(t.Context(), 1); err != nil || got != 99 {
		t.Errorf("Commit with others pending: %d, %v, want 99", got, err)
	}
	if n := writes.count.Load(); n > 2 {
		t.Errorf("%d transactions, want one for all", n)
	}
	all[3].CommitLater(150)
	must(t, all[3].Seek(t.Context(), 6))
	all[7].CommitLater(200)
	stop()
	for i, want := range map[int]int64{1: 99, 3: 6, 7: 200} {
		wantOffset(t, all[i], want)
	}
	if _, err := all[7].Commit(t.Context(), 201); !errors.Is(err, stream.ErrClosed) {
		t.Errorf("Commit after the end: %v, want ErrClosed", err)
	}
	all[7].CommitLater(201)
}

func currentTable(t *testing.T, db pgtest.DB) int {
	t.Helper()
	return value[int](t, db.Pool, `SELECT current FROM tidewire.group_rotation`)
}

// runGroups starts Groups, which are stopped when the test ends.
func runGroups(t *testing.T, pool *pgxpool.Pool, cfg stream.GroupsConfig) (gs *stream.Groups, stop func()) {
	t.Helper()
	gs = stream.NewGroups(pool, cfg)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { gs.Run(ctx) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return gs, stop
}

func openGroup(t *testing.T, gs *stream.Groups, s *stream.Stream, name string) *stream.Group {
	t.Helper()
	g, err := gs.Open(t.Context(), s, name, stream.GroupOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func wantOffset(t *testing.T, g *stream.Group, want int64) {
	t.Helper()
	if offset, err := g.Offset(t.Context()); err != nil || offset != want {
		t.Errorf("offset of %s is %d, %v, want %d", g.Name(), offset, err, want)
	}
}

// reach moves the end of the stream, or of each of its partitions, far ahead: so
// that offsets can be committed without messages.
func reach(t *testing.T, pool *pgxpool.Pool, s *stream.Stream) {
	t.Helper()
	for _, sql := range []string{
		`SELECT setval(format('tidewire.stream_%s_position_seq', id)::regclass, 1000000000) FROM tidewire.stream
			WHERE partitions = 0 AND NOT shared AND (id = $1 OR parent = $1)`,
		`INSERT INTO tidewire.shared_message (stream, position, keyed, payload) SELECT id, 1000000000, keyed, '' FROM tidewire.stream
			WHERE partitions = 0 AND shared AND (id = $1 OR parent = $1)`,
	} {
		if _, err := pool.Exec(t.Context(), sql, s.ID()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGroup_OffsetMissing: a group of a partially restored database has no offset.
// It returns ErrIncomplete, and Seek repairs it.
func TestGroup_OffsetMissing(t *testing.T) {
	t.Parallel()
	db, s := ensureOwn(t)
	reach(t, db.Pool, s)
	gs, _ := runGroups(t, db.Pool, stream.GroupsConfig{})
	g, other := openGroup(t, gs, s, "g"), openGroup(t, gs, s, "other")
	exec(t, db.Pool, `DELETE FROM tidewire.group_offset_0 WHERE group_id = (SELECT id FROM tidewire.stream_group WHERE name = 'g')`)
	_, offsetErr := g.Offset(t.Context())
	_, commitErr := g.Commit(t.Context(), 7)
	_, listErr := s.Groups(t.Context())
	for what, err := range map[string]error{"Offset": offsetErr, "Commit": commitErr, "Stream.Groups": listErr} {
		if !errors.Is(err, stream.ErrIncomplete) {
			t.Errorf("%s: %v, want ErrIncomplete", what, err)
		}
	}
	if got, err := other.Commit(t.Context(), 7); err != nil || got != 7 {
		t.Errorf("another group: %d, %v", got, err)
	}
	must(t, g.Seek(t.Context(), 5))
	wantOffset(t, g, 5)
}

func TestGroup_CommitsForwardAndSeeksAnywhere(t *testing.T) {
	t.Parallel()
	db, s := ensureOwn(t)
	reach(t, db.Pool, s)
	// Nothing here may depend on the database's default.
	exec(t, db.Pool, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = serializable', current_database()); END $$`)
	db.Pool.Reset()
	gs, _ := runGroups(t, db.Pool, stream.GroupsConfig{})
	other, _ := runGroups(t, db.Pool, stream.GroupsConfig{})
	here, there := openGroup(t, gs, s, "g"), openGroup(t, other, s, "g")
	wantOffset(t, here, 0)
	for _, c := range []struct {
		g            *stream.Group
		commit, want int64
	}{{here, 0, 0}, {here, 5, 5}, {there, 3, 5}, {there, 9, 9}, {here, 9, 9}, {here, 7, 9}} {
		if got, err := c.g.Commit(t.Context(), c.commit); err != nil || got != c.want {
			t.Errorf("Commit(%d): %d, %v, want %d", c.commit, got, err, c.want)
		}
		wantOffset(t, there, c.want)
	}
	for _, to := range []int64{2, 100, 100, 0} {
		must(t, there.Seek(t.Context(), to))
		wantOffset(t, here, to)
	}
	if got, err := here.Commit(t.Context(), 4); err != nil || got != 4 {
		t.Errorf("Commit after Seek: %d, %v, want 4", got, err)
	}
	if _, err := here.Commit(t.Context(), -1); !errors.Is(err, stream.ErrInvalid) {
		t.Errorf("Commit(-1): %v, want ErrInvalid", err)
	}
	if err := here.Seek(t.Context(), -1); !errors.Is(err, stream.ErrInvalid) {
		t.Errorf("Seek(-1): %v, want ErrInvalid", err)
	}
}

func TestGroups_OpenListDrop(t *testing.T) {
	t.Parallel()
	db, s := ensureOwn(t)
	gs, _ := runGroups(t, db.Pool, stream.GroupsConfig{})
	exec(t, db.Pool, `INSERT INTO tidewire.stream_1000 (position, payload) VALUES (1, ''), (2, ''), (10, ''); SELECT setval('tidewire.stream_1000_position_seq', 10)`)
	for name, c := range map[string]struct {
		start  stream.Start
		offset int64
	}{"all": {stream.Start{}, 0}, "end": {stream.AtEnd(), 10}, "Äther": {stream.After(2), 2}} {
		for range 2 {
			g, err := gs.Open(t.Context(), s, name, stream.GroupOptions{Start: c.start})
			if err != nil {
				t.Fatal(err)
			}
			wantOffset(t, g, c.offset)
			c.start = stream.After(7) // the second does not make it
		}
	}
	openGroup(t, gs, ensureOn(t, db.Pool, "other"), "all")
	all, err := s.Groups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if all[i].CreatedAt.IsZero() {
			t.Errorf("%s has no time", all[i].Name)
		}
		all[i].CreatedAt = time.Time{}
	}
	if got, want := fmt.Sprint(all), fmt.Sprint([]stream.GroupInfo{{Name: "all", Lag: 10}, {Name: "end", Offset: 10}, {Name: "Äther", Offset: 2, Lag: 8}}); got != want {
		t.Errorf("Stream.Groups: %s, want %s", got, want)
	}
	g := openGroup(t, gs, s, "all")
	must(t, s.DropGroup(t.Context(), "all"))
	wantNotFound(t, g)
	if err := s.DropGroup(t.Context(), "all"); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("DropGroup again: %v, want ErrNotFound", err)
	}
	wantOffset(t, openGroup(t, gs, s, "all"), 0)
	for _, name := range []string{"", "\x00", strings.Repeat("n", stream.MaxName+1)} {
		if _, err := gs.Open(t.Context(), s, name, stream.GroupOptions{}); !errors.Is(err, stream.ErrInvalid) {
			t.Errorf("Open(%q): %v, want ErrInvalid", name, err)
		}
	}
	g = openGroup(t, gs, s, "end")
	must(t, stream.Drop(t.Context(), db.Pool, "orders"))
	wantNotFound(t, g)
	if _, err := gs.Open(t.Context(), s, "new", stream.GroupOptions{}); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("Open of a dropped stream: %v, want ErrNotFound", err)
	}
}

func wantNotFound(t *testing.T, g *stream.Group) {
	t.Helper()
	_, readErr := g.Offset(t.Context())
	_, commitErr := g.Commit(t.Context(), 5)
	seekErr := g.Seek(t.Context(), 5)
	for what, err := range map[string]error{"Offset": readErr, "Commit": commitErr, "Seek": seekErr} {
		if !errors.Is(err, stream.ErrNotFound) {
			t.Errorf("%s of a dropped group: %v, want ErrNotFound", what, err)
		}
	}
}

func TestGroups_RacedOpenMakesOne(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	var racing sync.WaitGroup
	for _, pool := range pools(t, db.URL, 3) {
		gs := stream.NewGroups(pool, stream.GroupsConfig{})
		for range 4 {
			racing.Go(func() {
				if _, err := gs.Open(t.Context(), s, "raced", stream.GroupOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	racing.Wait()
	if all, err := s.Groups(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("groups %v, %v, want one", all, err)
	}
}

// TestGroup_CommitAhead: a position after the end of the stream is rejected. The
// commits of other callers in its transaction are stored.
func TestGroup_CommitAhead(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	for range 3 {
		mustAppend(t, a, stream.Message{Payload: []byte("x")})
	}
	gs, stop := runGroups(t, db.Pool, stream.GroupsConfig{LaterEvery: time.Millisecond})
	g, other := openGroup(t, gs, s, "g"), openGroup(t, gs, s, "other")
	for _, position := range []int64{4, math.MaxInt64} {
		if got, err := g.Commit(t.Context(), position); !errors.Is(err, stream.ErrAhead) {
			t.Errorf("Commit(%d): %d, %v, want ErrAhead", position, got, err)
		}
	}
	if got, err := other.Commit(t.Context(), 2); err != nil || got != 2 {
		t.Errorf("Commit of another group: %d, %v", got, err)
	}
	if got, err := g.Commit(t.Context(), 3); err != nil || got != 3 {
		t.Errorf("Commit of the last message: %d, %v", got, err)
	}
	if err := g.Seek(t.Context(), 1000); err != nil {
		t.Errorf("Seek: %v", err)
	}
	if got, err := g.Commit(t.Context(), 1000); err != nil || got != 1000 {
		t.Errorf("Commit where Seek has gone: %d, %v", got, err)
	}
	var calling sync.WaitGroup // in one batch, mostly
	for n := range int64(20) {
		calling.Go(func() {
			if got, err := other.Commit(t.Context(), 3+n*n); (n == 0) != (err == nil) || n == 0 && got != 3 {
				t.Errorf("Commit(%d) beside others: %d, %v", 3+n*n, got, err)
			}
		})
	}
	calling.Wait()
	g.CommitLater(2000)
	stop()
	wantOffset(t, g, 1000)
}

// TestGroup_CommitLaterBesideAhead: a CommitLater is not lost because other callers
// commit positions after the end: few, many, or the one directly after the last.
func TestGroup_CommitLaterBesideAhead(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	for range 3 {
		mustAppend(t, a, stream.Message{Payload: []byte("x")})
	}
	for name, ahead := range map[string][]int64{
		"one": {1 << 40}, "next": {4}, "many": numbers(1000, 1500), "all that there are": append(numbers(4, 40), math.MaxInt64),
	} {
		t.Run(name, func(t *testing.T) {
			pool, writes := countingPool(t, db.URL, "commit_offsets")
			gs, stop := runGroups(t, pool, stream.GroupsConfig{LaterEvery: time.Hour}) // all in one batch
			g := openGroup(t, gs, s, name)
			other := openGroup(t, gs, s, name+", other")
			for _, position := range ahead {
				g.CommitLater(position)
				if position%2 == 0 {
					g.CommitLater(1 + position/2%3)
				}
			}
			for position := range int64(4) {
				g.CommitLater(position)
				other.CommitLater(position)
			}
			stop()
			wantOffset(t, g, 3)
			wantOffset(t, other, 3)
			if got := writes.count.Load(); got != 2 {
				t.Errorf("%d transactions, want one, and one more because of what is ahead", got)
			}
		})
	}
}

func numbers(from, to int64) []int64 {
	var all []int64
	for n := from; n < to; n++ {
		all = append(all, n)
	}
	return all
}

// TestGroup_CommitsShareTransactions blocks the first commit; those that come
// meanwhile share a transaction.
func TestGroup_CommitsShareTransactions(t *testing.T) {
	t.Parallel()
	db, s := ensureOwn(t)
	reach(t, db.Pool, s)
	pool, writes := countingPool(t, db.URL, "commit_offsets")
	gs, _ := runGroups(t, pool, stream.GroupsConfig{})
	const callers = 40
	var all []*stream.Group
	for n := range callers {
		all = append(all, openGroup(t, gs, s, fmt.Sprint(n)))
	}
	before := writes.count.Load()
	tx := begin(t, db.Pool, "")
	exec(t, tx, `SELECT pg_advisory_xact_lock(1953064037, 2)`)
	var committing, calling sync.WaitGroup
	for i, g := range all {
		calling.Add(1)
		committing.Go(func() {
			calling.Done()
			if got, err := g.Commit(t.Context(), 2); err != nil || got != 2 {
				t.Errorf("Commit: %d, %v", got, err)
			}
		})
		if i == 0 {
			awaitLockWaiters(t, db, 1)
		}
	}
	calling.Wait()
	rollBack(t, tx)
	committing.Wait()
	if n := writes.count.Load() - before; n == 0 || n > callers/4 {
		t.Errorf("%d transactions for %d commits", n, callers)
	}
}
