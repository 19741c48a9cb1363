package stream_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
)

// joined is a member that runs, with what it runs on.
type joined struct {
	stop func() error
	gs   *stream.Groups
}

// join runs a member, with its own Hub and Groups, until it is stopped or the test
// ends.
func join(t *testing.T, url string, sever *severable, s *stream.Stream, cfg stream.MemberConfig) joined {
	t.Helper()
	pool := sever.pool(t, url)
	h, _ := runHub(t, pool, stream.HubConfig{Poll: 50 * time.Millisecond})
	gs, _ := runGroups(t, pool, stream.GroupsConfig{StopTimeout: time.Second})
	m, err := gs.Join(t.Context(), h, s, "g", cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- m.Run(ctx) }()
	stop := sync.OnceValue(func() error { cancel(); return <-over })
	t.Cleanup(func() { _ = stop() })
	return joined{stop: stop, gs: gs}
}

func TestMember_GetsAllInOrder(t *testing.T) {
	t.Parallel()
	db, s := ensureParted(t, 3)
	a := runParted(t, db.Pool, s, stream.PartitionedConfig{})
	appendKeys := func(from, to int) {
		for n := from; n < to; n++ {
			if _, err := a.Append(t.Context(), stream.Message{Key: fmt.Sprint("k", n%10), Payload: fmt.Append(nil, n)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	appendKeys(0, 50)
	var mu sync.Mutex
	seen := make(map[string][]string)
	failures := 0
	failing, failed := false, make(chan struct{}, 1)
	handle := func(_ context.Context, o *stream.Assignment, page []stream.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if failures++; failing || failures%3 == 1 {
			if failing {
				select {
				case failed <- struct{}{}:
				default:
				}
			}
			return errors.New("not now")
		}
		for _, m := range page {
			if want := s.PartitionOf(m.Key); want != o.Number {
				t.Errorf("key %s in partition %d, want %d", m.Key, o.Number, want)
			}
			seen[m.Key] = append(seen[m.Key], string(m.Payload))
		}
		return nil
	}
	count := func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, all := range seen {
			n += len(all)
		}
		return n
	}
	first := join(t, db.URL, nil, s, stream.MemberConfig{Handle: handle})
	testkit.Eventually(t, "what there was", func() bool { return count() == 50 })
	appendKeys(50, 100)
	testkit.Eventually(t, "what came", func() bool { return count() == 100 })
	setFailing := func(on bool) {
		mu.Lock()
		defer mu.Unlock()
		failing = on
	}
	setFailing(true)
	appendKeys(100, 120)
	<-failed // the first member has these, and leaves without having handled them
	if err := first.stop(); err != nil {
		t.Error(err)
	}
	setFailing(false)
	appendKeys(120, 150)
	join(t, db.URL, nil, s, stream.MemberConfig{Handle: handle})
	testkit.Eventually(t, "what came between two members", func() bool { return count() == 150 })
	for n := range 150 {
		key := fmt.Sprint("k", n%10)
		if got := seen[key][n/10]; got != fmt.Sprint(n) {
			t.Errorf("message %d of %s is %s, want %d", n/10, key, got, n)
		}
	}
}

func TestMember_EndsWithTheStream(t *testing.T) {
	t.Parallel()
	db, s := ensureParted(t, 2)
	gs, _ := runGroups(t, db.Pool, stream.GroupsConfig{})
	h, _ := runHub(t, db.Pool, stream.HubConfig{Poll: 20 * time.Millisecond})
	m, err := gs.Join(t.Context(), h, s, "g", stream.MemberConfig{
		Heartbeat: 40 * time.Millisecond, Handle: func(context.Context, *stream.Assignment, []stream.Message) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan error, 1)
	go func() { over <- m.Run(t.Context()) }()
	testkit.Eventually(t, "ownership", func() bool {
		all, err := s.Members(t.Context(), "g")
		return err == nil && len(all) == 1 && len(all[0].Partitions) == 2
	})
	if err := stream.Drop(t.Context(), db.Pool, "parted"); err != nil {
		t.Error(err)
	}
	if err := <-over; !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("Run: %v, want ErrNotFound", err)
	}
	if left := value[int](t, db.Pool, `SELECT (SELECT count(*) FROM tidewire.share) + (SELECT count(*) FROM tidewire.share_number)`); left != 0 {
		t.Errorf("%d rows are left", left)
	}
}

// TestMember_PausedIsFenced blocks a member in Handle, as if its process was
// paused, while its lease ends and another member takes over: its later commit is
// rejected (fencing token).
func TestMember_PausedIsFenced(t *testing.T) {
	t.Parallel()
	db, s := ensureParted(t, 1)
	mustAppend(t, run(t, db.Pool, s.Partition(0), stream.AppenderConfig{}), messages("a", "b", "c")...)
	paused, resume := make(chan *stream.Assignment), make(chan struct{})
	sever := &severable{}
	old := join(t, db.URL, sever, s, stream.MemberConfig{
		Heartbeat: 40 * time.Millisecond, Handle: func(ctx context.Context, o *stream.Assignment, _ []stream.Message) error {
			select {
			case paused <- o:
				<-resume
				if ctx.Err() == nil || !errors.Is(context.Cause(ctx), stream.ErrNotOwner) || o.Valid() {
					t.Errorf("resumed with %v, lasts %t", context.Cause(ctx), o.Valid())
				}
			case <-ctx.Done():
			}
			return nil
		},
	})
	o := <-paused
	endLeases(t, db, 0, 1)
	taken := make(chan []stream.Message, 10)
	join(t, db.URL, nil, s, stream.MemberConfig{
		Heartbeat: 40 * time.Millisecond, Handle: func(_ context.Context, _ *stream.Assignment, page []stream.Message) error { taken <- page; return nil },
	})
	if page := <-taken; len(page) != 3 {
		t.Errorf("the next owner got %d messages, want 3", len(page))
	}
	testkit.Eventually(t, "the loss", func() bool { return !o.Valid() })
	gs, _ := runGroups(t, db.Pool, stream.GroupsConfig{})
	g := openGroup(t, gs, s.Partition(0), "g")
	if at, err := g.CommitOwned(t.Context(), o.Token, 2); !errors.Is(err, stream.ErrNotOwner) {
		t.Errorf("a late commit: %d, %v, want ErrNotOwner", at, err)
	}
	close(resume)
	if err := old.stop(); err != nil {
		t.Error(err)
	}
	testkit.Eventually(t, "the commit of the owner", func() bool { at, err := g.Offset(t.Context()); return err == nil && at == 3 })
}

// TestMember_CommitsBesideOthers: owned offsets and others share a batch.
func TestMember_CommitsBesideOthers(t *testing.T) {
	t.Parallel()
	db, s := ensureParted(t, 2)
	reach(t, db.Pool, s)
	owned := make(chan *stream.Assignment, 2)
	joinShare(t, db.Pool, stream.CoordinatorConfig{Name: "two", Numbers: 2, Own: func(_ context.Context, o *stream.Assignment) { owned <- o; <-o.Revoked() }})
	mine := <-owned
	gs, _ := runGroups(t, db.Pool, stream.GroupsConfig{})
	g, free := openGroup(t, gs, s.Partition(0), "g"), openGroup(t, gs, s.Partition(1), "g")
	var calling sync.WaitGroup
	for n := range int64(20) {
		calling.Go(func() {
			if _, err := g.CommitOwned(t.Context(), mine.Token, n); err != nil {
				t.Error(err)
			}
		})
		calling.Go(func() {
			if _, err := free.Commit(t.Context(), n); err != nil {
				t.Error(err)
			}
		})
		calling.Go(func() {
			if _, err := g.CommitOwned(t.Context(), mine.Token+1000, 100+n); !errors.Is(err, stream.ErrNotOwner) {
				t.Errorf("commit by one who owns nothing: %v, want ErrNotOwner", err)
			}
		})
	}
	calling.Wait()
	wantOffset(t, g, 19)
	wantOffset(t, free, 19)
}
