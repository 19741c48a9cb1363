package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// loadUsed loads what the program before migration 14 has left in its database: 50
// orders of a producer, whose records were rotated twice, groups whose offsets were,
// three queues that are half done, 20 events, and 3 messages that were ingested. It
// is what pg_dump --inserts made of it.
func loadUsed(t *testing.T, db pgtest.DB) {
	t.Helper()
	sql, err := os.ReadFile("testdata/used-before-14.sql")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), db.URL) // of its own, for the dump has settings
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	// As if the program had ended just now, and what was delayed is due.
	for _, text := range []string{string(sql), `UPDATE tidewire.producer_window SET since = clock_timestamp()`,
		`UPDATE tidewire.queue_side SET due_at = clock_timestamp()`} {
		if _, err := conn.PgConn().Exec(t.Context(), text).ReadAll(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUp_UsedDatabase: after an upgrade everything that was acknowledged is there,
// and goes on.
func TestUp_UsedDatabase(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	loadUsed(t, db)
	if n, err := migrate.Up(t.Context(), db.Pool); err != nil || n == 0 {
		t.Fatalf("%d migrations, %v", n, err)
	}
	t.Run("stream", func(t *testing.T) { usedStream(t, db.Pool) })
	t.Run("groups", func(t *testing.T) { usedGroups(t, db.Pool) })
	t.Run("queues", func(t *testing.T) {
		usedQueue(t, db.Pool, "jobs", without(30, func(n int) bool { return n <= 12 }))
		usedQueue(t, db.Pool, "rotated", without(100, func(n int) bool { return n <= 60 }))
		usedQueue(t, db.Pool, "ranked", without(10, func(n int) bool { return n <= 8 && n%2 == 0 }))
	})
	t.Run("events", func(t *testing.T) { usedEvents(t, db.Pool) })
	t.Run("ingested", func(t *testing.T) { usedTable(t, db.Pool) })
}

// runs runs until the end of the test.
func runs(t *testing.T, run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
}

func lookup(t *testing.T, pool *pgxpool.Pool) *stream.Stream {
	t.Helper()
	s, err := stream.Lookup(t.Context(), pool, "orders")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func usedStream(t *testing.T, pool *pgxpool.Pool) {
	s := lookup(t, pool)
	a := stream.NewAppender(pool, s, stream.AppenderConfig{})
	runs(t, a.Run)
	for n := range int64(51) { // the last is new
		stored, err := a.AppendAs(t.Context(), stream.RequestID{Client: "p", Sequence: n}, stream.Message{Payload: fmt.Appendf(nil, "order %d", n+1)})
		if n < 10 { // its record had been given up
			if !errors.Is(err, stream.ErrSequenceTooOld) {
				t.Errorf("sequence %d: %+v, %v, want ErrSequenceTooOld", n, stored, err)
			}
		} else if err != nil || stored.Duplicate != (n < 50) || stored.Duplicate && stored.First != n+1 {
			t.Errorf("sequence %d: %+v, %v", n, stored, err)
		}
	}
	msgs, err := s.Read(t.Context(), 0, 100)
	if err != nil || len(msgs) != 51 {
		t.Fatalf("%d messages, %v, want 51", len(msgs), err)
	}
	for i, m := range msgs {
		if string(m.Payload) != fmt.Sprintf("order %d", i+1) || i < 50 && m.Position != int64(i+1) {
			t.Errorf("message %d is %q at %d", i, m.Payload, m.Position)
		}
	}
	if byKey, err := s.ReadKey(t.Context(), "k3", 0, 1<<62, 100); err != nil || len(byKey) != 10 {
		t.Errorf("%d messages by key, %v, want 10", len(byKey), err)
	}
}

func usedGroups(t *testing.T, pool *pgxpool.Pool) {
	s := lookup(t, pool)
	gs := stream.NewGroups(pool, stream.GroupsConfig{RotateRows: 10})
	runs(t, gs.Run)
	for range 2 { // before and after rotations
		for name, want := range map[string]int64{"none": 0, "ten": 10, "busy": 45, "late": 30} {
			g, err := gs.Open(t.Context(), s, name, stream.GroupOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if offset, err := g.Offset(t.Context()); err != nil || offset != want {
				t.Errorf("group %s is at %d, %v, want %d", name, offset, err, want)
			}
		}
		g, err := gs.Open(t.Context(), s, "new", stream.GroupOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for n := range int64(50) {
			if _, err := g.Commit(t.Context(), n+1); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// without is the numbers up to n but those that are done.
func without(n int, done func(int) bool) (left []int) {
	for i := 1; i <= n; i++ {
		if !done(i) {
			left = append(left, i)
		}
	}
	return left
}

func usedQueue(t *testing.T, pool *pgxpool.Pool, name string, left []int) {
	q, err := queue.Lookup(t.Context(), pool, name)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{"new": true}
	for _, n := range left {
		want[fmt.Sprintf("%s %d", name, n)] = true
	}
	n := queue.NewNode(q, queue.NodeConfig{Lease: 2 * time.Second, Poll: 100 * time.Millisecond, PollJournal: 100 * time.Millisecond, RotateRows: 10})
	runs(t, func(ctx context.Context) {
		if err := n.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	if _, err := n.Enqueue(t.Context(), queue.Message{Payload: []byte("new")}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got := make(map[string]bool)
	for c := n.Consume(queue.ConsumerOptions{}); len(got) < len(want); {
		ds, err := c.Receive(ctx)
		if err != nil {
			t.Fatalf("%s: %d of %d messages: %v", name, len(got), len(want), err)
		}
		for _, d := range ds {
			got[string(d.Payload)] = true
			if err := d.Ack(ctx); err != nil {
				t.Error(err)
			}
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", name, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	dead, err := q.DeadLetters(t.Context(), 0, 10)
	if wantDead := map[string]int{"jobs": 1}[name]; err != nil || len(dead) != wantDead {
		t.Errorf("%s: dead letters %v, %v, want %d", name, dead, err, wantDead)
	} else if wantDead > 0 && (string(dead[0].Payload) != "jobs 11" || dead[0].Reason != "no" || dead[0].Attempts != 2) {
		t.Errorf("%s: the dead letter is %+v", name, dead[0])
	}
	if stats, err := q.Stats(t.Context()); err != nil || stats.Ready+stats.Claimed+stats.Delayed != 0 {
		t.Errorf("%s: %+v, %v, want it empty", name, stats, err)
	}
}

func usedEvents(t *testing.T, pool *pgxpool.Pool) {
	s, err := eventstore.Open(t.Context(), pool, "", eventstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	for n := range int64(21) { // the last is new
		got, err := s.AppendAs(t.Context(), eventstore.RequestID{Client: "p", Sequence: n}, eventstore.Event{Type: "T", Tags: []string{fmt.Sprint("tag:", n%3)}})
		if err != nil || !slices.Equal(got, []int64{n + 1}) {
			t.Errorf("sequence %d: %v, %v", n, got, err)
		}
	}
	events, err := s.Query(t.Context(), eventstore.Tagged("tag:1"), eventstore.ReadOptions{})
	if err != nil || len(events) != 7 || string(events[1].Data) != `{"n":5}` {
		t.Errorf("events %v, %v, want 7", events, err)
	}
}

func usedTable(t *testing.T, pool *pgxpool.Pool) {
	if made, err := migrate.Ingest(t.Context(), pool, "messages"); err != nil || made {
		t.Fatalf("the table: made %t, %v, want the one that is there", made, err)
	}
	w := stream.NewWriter(pool, stream.WriterConfig{})
	defer w.Close()
	var b stream.Batch
	b.Append([]byte("ingested 4"))
	if err := w.Write(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	var payloads []string
	if err := pool.QueryRow(t.Context(), `SELECT array_agg(convert_from(payload, 'UTF8') ORDER BY position) FROM messages`).Scan(&payloads); err != nil {
		t.Fatal(err)
	}
	if want := []string{"ingested 1", "ingested 2", "ingested 3", "ingested 4"}; !slices.Equal(payloads, want) {
		t.Errorf("%q, want %q", payloads, want)
	}
}
