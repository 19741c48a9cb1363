package stream_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/stream"
)

// meanwhile is the tracer of a pool: it does something, once, before the first
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

// TestGroups_OldestOfAnotherMaker: a process that is about to make a group that
// another one has made meanwhile leaves it where it is. Its readers are told what
// retention has dropped since.
func TestGroups_OldestOfAnotherMaker(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]stream.Start{"oldest": {}, "since": stream.Since(time.Now().Add(-time.Hour))} {
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
