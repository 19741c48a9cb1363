package migrate_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// TestPublication_OfAllTables: PostgreSQL refuses to update and delete rows of a table that is replicated logically and has
// nothing to know its rows by. With a publication of every table, all of Tidewire's tables can be changed.
func TestPublication_OfAllTables(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := migrate.Ingest(t.Context(), db.Pool, "messages")
	must(err)
	own, err := stream.Ensure(t.Context(), db.Pool, "orders", stream.Options{Keyed: true})
	must(err)
	_, err = db.Pool.Exec(t.Context(), `SELECT tidewire.own_stream($1)`, own.ID()) // which gives it tables of its own
	must(err)
	_, err = stream.Ensure(t.Context(), db.Pool, "parts", stream.Options{Partitions: 3})
	must(err)
	_, err = queue.Ensure(t.Context(), db.Pool, "jobs", queue.Options{Priorities: 2})
	must(err)
	must(eventstore.Create(t.Context(), db.Pool, "book"))
	rows, err := db.Pool.Query(t.Context(), `
		SELECT c.oid::regclass::text FROM pg_class AS c
		WHERE relkind IN ('r', 'p') AND relnamespace IN ('tidewire'::regnamespace, 'public'::regnamespace) AND relpersistence = 'p' AND NOT (
			relreplident IN ('f', 'i') OR relreplident = 'd' AND EXISTS (SELECT FROM pg_index WHERE indrelid = c.oid AND indisprimary))
			AND relname !~ '^events_[0-9]+_tag$'`) // its rows are only inserted
	must(err)
	nameless, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(nameless) > 0 {
		t.Errorf("these tables have neither a primary key nor another replica identity: %q, %v", nameless, err)
	}
	_, err = db.Pool.Exec(t.Context(), `CREATE PUBLICATION everything FOR ALL TABLES`)
	must(err)
	events, err := eventstore.Open(t.Context(), db.Pool, eventstore.Config{})
	must(err)
	book, err := events.Lookup(t.Context(), "book")
	must(err)
	_, err = book.AppendAs(t.Context(), eventstore.RequestID{Client: "c"}, eventstore.Event{Type: "T", Tags: []string{"a"}})
	must(err)
	must(book.Close(t.Context()))
	must(eventstore.Drop(t.Context(), db.Pool, "book"))
	must(stream.Drop(t.Context(), db.Pool, "orders"))
	must(queue.Drop(t.Context(), db.Pool, "jobs"))
}
