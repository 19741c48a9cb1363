package stream_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
)

// smallTables rotate every few pages.
var smallTables = stream.GroupsConfig{RotateRows: 300}

// commitUnderLoad lets nodes commit the offsets of the same groups until over is
// closed: no returned and no read offset may ever decrease. It calls ready when it
// begins.
func commitUnderLoad(t *testing.T, nodes []*pgxpool.Pool, s *stream.Stream, over <-chan struct{}, ready func()) {
	reach(t, nodes[0], s)
	const groups = 8
	var committing sync.WaitGroup
	var next, answered [groups]atomic.Int64
	opened := make([][]*stream.Group, len(nodes))
	for n, pool := range nodes {
		gs, _ := runGroups(t, pool, smallTables)
		for i := range groups {
			opened[n] = append(opened[n], openGroup(t, gs, s, fmt.Sprint(i)))
		}
	}
	ready()
	for n := range nodes {
		for i, g := range opened[n] {
			committing.Go(func() {
				for open := true; open || next[i].Load() < 10; { // on a slow machine the last commits come after the faults
					select {
					case <-over:
						open = false
					default:
					}
					commitOnce(t, g, next[i].Add(1), &answered[i])
				}
			})
		}
		committing.Go(func() {
			for open := true; open; {
				select {
				case <-over:
					open = false
				default:
				}
				readOnce(t, opened[n][n], &answered[n])
			}
		})
	}
	committing.Wait()
	for i, g := range opened[0] {
		wantOffset(t, g, next[i].Load())
	}
}

func commitOnce(t *testing.T, g *stream.Group, position int64, answered *atomic.Int64) {
	before := answered.Load()
	got, err := g.Commit(t.Context(), position)
	if err != nil || got < position || got < before {
		t.Errorf("Commit(%d): %d, %v; %d was answered before", position, got, err, before)
	}
	for old := answered.Load(); old < got && !answered.CompareAndSwap(old, got); old = answered.Load() {
	}
}

func readOnce(t *testing.T, g *stream.Group, answered *atomic.Int64) {
	before := answered.Load()
	got, err := g.Offset(t.Context())
	if pg.Retryable(err) {
		pg.Backoff(t.Context(), 3)
		return
	}
	if err != nil || got < before {
		t.Errorf("Offset: %d, %v; %d was answered before", got, err, before)
	}
}

func offsetTableSizes(t *testing.T, pool *pgxpool.Pool) (inUse, old int64) {
	t.Helper()
	err := pool.QueryRow(t.Context(), `
SELECT pg_relation_size(format('tidewire.group_offset_%s', current)::regclass), pg_relation_size(format('tidewire.group_offset_%s', 1 - current)::regclass)
FROM tidewire.group_rotation`).Scan(&inUse, &old)
	if err != nil {
		t.Fatal(err)
	}
	return inUse, old
}

// TestGroups_RotateUnderLoad: the tables change roles while nodes commit, unless a snapshot sees the old one, or a transaction has read both;
// then the one in use grows, and no one waits.
func TestGroups_RotateUnderLoad(t *testing.T) {
	t.Parallel()
	notShort(t)
	db, s := ensureOwn(t)
	// Any snapshot held, of a transaction that has not read the tables.
	holder := repeatableRead(t, db, `SELECT FROM tidewire.stream`)
	reader := begin(t, pools(t, db.URL, 1)[0], "")
	exec(t, reader, `SELECT count(*) FROM tidewire.group_offset_0, tidewire.group_offset_1`)
	over := make(chan struct{})
	var committing sync.WaitGroup
	committing.Go(func() { commitUnderLoad(t, pools(t, db.URL, 2), s, over, func() {}) })
	testkit.Eventually(t, "the table in use grows", func() bool {
		inUse, _ := offsetTableSizes(t, db.Pool)
		return inUse >= 2000*52
	})
	groups := value[int](t, holder, `SELECT count(*) FROM tidewire.stream_group`)
	seen := value[int](t, holder, `SELECT CASE current WHEN 0 THEN (SELECT count(*) FROM tidewire.group_offset_0) ELSE (SELECT count(*) FROM tidewire.group_offset_1) END
		FROM tidewire.group_rotation`)
	if seen < groups {
		t.Errorf("a snapshot sees %d groups and %d offsets", groups, seen)
	}
	rollBack(t, holder)
	rollBack(t, reader)
	for n := range 2 {
		before := currentTable(t, db)
		testkit.Eventually(t, fmt.Sprint("rotation ", n), func() bool { return currentTable(t, db) != before })
	}
	close(over)
	committing.Wait()
}

