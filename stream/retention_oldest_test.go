package stream_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
)

// TestSubscribe_OldestBesideRetention: a subscription that begins with the oldest message that is
// kept gets no too_old, also if retention drops some before its first read.
func TestSubscribe_OldestBesideRetention(t *testing.T) {
	t.Parallel()
	ensureBoth(t, func(t *testing.T, db pgtest.DB, s *stream.Stream) {
		a := run(t, db.Pool, s, stream.AppenderConfig{})
		mustAppend(t, a, messages("a", "b")...)
		hub := stream.NewHub(db.Pool, stream.HubConfig{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		subs := make(map[string]*stream.Subscription)
		for name, start := range map[string]stream.Start{"oldest": {}, "since": stream.AtTime(time.Now().Add(-time.Hour)), "after": stream.After(0)} {
			sub, err := hub.Subscribe(ctx, s, start)
			if err != nil {
				t.Fatal(err)
			}
			defer sub.Close()
			subs[name] = sub
		}
		alter(t, db.Pool, s, stream.Retention{MaxAge: time.Millisecond})
		keep(t, db.Pool)
		waitInfo(t, s, "dropped", func(i stream.Info) bool { return i.Oldest == 3 })
		alter(t, db.Pool, s, stream.Retention{})
		at := mustAppend(t, a, messages("c")...)
		for _, name := range []string{"oldest", "since"} {
			if page, err := subs[name].Next(ctx); err != nil || len(page) != 1 || page[0].Position != at || string(page[0].Payload) != "c" {
				t.Errorf("%s: %v, %v, want the message at %d", name, page, err, at)
			}
		}
		_, err := subs["after"].Next(ctx)
		wantTooOld(t, "after 0", err, 3)
	})
}

// TestGroups_OldestBesideRetention: a group that is created at the oldest message
// gets no TooOldError for messages dropped while it was created.
func TestGroups_OldestBesideRetention(t *testing.T) {
	t.Parallel()
	ensureBoth(t, func(t *testing.T, db pgtest.DB, s *stream.Stream) {
		a := run(t, db.Pool, s, stream.AppenderConfig{})
		mustAppend(t, a, messages("a", "b")...)
		hold := begin(t, db.Pool, "")
		if _, err := hold.Exec(t.Context(), `SELECT pg_advisory_xact_lock(1953064037, 2)`); err != nil { // the lock of all offsets
			t.Fatal(err)
		}
		gs, _ := runGroups(t, db.Pool, stream.GroupsConfig{})
		var making sync.WaitGroup
		var g *stream.Group
		making.Go(func() {
			var err error
			if g, err = gs.Open(t.Context(), s, "new", stream.GroupOptions{}); err != nil {
				t.Error(err)
			}
		})
		testkit.Eventually(t, "the group to wait for the lock", func() bool {
			return value[bool](t, db.Pool, `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND locktype = 'advisory'
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`)
		})
		alter(t, db.Pool, s, stream.Retention{MaxAge: time.Millisecond})
		keep(t, db.Pool)
		waitInfo(t, s, "dropped", func(i stream.Info) bool { return i.Oldest == 3 })
		rollBack(t, hold)
		making.Wait()
		if offset, err := g.Offset(t.Context()); err != nil || offset != 2 {
			t.Errorf("the group is at %d, %v, want 2", offset, err)
		}
	})
}
