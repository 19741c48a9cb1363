package queue

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
)

// before15 is a database as the version before migration 15 leaves it.
func before15(t *testing.T) pgtest.DB {
	t.Helper()
	db := pgtest.Open(t)
	files, err := filepath.Glob("../migrate/sql/*.sql")
	if err != nil || len(files) < 15 {
		t.Fatal(files, err)
	}
	must(t, db, `CREATE SCHEMA tidewire;
		CREATE TABLE tidewire.migration (version int PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())`)
	for i, file := range files[:14] {
		sql, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		must(t, db, string(sql))
		must(t, db, `INSERT INTO tidewire.migration (version, name) VALUES ($1, $2)`, i+1, filepath.Base(file))
	}
	return db
}

func must(t *testing.T, db pgtest.DB, sql string, args ...any) {
	t.Helper()
	if _, err := db.Pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// TestUpgrade_TwoJournals: a queue of two journals, either of which may be in use,
// goes on with what it amounted to; one that has lost both says so.
func TestUpgrade_TwoJournals(t *testing.T) {
	t.Parallel()
	db := before15(t)
	for _, name := range []string{"first", "second", "lost"} {
		must(t, db, `SELECT tidewire.ensure_queue(s.id, 5, '1 s', '1 min') FROM tidewire.ensure_stream($1, false) AS s`, name)
	}
	was, err := (&state{top: 9, live: []segment{{span: span{4, 9}, attempts: 2}}, leases: map[int64]time.Time{}}).snapshot(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginTxFunc(t.Context(), db.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `SELECT tidewire.rotate_queue(1001, 50, 9, $1)`, was)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	must(t, db, `TRUNCATE tidewire.queue_1002_journal_0`)
	if _, err := migrate.Up(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]state{
		"first":  {seen: 1, base: 1},
		"second": {seen: 50, base: 50, top: 9, live: []segment{{span: span{4, 9}, attempts: 2}}},
	} {
		q, err := Lookup(t.Context(), db.Pool, name)
		if err != nil {
			t.Fatal(err)
		}
		s, _, err := q.members[0].load(t.Context())
		if err != nil || s.seen != want.seen || s.base != want.base || s.top != want.top || !slices.Equal(s.live, want.live) {
			t.Errorf("%s is %+v, %v; want %+v", name, s, err, want)
			continue
		}
		r := rotor{newShardNode(NewNode(q, NodeConfig{RotateRows: 1}), q.members[0]), t, q}
		r.state = *s
		r.turn(3)
	}
	q, err := Lookup(t.Context(), db.Pool, "lost")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Stats(t.Context()); !errors.Is(err, ErrJournalLost) {
		t.Errorf("a queue without a journal: %v, want ErrJournalLost", err)
	}
}
