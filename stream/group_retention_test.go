package stream_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

// meanwhile is the tracer of a pool: it calls a function once, before the first
// statement that contains a text.
type meanwhile struct {
	counting
	once sync.Once
	do   func()
}

func (m *meanwhile) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		if strings.Contains(q.SQL, m.text) {
			m.once.Do(m.do)
		}
	}
	return m.counting.TraceBatchStart(ctx, conn, data)
}

// TestGroups_OldestOfAnotherMaker: if a process creates a group that another one
// has created meanwhile, the group keeps its offset. Its readers get a TooOldError
// for messages dropped since.
func TestGroups_OldestOfAnotherMaker(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]stream.Start{"oldest": {}, "since": stream.AtTime(time.Now().Add(-time.Hour))} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, s := ensure(t)
			a := run(t, db.Pool, s, stream.AppenderConfig{})
			mustAppend(t, a, messages("a", "b")...)
			gs, _ := runGroups(t, db.Pool, stream.GroupsConfig{})
			var first *stream.Group
			cfg, err := pgxpool.ParseConfig(db.URL)
			if err != nil {
				t.Fatal(err)
			}
			cfg.ConnConfig.Tracer = &meanwhile{counting: counting{text: "ensure_group"}, do: func() {
				first = openGroup(t, gs, s, "g")
				alter(t, db.Pool, s, stream.Retention{MaxAge: time.Millisecond})
				keep(t, db.Pool)
				waitInfo(t, s, "dropped", func(i stream.Info) bool { return i.Oldest == 3 })
			}}
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			second, err := stream.NewGroups(pool, stream.GroupsConfig{}).Open(t.Context(), s, "g", stream.GroupOptions{Start: start})
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				t.Fatal("the group was made without ensure_group")
			}
			for who, g := range map[string]*stream.Group{"first": first, "second": second} {
				if offset, err := g.Offset(t.Context()); err != nil || offset != 0 {
					t.Fatalf("%s: the group is at %d, %v, want 0", who, offset, err)
				}
				sub, err := g.Subscribe(t.Context(), stream.NewHub(db.Pool, stream.HubConfig{}))
				if err != nil {
					t.Fatal(err)
				}
				defer sub.Close()
				_, err = sub.Next(soon(t))
				wantTooOld(t, who, err, 3)
			}
		})
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
		time.Sleep(2 * oldAge)
		alter(t, db.Pool, s, stream.Retention{MaxAge: oldAge, Consumed: true})
		keepOnce(t, db.Pool)
		wantEnd("kept for a group", 5)
		if _, err := unread.Commit(t.Context(), 5); err != nil {
			t.Fatal(err)
		}
		keepOnce(t, db.Pool)
		stands(t, "emptied", s, 6, 5)
		if err := g.Seek(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
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
