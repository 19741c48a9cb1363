package queue_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

func TestEnsure_LookupListDrop(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{MaxAttempts: 5})
	again, err := queue.Ensure(t.Context(), db.Pool, "jobs", queue.Options{MaxAttempts: 5})
	if err != nil || again.Options() != q.Options() {
		t.Errorf("ensured again: %v", err)
	}
	if _, err := queue.Ensure(t.Context(), db.Pool, "jobs", queue.Options{}); !errors.Is(err, queue.ErrExists) {
		t.Errorf("other options: %v, want ErrOptions", err)
	}
	if _, err := queue.Ensure(t.Context(), db.Pool, "", queue.Options{}); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("empty name: %v, want ErrInvalid", err)
	}
	if _, err := stream.Ensure(t.Context(), db.Pool, "plain", stream.Options{}); err != nil {
		t.Fatal(err)
	}
	if names, err := queue.List(t.Context(), db.Pool); err != nil || !slices.Equal(names, []string{"jobs"}) {
		t.Errorf("list: %q, %v", names, err)
	}
	for _, name := range []string{"plain", "none"} {
		if _, err := queue.Lookup(t.Context(), db.Pool, name); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("look up %s: %v, want ErrNotFound", name, err)
		}
		if err := queue.Drop(t.Context(), db.Pool, name); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("drop %s: %v, want ErrNotFound", name, err)
		}
	}
	n := queue.NewNode(q, quick(queue.NodeConfig{}))
	var running sync.WaitGroup
	running.Go(func() {
		if err := n.Run(t.Context()); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("Run of a dropped queue: %v, want ErrNotFound", err)
		}
	})
	c := n.Consume(queue.ConsumerOptions{})
	if err := queue.Drop(t.Context(), db.Pool, "jobs"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Receive(t.Context()); !errors.Is(err, queue.ErrClosed) {
		t.Errorf("Receive from a dropped queue: %v, want ErrClosed", err)
	}
	running.Wait()
	if rows := count(t, db.Pool, `SELECT count(*) FROM tidewire.queue_journal`); rows != 0 {
		t.Errorf("%d rows of the journal are left", rows)
	}
	if _, err := stream.Lookup(t.Context(), db.Pool, "jobs"); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("the stream: %v, want ErrNotFound", err)
	}
}

func TestEnsure_StreamInUse(t *testing.T) {
	t.Parallel()
	db, _ := setup(t, queue.Options{})
	made := func(name string) *stream.Stream {
		s, err := stream.Ensure(t.Context(), db.Pool, name, stream.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	publish := func(name string) {
		if _, err := db.Pool.Exec(t.Context(), `SELECT tidewire.publish($1, NULL, NULL, 'kept')`, name); err != nil {
			t.Fatal(err)
		}
	}
	publish(made("written").Name())
	if _, err := stream.NewGroups(db.Pool, stream.GroupsConfig{}).Open(t.Context(), made("read"), "readers", stream.GroupOptions{}); err != nil {
		t.Fatal(err)
	}
	publish(made("partitions/1").Name())
	for name, opts := range map[string]queue.Options{"written": {}, "read": {}, "partitions": {Partitions: 2}} {
		if _, err := queue.Ensure(t.Context(), db.Pool, name, opts); !errors.Is(err, queue.ErrStreamInUse) {
			t.Errorf("%s: %v, want ErrStreamInUse", name, err)
		}
		if _, err := queue.Lookup(t.Context(), db.Pool, name); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("%s, looked up: %v, want ErrNotFound", name, err)
		}
	}
	s := made("written")
	if msgs, err := s.Read(t.Context(), 0, 10); err != nil || len(msgs) != 1 {
		t.Errorf("the stream has %d messages, %v; want the 1 that it had", len(msgs), err)
	}
	// An empty stream may be left over from a creation that was interrupted.
	made("left")
	for range 2 {
		if _, err := queue.Ensure(t.Context(), db.Pool, "left", queue.Options{}); err != nil {
			t.Errorf("of an empty stream: %v", err)
		}
	}
}

func TestPauseResumePurge(t *testing.T) {
	t.Parallel()
	_, q := setup(t, queue.Options{})
	n, _ := start(t, q, queue.NodeConfig{})
	if err := q.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	enqueue(t, n, numbered(10)...)
	c := n.Consume(queue.ConsumerOptions{Credits: 2})
	wantNothing(t, c, 300*time.Millisecond)
	if s, err := q.Stats(t.Context()); err != nil || !s.Paused || s.Ready+s.Leased != 10 || s.OldestAge <= 0 {
		t.Errorf("stats %+v, %v; want 10, paused", s, err)
	}
	if err := q.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	ds := receive(t, c, 2)
	mustAck(t, ds[1])
	msgs, err := q.Peek(t.Context(), 3)
	if err != nil || len(msgs) != 3 || string(msgs[0].Payload) != "0" || string(msgs[1].Payload) != "2" {
		t.Errorf("peeked %v, %v; want 0, 2 and 3", msgs, err)
	}
	if _, err := q.Peek(t.Context(), 0); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("peek at nothing: %v, want ErrInvalid", err)
	}
	if floor := queue.Floor(t, q); floor != 0 {
		t.Errorf("floor %d, want 0", floor)
	}
	mustNack(t, ds[0], queue.NackOptions{Delay: time.Hour})
	removed, err := q.Purge(t.Context(), queue.PurgeOptions{})
	if err != nil || removed < 7 || removed > 9 { // the node may have one or two
		t.Errorf("purged %d, %v", removed, err)
	}
	for s := (queue.Stats{Leased: 1}); s.Leased > 0; {
		if s, err = q.Stats(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.Ready+s.Delayed > 0 {
			t.Errorf("stats %+v; want nothing that nobody has", s)
		}
		if s.Leased > 0 {
			mustAck(t, receive(t, c, 1)...)
		}
	}
	enqueue(t, n, "new")
	if got := texts(receive(t, c, 1)); !slices.Equal(got, []string{"new"}) {
		t.Errorf("after the purge came %q", got)
	}
}

// counter counts the statements of a pool.
type counter struct{ queries, batches atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.queries.Add(1)
	return ctx
}
func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (c *counter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.batches.Add(1)
	return ctx
}
func (c *counter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (c *counter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// TestNode_IdleWritesNothing counts the statements of an idle node, also in a
// queue with many parts.
func TestNode_IdleWritesNothing(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]queue.Options{"plain": {}, "partitions": {Partitions: 16}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			idleWritesNothing(t, opts)
		})
	}
}

