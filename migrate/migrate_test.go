package migrate_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/ingestlog"
	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/stream"
)

// TestUp_OnceHoweverManyNodesStart: a node that has waited for another one sees what that one has done, whatever the database's isolation.
func TestUp_OnceHoweverManyNodesStart(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	pgtest.SetDefaults(t, db, map[string]string{"default_transaction_isolation": "repeatable read"})
	db.Pool.Reset()
	var nodes sync.WaitGroup
	applied := make([]int, 4)
	for i := range applied {
		nodes.Go(func() {
			var err error
			if applied[i], err = migrate.Up(t.Context(), db.Pool); err != nil {
				t.Error(err)
			}
		})
	}
	nodes.Wait()
	total := 0
	for _, n := range applied {
		total += n
	}
	var recorded int
	if err := db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM tidewire.migration`).Scan(&recorded); err != nil {
		t.Fatal(err)
	}
	if total == 0 || total != recorded {
		t.Errorf("applied %v, %d recorded: want each migration once", applied, recorded)
	}
	if again, err := migrate.Up(t.Context(), db.Pool); again != 0 || err != nil {
		t.Errorf("second Up: %d, %v, want nothing to do", again, err)
	}
}

// TestIngest_LeavesForeignTableAlone: an application may have its own table
// messages, and use the parts of Tidewire that do not need one.
func TestIngest_LeavesForeignTableAlone(t *testing.T) {
	t.Parallel()
	for _, foreign := range []string{
		`CREATE TABLE public.messages (mine text); INSERT INTO public.messages VALUES ('kept')`,
		`CREATE TABLE public.messages_text (mine text); INSERT INTO public.messages_text VALUES ('kept')`,
		// It looks like Tidewire's, but its owner can give it triggers, which would run with the rights of the server.
		`CREATE TABLE public.messages (position bigint, payload bytea, mine text); CREATE SEQUENCE public.messages_position_seq;
			INSERT INTO public.messages (mine) VALUES ('kept');
			DO $$ BEGIN EXECUTE 'CREATE ROLE foreign_' || current_database(); EXECUTE 'ALTER TABLE public.messages OWNER TO foreign_' || current_database(); END $$`,
	} {
		db := migrated(t)
		if _, err := db.Pool.Exec(t.Context(), foreign); err != nil {
			t.Fatal(err)
		}
		if _, err := migrate.Ingest(t.Context(), db.Pool, "messages"); !errors.Is(err, migrate.ErrForeignTable) {
			t.Errorf("Ingest: %v, want ErrForeignTable", err)
		}
		if err := ingestlog.Recreate(t.Context(), db.Pool, ""); pg.Code(err) != migrate.CodeForeignTable {
			t.Errorf("Recreate: %v, want %s", err, migrate.CodeForeignTable)
		}
		var kept string
		_, table, _ := strings.Cut(foreign, "INTO ")
		table, _, _ = strings.Cut(table, " ")
		if err := db.Pool.QueryRow(t.Context(), `SELECT mine FROM `+table).Scan(&kept); err != nil || kept != "kept" {
			t.Errorf("foreign table: %q, %v", kept, err)
		}
		for _, name := range []string{"tidewire_messages", "tidewire.messages"} {
			if made, err := migrate.Ingest(t.Context(), db.Pool, name); err != nil || !made {
				t.Errorf("Ingest to %s: made %t, %v", name, made, err)
			}
		}
	}
}

// migrated returns a database with all migrations.
func migrated(t *testing.T) pgtest.DB {
	t.Helper()
	return template.Open(t)
}

var template = pgtest.NewTemplate("migrated", func(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := migrate.Up(ctx, pool)
	return err
})

// TestIngest_OnceHoweverManyNodesStart: the table is made once, and only if it is requested.
func TestIngest_OnceHoweverManyNodesStart(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	var tables int
	if err := db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace`).Scan(&tables); err != nil || tables != 0 {
		t.Errorf("migrations leave %d tables and more in schema public (%v), want none", tables, err)
	}
	var nodes sync.WaitGroup
	var made atomic.Int32
	for range 4 {
		nodes.Go(func() {
			did, err := migrate.Ingest(t.Context(), db.Pool, "messages")
			if err != nil {
				t.Error(err)
			}
			if did {
				made.Add(1)
			}
		})
	}
	nodes.Wait()
	if made.Load() != 1 {
		t.Errorf("%d made the table, want 1", made.Load())
	}
}

// TestIngest_TableOfBefore: older databases have a table that a migration made.
func TestIngest_TableOfBefore(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	if _, err := db.Pool.Exec(t.Context(), `
		CREATE TABLE public.messages (position bigint NOT NULL, payload bytea NOT NULL, created_at timestamptz NOT NULL DEFAULT now());
		CREATE SEQUENCE public.messages_position_seq OWNED BY public.messages.position;
		CREATE INDEX messages_position_idx ON public.messages USING brin (position) WITH (pages_per_range = 128);
		CREATE VIEW public.messages_text AS
			SELECT position AS id, tidewire.utf8_text(payload) AS payload, created_at FROM public.messages`); err != nil {
		t.Fatal(err)
	}
	if made, err := migrate.Ingest(t.Context(), db.Pool, "messages"); err != nil || made {
		t.Errorf("Ingest: made %t, %v, want the table that is there", made, err)
	}
}

