package eventstore_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/migrate"
)

// strangeDefaults are what a database may have, or its administrator.
var strangeDefaults = map[string]string{
	"statement_timeout": "2s", "idle_in_transaction_session_timeout": "1700ms", "lock_timeout": "1500ms",
	"search_path": "public, pg_catalog", "standard_conforming_strings": "off", "default_transaction_isolation": "serializable",
}

// manyStores share a pool of few connections: each returns its connection at once.
var manyStores = eventstore.Config{IdleTimeout: time.Millisecond, NoListen: true}

// TestStore_StrangeDefaults appends after a slow transaction, where the defaults of the database would end the wait for it again and
// again.
func TestStore_StrangeDefaults(t *testing.T) {
	slow(t)
	t.Parallel()
	db := setup(t)
	pgtest.SetDefaults(t, db, strangeDefaults)
	s := open(t, db.Pool, manyStores)
	holder := holdLock(t, db.URL, "an application", s)
	for _, sql := range []string{`SET LOCAL idle_in_transaction_session_timeout = 0`, `SET LOCAL statement_timeout = 0`} {
		mustExec(t, holder, sql)
	}
	appended := make(chan error, 1)
	go func() {
		_, err := s.AppendIf(t.Context(), []eventstore.Event{event("A", "x")}, eventstore.Condition{FailIfEventsMatch: eventstore.Tagged("x")})
		appended <- err
	}()
	waitForLock(t, db.Pool)
	testkit.Eventually(t, "the transaction lasts three times as long as a statement may", func() bool {
		var long bool
		err := holder.QueryRow(t.Context(), `SELECT clock_timestamp() - transaction_timestamp() > '6 s'`).Scan(&long)
		return err != nil || long
	})
	if _, err := holder.Exec(t.Context(), `COMMIT`); err != nil {
		t.Error(err)
	}
	if err := <-appended; err != nil {
		t.Errorf("an append after a long transaction: %v", err)
	}
	if _, err := s.AppendAs(t.Context(), eventstore.RequestID{Client: "p"}, event("B")); err != nil {
		t.Error(err)
	}
}

// TestStore_LeastRights does everything as the owner of the database, who is no
// superuser.
func TestStore_LeastRights(t *testing.T) {
	slow(t)
	t.Parallel()
	server := pgtest.Start(t)
	admin := poolOf(t, server.URL())
	mustExec(t, admin, `CREATE ROLE plain LOGIN`)
	mustExec(t, admin, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I OWNER TO plain', current_database()); END $$`)
	letIn(t, admin, "plain")
	plain := server.URL() + "&user=plain"
	testkit.Eventually(t, "the role is let in", func() bool {
		conn, err := pgx.Connect(t.Context(), plain)
		if err != nil {
			return false
		}
		return conn.Close(t.Context()) == nil
	})
	owned := poolOf(t, plain)
	if _, err := migrate.Up(t.Context(), owned); err != nil {
		t.Fatal(err)
	}
	s := open(t, owned, eventstore.Config{LockTimeout: 50 * time.Millisecond})
	frozen := holdLock(t, plain, pg.WriterName, s)
	if _, err := s.AppendAs(t.Context(), eventstore.RequestID{Client: "p"}, event("A", "x")); err != nil {
		t.Error(err)
	}
	if err := frozen.Ping(t.Context()); err == nil {
		t.Error("the session that was frozen lives on")
	}
	if all := everything(t, s); len(all) != 1 {
		t.Errorf("%d events, want 1", len(all))
	}
	if err := eventstore.Drop(t.Context(), owned, s.Name()); err != nil {
		t.Error(err)
	}
}

// letIn makes the server accept logins of that role without a password.
func letIn(t *testing.T, admin *pgxpool.Pool, role string) {
	t.Helper()
	var file string
	if err := admin.QueryRow(t.Context(), `SHOW hba_file`).Scan(&file); err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append([]byte("local all "+role+" trust\n"), rules...), 0o600); err != nil {
		t.Fatal(err)
	}
	mustExec(t, admin, `SELECT pg_reload_conf()`)
}

// TestDrop_LeavesOthers drops the first of eleven stores: names of the tables and
// functions of store 11 begin as those of store 1 do.
func TestDrop_LeavesOthers(t *testing.T) {
	slow(t)
	t.Parallel()
	db := setup(t)
	pgtest.SetDefaults(t, db, strangeDefaults)
	stores := make(map[int32]*eventstore.Store)
	for n := 1; len(stores) < 11; n++ {
		s := openNamed(t, db.Pool, fmt.Sprint("store ", n), manyStores)
		stores[s.ID()] = s
		mustAppend(t, s, event("A"))
	}
	one, eleven := stores[1], stores[11]
	if err := eventstore.Drop(t.Context(), db.Pool, one.Name()); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, eleven, event("B", "x"))
	if all, err := eleven.Query(t.Context(), eventstore.Tagged("x"), eventstore.ReadOptions{}); err != nil || len(all) != 1 {
		t.Errorf("query of the other store: %v, %v", all, err)
	}
}