func idleWritesNothing(t *testing.T, opts queue.Options) {
	db, watcher := setup(t, opts)
	cfg, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	traced := &counter{}
	cfg.ConnConfig.Tracer = traced
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	q, err := queue.Lookup(t.Context(), pool, "jobs")
	if err != nil {
		t.Fatal(err)
	}
	n, _ := start(t, q, queue.NodeConfig{IdleAfter: 200 * time.Millisecond, Poll: 400 * time.Millisecond, PollJournal: 400 * time.Millisecond})
	c := n.Consume(queue.ConsumerOptions{})
	enqueue(t, n, "x")
	mustAck(t, receive(t, c, 1)...)
	eventually(t, "the lease is given up", func() bool { return queue.Leases(t, watcher) == 0 })
	rows := func() int64 {
		s, err := watcher.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.JournalRows
	}
	before, queries := rows(), traced.queries.Load()+traced.batches.Load()
	time.Sleep(2 * time.Second)
	if after := rows(); after != before {
		t.Errorf("%d rows written by an idle node", after-before)
	}
	// Two queries each 300 ms at most; a machine that stalls makes them fewer.
	if made := traced.queries.Load() + traced.batches.Load() - queries; made > 16 {
		t.Errorf("%d queries in 2 s, want at most 16", made)
	}
	enqueue(t, n, "y")
	mustAck(t, receive(t, c, 1)...)
}

// TestNode_HeldSnapshot: a transaction elsewhere that has read everything
// blocks nothing, however often the journal is compacted.
func TestNode_HeldSnapshot(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{})
	tx, err := db.Pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	for _, table := range []string{"queue", "queue_side", "queue_journal", "shared_message"} {
		if _, err := tx.Exec(t.Context(), `SELECT * FROM tidewire.`+table); err != nil {
			t.Fatal(err)
		}
	}
	n, _ := start(t, q, queue.NodeConfig{RotateRows: 5})
	c := n.Consume(queue.ConsumerOptions{Credits: 1})
	want := numbered(50)
	enqueue(t, n, want...)
	var got []string
	for range want {
		ds := receive(t, c, 1)
		got = append(got, texts(ds)...)
		mustAck(t, ds...)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestAckAll: each delivery gets an answer.
func TestAckAll(t *testing.T) {
	t.Parallel()
	_, q := setup(t, queue.Options{})
	n, _ := start(t, q, queue.NodeConfig{})
	c := n.Consume(queue.ConsumerOptions{})
	enqueue(t, n, numbered(3)...)
	ds := receive(t, c, 3)
	mustAck(t, ds[1])
	errs := queue.AckAll(t.Context(), ds)
	if len(errs) != 3 || errs[0] != nil || !errors.Is(errs[1], queue.ErrSettled) || errs[2] != nil {
		t.Errorf("AckAll: %v, want ErrSettled for the second", errs)
	}
	wantDone(t, q)
	enqueue(t, n, "more")
	if err := errors.Join(queue.AckAll(t.Context(), receive(t, c, 1))...); err != nil {
		t.Errorf("AckAll: %v", err)
	}
}

func TestStats_RatesSince(t *testing.T) {
	t.Parallel()
	first := queue.Stats{Head: 100, Ready: 10, Leased: 5, Delayed: 3, Dead: 2}
	came, done := queue.Stats{Head: 160, Ready: 20, Leased: 5, Delayed: 3, Dead: 2}.RatesSince(first, 2*time.Second)
	if came != 30 || done != 25 {
		t.Errorf("%v came and %v were done a second", came, done)
	}
}

// TestOwnsStream: ordinary queues and each priority own their streams until they are dropped.
func TestOwnsStream(t *testing.T) {
	t.Parallel()
	db, _ := setup(t, queue.Options{})
	if _, err := stream.Ensure(t.Context(), db.Pool, "plain", stream.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := queue.Ensure(t.Context(), db.Pool, "ranked", queue.Options{Priorities: 2}); err != nil {
		t.Fatal(err)
	}
	wants := func(want map[string]bool) {
		t.Helper()
		for name, owned := range want {
			if got, err := queue.OwnsStream(t.Context(), db.Pool, name); err != nil || got != owned {
				t.Errorf("stream %q belongs to a queue: %t, %v; want %t", name, got, err, owned)
			}
		}
	}
	wants(map[string]bool{"jobs": true, "ranked/0": true, "ranked/1": true, "ranked": false, "plain": false, "none": false})
	if err := queue.Drop(t.Context(), db.Pool, "ranked"); err != nil {
		t.Fatal(err)
	}
	wants(map[string]bool{"jobs": true, "ranked/0": false})
}
