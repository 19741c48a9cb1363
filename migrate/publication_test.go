package migrate_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/streamwriter"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// TestPublication_OfAllTables: with logical replication of every table, all deletes,
// updates and rotations still work.
func TestPublication_OfAllTables(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	pool, err := pgxpool.New(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	p := published{t, pool}
	p.exec(`ALTER SYSTEM SET wal_level = 'logical'`)
	pgtest.Crash(t, server)
	pool.Reset()
	if _, err := migrate.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if _, err := migrate.Ingest(t.Context(), pool, "messages"); err != nil {
		t.Fatal(err)
	}
	p.exec(`CREATE PUBLICATION everything FOR ALL TABLES`)
	p.exec(`SELECT pg_create_logical_replication_slot('reader', 'pgoutput')`)
	p.messages()
	p.requestsAndGroups()
	p.queue()
	p.events()
	p.exec(`DELETE FROM tidewire.batch`)
	var changes int
	err = pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_logical_slot_get_binary_changes('reader', NULL, NULL,
		'proto_version', '1', 'publication_names', 'everything')`).Scan(&changes)
	if err != nil || changes < 500 {
		t.Errorf("%d changes were published, %v", changes, err)
	}
	p.exec(`SELECT pg_drop_replication_slot('reader')`)
}

type published struct {
	*testing.T
	pool *pgxpool.Pool
}

func (p published) exec(sql string, args ...any) {
	p.Helper()
	if _, err := p.pool.Exec(p.Context(), sql, args...); err != nil {
		p.Fatalf("%s: %v", sql, err)
	}
}

// await waits until a query returns true.
func (p published) await(sql string, args ...any) {
	p.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		var done bool
		if err := p.pool.QueryRow(p.Context(), sql, args...).Scan(&done); err != nil {
			p.Fatalf("%s: %v", sql, err)
		}
		if done {
			return
		}
		if time.Now().After(end) {
			p.Fatalf("waited in vain for %s", sql)
		}
	}
}

func (p published) messages() {
	w := streamwriter.New(p.pool, streamwriter.Config{})
	defer w.Close()
	b := streamwriter.NewBatch()
	b.Append([]byte("ingested"))
	if err := w.Write(p.Context(), b); err != nil {
		p.Fatal(err)
	}
	p.exec(`DELETE FROM messages`)
}

// turnRequests rotates the records of requests twice.
func (p published) turnRequests(of int32) {
	for range 2 {
		p.exec(`UPDATE tidewire.shared_request_window SET since = since - interval '1 day'`)
		p.exec(`SELECT tidewire.swap_shared_requests(turn) FROM tidewire.fold_shared_requests('1 hour', 0, 1000)`)
		p.exec(`UPDATE tidewire.request_window SET since = since - interval '1 day' WHERE stream = $1`, of)
		p.exec(`SELECT tidewire.fold_requests($1, '1 hour')`, of)
		p.exec(`DO $$ BEGIN PERFORM tidewire.swap_requests(` + fmt.Sprint(of) + `, '1 hour'); EXCEPTION WHEN lock_not_available THEN END $$`) // its owner may be running it
	}
}

func (p published) requestsAndGroups() {
	ctx, cancel := context.WithTimeout(p.Context(), time.Minute)
	defer cancel()
	s, err := stream.Ensure(ctx, p.pool, "orders", stream.Options{Keyed: true})
	if err != nil {
		p.Fatal(err)
	}
	a := stream.NewAppender(p.pool, s, stream.AppenderConfig{})
	a.Start()
	p.Cleanup(a.Stop)
	for n := range int64(5) {
		if _, err := a.AppendAs(ctx, stream.RequestID{Client: "p", Sequence: n}, make([]stream.Message, 30)...); err != nil {
			p.Fatal(err)
		}
		p.turnRequests(s.ID())
		if n == 2 {
			p.exec(`SELECT tidewire.own_stream($1)`, s.ID())
		}
	}
	gs := stream.NewGroups(p.pool, stream.GroupsConfig{RotateRows: 20})
	running, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); gs.Run(running) }()
	p.Cleanup(func() { stop(); <-ended })
	g, err := gs.Open(ctx, s, "readers", stream.GroupOptions{})
	if err != nil {
		p.Fatal(err)
	}
	position := int64(0)
	for _, current := range []int{1, 0, 1} { // the table in use, one after the other
		for {
			if position++; position <= 150 {
				_, err = g.Commit(ctx, position)
			} else {
				err = g.Seek(ctx, position%150)
			}
			var in int
			if err == nil {
				err = p.pool.QueryRow(ctx, `SELECT current FROM tidewire.group_rotation`).Scan(&in)
			}
			if err != nil {
				p.Fatal(err)
			}
			if in == current {
				break
			}
		}
	}
	if err := s.DropGroup(ctx, "readers"); err != nil {
		p.Fatal(err)
	}
	if err := stream.Drop(ctx, p.pool, "orders"); err != nil {
		p.Fatal(err)
	}
}

func (p published) queue() {
	ctx, cancel := context.WithTimeout(p.Context(), time.Minute)
	defer cancel()
	q, err := queue.Ensure(ctx, p.pool, "jobs", queue.Options{RetryMin: time.Millisecond})
	if err != nil {
		p.Fatal(err)
	}
	n := queue.NewNode(q, queue.NodeConfig{RotateRows: 10, PollJournal: 50 * time.Millisecond})
	over := make(chan error, 1)
	running, stop := context.WithCancel(ctx)
	go func() { over <- n.Run(running) }()
	c := n.Consume(queue.ConsumerOptions{})
	for i := range 60 {
		if _, err := n.Enqueue(ctx, queue.Message{Payload: fmt.Append(nil, i)}); err != nil {
			p.Fatal(err)
		}
		for acked := false; !acked; {
			ds, err := c.Receive(ctx)
			if err != nil {
				p.Fatal(err)
			}
			for _, d := range ds {
				if acked = d.Attempt > 1; acked {
					err = d.Ack(ctx)
				} else {
					err = d.Nack(ctx, queue.NackOptions{})
				}
				if err != nil {
					p.Fatal(err)
				}
			}
		}
	}
	p.await(fmt.Sprintf(`SELECT min(sequence) > 1 FROM tidewire.queue_journal WHERE queue = %d`, q.Stream().ID()))
	stop()
	if err := <-over; err != nil {
		p.Error(err)
	}
	if err := queue.Drop(ctx, p.pool, "jobs"); err != nil {
		p.Fatal(err)
	}
}

func (p published) events() {
	c, err := eventstore.Open(p.Context(), p.pool, eventstore.Config{})
	if err != nil {
		p.Fatal(err)
	}
	s, err := c.Ensure(p.Context(), "")
	if err != nil {
		p.Fatal(err)
	}
	for n := range int64(5) {
		if _, err := s.AppendAs(p.Context(), eventstore.RequestID{Client: "p", Sequence: n}, eventstore.Event{Type: "T", Tags: []string{"a"}}); err != nil {
			p.Fatal(err)
		}
		p.turnRequests(1<<30 + s.ID())
	}
	if err := s.Close(p.Context()); err != nil {
		p.Fatal(err)
	}
	p.exec(fmt.Sprintf(`DELETE FROM tidewire.events_%d_batch`, s.ID()))
	if err := eventstore.Drop(p.Context(), p.pool, ""); err != nil {
		p.Fatal(err)
	}
}