func TestIngest_Names(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	for _, name := range []string{"", "Messages", "a b", `a"b`, "a.b.c", ".a", "a.", "pg_catalog.a", "1a", "a;b", strings.Repeat("a", 51)} {
		if _, err := migrate.Ingest(t.Context(), db.Pool, name); !errors.Is(err, migrate.ErrTable) {
			t.Errorf("%q: %v, want ErrTable", name, err)
		}
	}
	if _, err := db.Pool.Exec(t.Context(), `CREATE SCHEMA "select"`); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"order", "select.user", strings.Repeat("a", 50)} { // includes reserved words of PostgreSQL
		if made, err := migrate.Ingest(t.Context(), db.Pool, name); err != nil || !made {
			t.Errorf("%q: made %t, %v", name, made, err)
		}
	}
}

func TestIngest_NeedsTheSchema(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	if _, err := migrate.Ingest(t.Context(), db.Pool, "messages"); !errors.Is(err, migrate.ErrOlder) {
		t.Errorf("Ingest before the migrations: %v, want ErrOlder", err)
	}
}

// TestDevelopment: a database that a version before the first release has made is rejected, and not changed.
func TestDevelopment(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	for _, sql := range []string{
		`CREATE SCHEMA tidewire`,
		`CREATE TABLE tidewire.migration (version int PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())`,
		`INSERT INTO tidewire.migration (version, name) VALUES (1, '0001_histories'), (2, '0002_streams')`, // of today's names, and another content,
	} {
		if _, err := db.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	_, looked := migrate.Inspect(t.Context(), db.Pool)
	_, rehearsed := migrate.DryRun(t.Context(), db.Pool, "")
	applied, migrated := migrate.Up(t.Context(), db.Pool)
	_, opened := stream.Open(t.Context(), db.Pool, stream.Config{})
	for what, err := range map[string]error{"Look": looked, "DryRun": rehearsed, "Up": migrated, "stream.Open": opened} {
		if !errors.Is(err, migrate.ErrDevelopment) {
			t.Errorf("%s: %v, want ErrDevelopment", what, err)
		}
	}
	if applied != 0 {
		t.Errorf("%d migrations were applied", applied)
	}
}

// TestUp_NoJITWhereScansAreForbidden: if a scan is the only plan, its cost is then 10^10, and PostgreSQL would
// compile each query (JIT).
func TestUp_NoJITWhereScansAreForbidden(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	var functions int
	var without []string
	if err := db.Pool.QueryRow(t.Context(), `
		SELECT count(*), coalesce(array_agg(oid::regprocedure::text) FILTER (WHERE NOT 'jit=off' = ANY (proconfig)), '{}')
		FROM pg_proc WHERE pronamespace = 'tidewire'::regnamespace AND 'enable_seqscan=off' = ANY (proconfig)`).
		Scan(&functions, &without); err != nil {
		t.Fatal(err)
	}
	if functions == 0 || len(without) > 0 {
		t.Errorf("of %d functions with enable_seqscan=off these lack SET jit = off: %q", functions, without)
	}
}

func TestMessagesText_ShowsValidUTF8Only(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	if _, err := migrate.Ingest(t.Context(), db.Pool, "messages"); err != nil {
		t.Fatal(err)
	}
	text := "grün €"
	for payload, want := range map[string]*string{text: &text, "\xff\xfe": nil, "a\x00b": nil} {
		var got *string
		err := db.Pool.QueryRow(t.Context(), `SELECT tidewire.utf8_text($1)`, []byte(payload)).Scan(&got)
		if err != nil || (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("utf8_text(%q) = %v, %v", payload, got, err)
		}
	}
	if _, err := db.Pool.Exec(t.Context(), `INSERT INTO messages (position, payload) VALUES (1, 'x'), (2, '\xff')`); err != nil {
		t.Fatal(err)
	}
	var shown, hidden int
	err := db.Pool.QueryRow(t.Context(), `SELECT count(payload), count(*) - count(payload) FROM messages_text`).Scan(&shown, &hidden)
	if err != nil || shown != 1 || hidden != 1 {
		t.Errorf("messages_text shows %d and hides %d (%v), want 1 and 1", shown, hidden, err)
	}
}

// TestDryRun_ChangesNothing: DryRun says what Up would do, and leaves no trace.
func TestDryRun_ChangesNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	s, err := migrate.DryRun(t.Context(), db.Pool, "")
	if err != nil || s.Version != 0 || len(s.Pending) != s.Latest || !errors.Is(s.Err(), migrate.ErrOlder) {
		t.Fatalf("DryRun: %+v, %v", s, err)
	}
	var there bool
	if err := db.Pool.QueryRow(t.Context(), `SELECT to_regnamespace('tidewire') IS NOT NULL`).Scan(&there); err != nil || there {
		t.Errorf("the schema is there: %v, %v", there, err)
	}
	if n, err := migrate.Up(t.Context(), db.Pool); n != len(s.Pending) || err != nil {
		t.Errorf("Up: %d, %v, want the %d that were rehearsed", n, err, len(s.Pending))
	}
	if s, err := migrate.Inspect(t.Context(), db.Pool); err != nil || s.Err() != nil || s.Version != s.Latest {
		t.Errorf("Look: %+v, %v", s, err)
	}
	if _, err := db.Pool.Exec(t.Context(), `INSERT INTO tidewire.migration (version, name) VALUES (9999, 'of the future')`); err != nil {
		t.Fatal(err)
	}
	if s, err := migrate.Inspect(t.Context(), db.Pool); err != nil || !errors.Is(s.Err(), migrate.ErrNewer) {
		t.Errorf("of a newer schema: %+v, %v", s, err)
	}
	if _, err := migrate.Up(t.Context(), db.Pool); !errors.Is(err, migrate.ErrNewer) {
		t.Errorf("Up of a newer schema: %v, want ErrNewer", err)
	}
}