// repeatableRead begins a transaction that holds its snapshot, and the locks
// of what it read.
func repeatableRead(t *testing.T, db pgtest.DB, sql string) pgx.Tx {
	t.Helper()
	tx := begin(t, db.Pool, pgx.RepeatableRead)
	exec(t, tx, sql)
	return tx
}

// TestGroups_ManyGroupsRotateSeldom: the last rows of all groups fill more
// than the table may hold.
func TestGroups_ManyGroupsRotateSeldom(t *testing.T) {
	t.Parallel()
	notShort(t)
	db, s := ensureOwn(t)
	reach(t, db.Pool, s)
	gs, _ := runGroups(t, db.Pool, stream.GroupsConfig{RotateRows: 10})
	g := openGroup(t, gs, s, "g")
	exec(t, db.Pool, `SELECT tidewire.ensure_group(1000, 'group ' || n, 0) FROM generate_series(1, 1000) AS n`)
	rotations, last := 0, currentTable(t, db)
	for n := range int64(100) {
		mustCommit(t, g, n+1)
		if now := currentTable(t, db); now != last {
			rotations++
			last = now
		}
	}
	if rotations > 2 {
		t.Errorf("%d rotations for 100 commits", rotations)
	}
	if all, err := s.Groups(t.Context()); err != nil || len(all) != 1001 {
		t.Errorf("%d groups, %v", len(all), err)
	}
}

// logFunc is called with each line of a log.
type logFunc func(line string)

func (f logFunc) Write(p []byte) (int, error) { f(string(p)); return len(p), nil }

// TestGroup_CommitFailsAtTheEnd makes the COMMIT of offsets fail after the
// function's result, and removes the group, or its owner, before the retry: the
// first result does not count.
func TestGroup_CommitFailsAtTheEnd(t *testing.T) {
	t.Parallel()
	const owned = 1 << 40 // a token
	for name, c := range map[string]struct {
		commit func(context.Context, *stream.Group) (int64, error)
		lose   string
		want   error
	}{
		"dropped": {
			func(ctx context.Context, g *stream.Group) (int64, error) { return g.Commit(ctx, 7) },
			`DELETE FROM tidewire.stream_group`, stream.ErrNotFound,
		},
		"other owner": {
			func(ctx context.Context, g *stream.Group) (int64, error) { return g.CommitOwned(ctx, owned, 7) },
			`DELETE FROM tidewire.share_number`, stream.ErrNotOwner,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, s := ensure(t)
			failed := sync.OnceFunc(func() {
				if _, err := db.Pool.Exec(t.Context(), c.lose+`; DROP FUNCTION fail_commit CASCADE`); err != nil {
					t.Error(err)
				}
			})
			log := slog.New(slog.NewTextHandler(logFunc(func(line string) {
				if strings.Contains(line, "offsets not committed, trying again") {
					failed()
				}
			}), nil))
			reach(t, db.Pool, s)
			gs, _ := runGroups(t, db.Pool, stream.GroupsConfig{Log: log})
			g := openGroup(t, gs, s, "group")
			if _, err := db.Pool.Exec(t.Context(), fmt.Sprintf(`
INSERT INTO tidewire.share (name) VALUES ('share');
INSERT INTO tidewire.share_number SELECT id, 0, 1, %d FROM tidewire.share;
CREATE FUNCTION fail_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now' USING ERRCODE = 'serialization_failure'; END $$;
CREATE CONSTRAINT TRIGGER fail_commit AFTER INSERT ON tidewire.group_offset_0 DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail_commit()`, owned)); err != nil {
				t.Fatal(err)
			}
			if offset, err := c.commit(t.Context(), g); !errors.Is(err, c.want) {
				t.Errorf("committed to %d, %v, want %v", offset, err, c.want)
			}
		})
	}
}
