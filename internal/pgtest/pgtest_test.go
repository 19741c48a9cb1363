package pgtest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestOpen_DatabasesAreApart(t *testing.T) {
	t.Parallel()
	for range 2 {
		db := pgtest.Open(t)
		if _, err := db.Pool.Exec(t.Context(), "CREATE TABLE only_here (id int)"); err != nil {
			t.Fatal(err)
		}
		conn, err := pgx.Connect(t.Context(), db.URL)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close(t.Context()) }) // the drop must not wait for it
		var tables int
		err = conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_tables WHERE tablename = 'only_here'").Scan(&tables)
		if err != nil || tables != 1 {
			t.Errorf("the URL's database has %d tables, %v; want the pool's 1", tables, err)
		}
	}
}

func TestStart_SurvivesKill(t *testing.T) {
	t.Parallel()
	srv := pgtest.Start(t)
	insert := func(sql string) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), srv.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	insert("CREATE TABLE kept (id int); INSERT INTO kept VALUES (1)")
	if err := srv.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	insert("INSERT INTO kept VALUES (2)")
}
