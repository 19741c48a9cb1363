package stream_test

import (
	"context"
	"errors"
	"fmt"
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

// client opens a Client, which is closed when the test ends.
func client(t *testing.T, pool *pgxpool.Pool, cfg stream.Config) *stream.Client {
	t.Helper()
	c, err := stream.Open(t.Context(), pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		c.Close(ctx) // a test that closes the Client checks the error
	})
	return c
}

func ensureIn(t *testing.T, c *stream.Client, name string, opts stream.Options) *stream.Stream {
	t.Helper()
	s, err := c.Ensure(t.Context(), name, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// firstError is the error with which a loop over a stream ends.
func firstError(t *testing.T, s *stream.Stream, start stream.Start) error {
	t.Helper()
	for _, err := range s.Subscribe(t.Context(), start) {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestClient_NotRunning: calls fail at once if nothing is running.
func TestClient_NotRunning(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	want := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, stream.ErrNotRunning) {
			t.Errorf("%s: %v, want ErrNotRunning", what, err)
		}
	}
	_, err := s.Append(t.Context(), stream.Message{})
	want("Append", err)
	_, err = s.AppendAs(t.Context(), stream.RequestID{Client: "p"}, stream.Message{})
	want("AppendAs", err)
	want("Subscribe", firstError(t, s, stream.After(0)))
	want("Work", s.Work(t.Context(), "g", stream.WorkOptions{}, nil))
	_, err = s.Group(t.Context(), "g", stream.GroupOptions{})
	want("Group", err)
	groups, _ := runGroups(t, db.Pool, stream.GroupsConfig{})
	for _, err := range openGroup(t, groups, s, "g").Pages(t.Context()) {
		want("Pages of a Group", err)
	}
	_, err = stream.NewAppender(db.Pool, s, stream.AppenderConfig{}).Append(t.Context(), stream.Message{})
	want("an Appender", err)
	_, err = stream.NewPartitionedAppender(db.Pool, s, stream.PartitionedConfig{}).AppendAs(t.Context(), stream.RequestID{Client: "p"}, stream.Message{})
	want("a PartitionedAppender", err)
	s.Notify() // does nothing
}

// TestClient_OlderSchema: for a database that is not migrated, the error says what to do.
func TestClient_OlderSchema(t *testing.T) {
	t.Parallel()
	if _, err := stream.Open(t.Context(), pgtest.Open(t).Pool, stream.Config{}); !errors.Is(err, migrate.ErrOlder) {
		t.Errorf("got %v", err)
	}
}

// TestClient_Close: after Close everything ends and nothing is accepted; all answered messages are stored.
func TestClient_Close(t *testing.T) {
	t.Parallel()
	db, _ := ensure(t)
	c := client(t, db.Pool, stream.Config{})
	s := ensureIn(t, c, "closed", stream.Options{})
	if _, err := s.Append(t.Context(), messages("a", "b")...); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	handled := make(chan struct{})
	var once sync.Once
	go func() {
		ended <- s.Work(t.Context(), "g", stream.WorkOptions{}, func(context.Context, []stream.Message) error {
			once.Do(func() { close(handled) })
			return nil
		})
	}()
	<-handled
	go func() {
		for _, err := range s.Subscribe(t.Context(), stream.AtEnd()) {
			if !errors.Is(err, stream.ErrClosed) {
				t.Errorf("the loop ended with %v", err)
			}
		}
		ended <- nil
	}()
	for range 2 {
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	for what, err := range map[string]error{
		"Append":    func() error { _, err := s.Append(t.Context(), stream.Message{}); return err }(),
		"Subscribe": firstError(t, s, stream.After(0)),
		"Work":      s.Work(t.Context(), "g", stream.WorkOptions{}, nil),
	} {
		if !errors.Is(err, stream.ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", what, err)
		}
	}
	other := client(t, db.Pool, stream.Config{})
	again, err := other.Lookup(t.Context(), "closed")
	if err != nil {
		t.Fatal(err)
	}
	group, err := again.Group(t.Context(), "g", stream.GroupOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if at, err := group.Offset(t.Context()); err != nil || at != 2 {
		t.Errorf("the offset is %d, %v: want that of what was handled", at, err)
	}
}

// TestClient_CloseGivesUp: after a Close whose ctx ends first no caller waits.
func TestClient_CloseGivesUp(t *testing.T) {
	t.Parallel()
	db, _ := ensure(t)
	c := client(t, db.Pool, stream.Config{})
	s := ensureIn(t, c, "locked", stream.Options{})
	tx := begin(t, db.Pool, pgx.ReadCommitted)
	exec(t, tx, `SELECT pg_advisory_xact_lock(1953064037, $1)`, s.ID())
	appended := make(chan error, 1)
	go func() {
		_, err := s.Append(t.Context(), stream.Message{})
		appended <- err
	}()
	testkit.Eventually(t, "the append waits", func() bool {
		return value[bool](t, db.Pool, `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND NOT granted)`, s.ID())
	})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Close(over); !errors.Is(err, stream.ErrOutcomeUnknown) {
		t.Errorf("Close: %v, want ErrOutcomeUnknown", err)
	}
	if err := <-appended; !errors.Is(err, stream.ErrOutcomeUnknown) {
		t.Errorf("Append: %v, want ErrOutcomeUnknown", err)
	}
}

// TestClient_Dropped: a dropped stream is not found, and a new stream with its name is a different one.
func TestClient_Dropped(t *testing.T) {
	t.Parallel()
	db, _ := ensure(t)
	c := client(t, db.Pool, stream.Config{})
	for _, opts := range []stream.Options{{}, {OwnTables: true}, {Partitions: 3}} {
		gone := ensureIn(t, c, "again", opts)
		for range 2 {
			if _, err := gone.Append(t.Context(), stream.Message{}); err != nil {
				t.Fatal(err)
			}
		}
		must(t, c.Drop(t.Context(), "again"))
		for range 2 {
			if _, err := gone.Append(t.Context(), stream.Message{}); !errors.Is(err, stream.ErrNotFound) {
				t.Errorf("%+v: an append to what is dropped: %v", opts, err)
			}
		}
	}
	if at, err := ensureIn(t, c, "again", stream.Options{}).Append(t.Context(), stream.Message{}); err != nil || at.First != 1 {
		t.Errorf("%+v, %v", at, err)
	}
}

// TestClient_OtherProcesses: other processes learn of appends, and of a Notify, without a poll; the processes
// that work in one group divide the messages of all partitions.
func TestClient_OtherProcesses(t *testing.T) {
	t.Parallel()
	db, _ := ensure(t)
	never := stream.Config{Hub: stream.HubConfig{Poll: time.Hour}}
	a, b := client(t, pools(t, db.URL, 1)[0], never), client(t, pools(t, db.URL, 1)[0], never)
	orders, there := ensureIn(t, a, "sales", stream.Options{}), ensureIn(t, b, "sales", stream.Options{})
	got := make(chan string)
	go func() {
		for m, err := range there.Subscribe(t.Context(), stream.After(0)) {
			if err != nil {
				return // the end of the test
			}
			got <- string(m.Payload)
		}
	}()
	for _, text := range []string{"one", "two"} {
		if _, err := orders.Append(t.Context(), messages(text)...); err != nil {
			t.Fatal(err)
		}
		if next := <-got; next != text {
			t.Errorf("got %q, want %q", next, text)
		}
	}
	tx := begin(t, db.Pool, pgx.ReadCommitted)
	must(t, orders.AppendTx(t.Context(), tx, messages("three")...))
	commitTx(t, tx)
	orders.Notify()
	if text := <-got; text != "three" {
		t.Errorf("got %q", text)
	}

	const count = 200
	parted, alike := ensureIn(t, a, "parted", stream.Options{Partitions: 4}), ensureIn(t, b, "parted", stream.Options{Partitions: 4})
	working, stop := context.WithCancel(t.Context())
	defer stop()
	var mu sync.Mutex
	seen := make(map[string]int)
	var workers sync.WaitGroup
	for _, s := range []*stream.Stream{parted, alike} {
		workers.Go(func() {
			if err := s.Work(working, "g", stream.WorkOptions{}, func(_ context.Context, page []stream.Message) error {
				mu.Lock()
				defer mu.Unlock()
				for _, m := range page {
					seen[string(m.Payload)]++
				}
				if len(seen) == count {
					stop()
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	for n := range count {
		m := stream.Message{Key: fmt.Sprint(n), Payload: fmt.Append(nil, n)}
		if _, err := parted.Append(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	workers.Wait()
	if len(seen) != count {
		t.Errorf("%d of %d messages were handled", len(seen), count)
	}
}

// TestClient_CloseBesideAHandler: a Close whose ctx ends does not wait for a handler that hangs, and a further call returns the same
// error.
func TestClient_CloseBesideAHandler(t *testing.T) {
	t.Parallel()
	db, _ := ensure(t)
	c := client(t, db.Pool, stream.Config{})
	s := ensureIn(t, c, "hanging", stream.Options{})
	if _, err := s.Append(t.Context(), stream.Message{Payload: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	hangs, release, worked := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		worked <- s.Work(context.Background(), "g", stream.WorkOptions{}, func(context.Context, []stream.Message) error {
			close(hangs)
			<-release
			return nil
		})
	}()
	<-hangs
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for n := range 2 {
		if err := c.Close(ctx); !errors.Is(err, stream.ErrOutcomeUnknown) {
			t.Errorf("call %d of Close: %v", n+1, err)
		}
	}
	close(release)
	<-worked // it returns
}

// TestWork_EndedContext: Work returns nil if its ctx has ended before it begins.
func TestWork_EndedContext(t *testing.T) {
	t.Parallel()
	db, _ := ensure(t)
	s := ensureIn(t, client(t, db.Pool, stream.Config{}), "ended", stream.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Work(ctx, "g", stream.WorkOptions{}, func(context.Context, []stream.Message) error { return nil }); err != nil {
		t.Error(err)
	}
}
